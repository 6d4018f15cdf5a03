"""The metadata tree of format version 4: a Parquet root and its leaves."""
