"""From Arrow batches to data files, wherever they are written: in a Spark task or in the caller's process."""
