"""Read and write the rows of data files."""
