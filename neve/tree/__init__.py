"""Read and write the metadata tree: every format version in the same columns."""
