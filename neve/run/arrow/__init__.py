"""Data files as Arrow: ids, projection, conversion and deletes, on the executor or the driver, without Spark."""
