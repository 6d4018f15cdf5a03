"""Show the metadata of a table as Arrow tables: Iceberg's metadata tables, and two of our own.

They have the names, columns and types that Iceberg has in Spark; columns of our own follow after Iceberg's. Files of
different specs fit into one table, because `partition` is a struct of all fields of all specs. All of them are read
from metadata; only `position_deletes` opens delete files.

>>> for row in t.inspect.partitions().select(["spec_id", "partition", "file_count"]).to_pylist():
...     print(row)
{'spec_id': 0, 'partition': {'region': 'eu'}, 'file_count': 1}
{'spec_id': 0, 'partition': {'region': 'us'}, 'file_count': 1}
"""

from neve.ops.inspect.metadata_tables import Inspect

__all__ = ["Inspect"]
