"""The sections of the page, one a file: values in, HTML out."""
