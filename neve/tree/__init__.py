"""The metadata tree: every format version in and out of one columnar shape."""
