"""Read data files as Arrow: by field id, with deletes applied. Runs in the process and on executors."""
