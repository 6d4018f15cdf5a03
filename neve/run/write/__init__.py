"""Write data files and delete files from Arrow batches. Runs in the process and on executors."""
