"""The tree of format version 4: a Parquet root that lists leaves and files, each a tracked-file row found by id."""
