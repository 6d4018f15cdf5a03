"""Make a table of the data files in a folder of another engine: they stay where they are, and nothing is copied.

The table has the columns that Spark finds in the files, and an identity partition field for each level of folders such
as `day=2026-01-01`. New data goes to the table's own location. Maintenance deletes no file of the folder, as the table
has the property `gc.enabled=false`.

With `takes_over`, the files belong to the table from then on: it has its location in the folder, and maintenance
deletes those that it has replaced, as it does with any other.

Isolation: fails if the name is taken. Without the files, the table is dropped again.
Writes: table metadata, and one manifest.

>>> import pyarrow as pa
>>> import pyarrow.parquet as pq
>>> folder = Path("old/region=eu")
>>> folder.mkdir(parents=True)
>>> pq.write_table(pa.table({"id": [7, 8]}), folder / "part-0.parquet")
>>> lake = LakeContext(t.context.catalog, t.context.spark, lambda: None)
>>> snapshot_folder(lake, "old", "db.copied")[1].summary
'2 rows added, 1 file added to 1 partition'
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyiceberg.exceptions import NoSuchTableError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from neve.catalog.entries import find_overlap, list_entries
from neve.commit.neighbours import Place
from neve.errors import CommitUnknown, NeveError, UserError
from neve.io.files import delete_files
from neve.io.paths import is_inside_all, local_path, scheme_of
from neve.ops.context import LakeContext, TableContext
from neve.ops.metadata.create_table import columns_of, create_table
from neve.ops.metadata.drop_table import drop_table
from neve.ops.results import AddFilesResult
from neve.ops.write.add_files import AddFiles
from neve.plan.partition_folders import FILE_FORMATS
from neve.run.spark.catalog_tables import SparkTable
from neve.run.spark.session import quiet_errors

SNAPSHOT_PROPERTIES = {"gc.enabled": "false", "snapshot": "true"}  # those that Iceberg sets
_MIGRATED_PROPERTIES = {"migrated": "true"}


def snapshot_folder(
    lake: LakeContext,
    source: str | Path,
    name: str | tuple[str, ...],
    *,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
    file_format: str = "parquet",
    parallelism: int | None = None,
    takes_over: bool = False,
) -> tuple[TableContext, AddFilesResult]:
    """Create a table over the files of a folder; return it, and what was added."""
    if file_format.upper() not in FILE_FORMATS:
        raise UserError(f"Cannot make a table of files of format {file_format!r}. Give parquet, orc or avro.")
    folder = str(source) if scheme_of(str(source)) else os.path.abspath(source)
    if takes_over:
        _refuse_users_of(lake, folder)
    try:
        with quiet_errors():
            rows = lake.spark().read.format(file_format).option("mergeSchema", "true").load(folder)
            partition_names = _partition_names(rows, folder)
    except (PySparkException, Py4JJavaError) as e:  # PySpark leaves errors of tasks as they are
        raise UserError(f"Cannot find the columns of the {file_format} files in {folder}: {_reason(e)}") from e
    source_table = SparkTable(rows, file_format, folder, tuple(partition_names))
    return snapshot_spark_table(
        lake,
        source_table,
        name,
        location=_with_scheme(folder) if takes_over else location,
        properties=properties,
        parallelism=parallelism,
        takes_over=takes_over,
    )


def snapshot_spark_table(
    lake: LakeContext,
    source: SparkTable,
    name: str | tuple[str, ...],
    *,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
    parallelism: int | None = None,
    takes_over: bool = False,
) -> tuple[TableContext, AddFilesResult]:
    """Create a table with the columns, the partitions and the files of a table of Spark."""
    created = create_table(
        lake,
        name,
        columns_of(source.rows, with_comments=True),
        identity_terms(source.partition_columns),
        location=location,
        properties={**(_MIGRATED_PROPERTIES if takes_over else SNAPSHOT_PROPERTIES), **(properties or {})},
    )
    with dropped_without_files(created):
        verb = AddFiles(created, source=source.folder, file_format=source.file_format, parallelism=parallelism)
        added = replace(verb, partition_folders=source.partition_folders).execute()
    return created.refreshed(), added


def identity_terms(columns: Iterable[str]) -> list[str]:
    """Return the partition fields of a table whose files are partitioned by the values of columns."""
    return [f"`{name.replace('`', '``')}`" for name in columns]


@contextmanager
def dropped_without_files(created: TableContext) -> Iterator[None]:
    """Drop a new table again if its files cannot be added."""
    try:
        yield
    except CommitUnknown:
        raise  # the files may have been added
    except BaseException:
        drop_table(created.catalog, created.iceberg.name())
        path = created.iceberg.metadata_location
        delete_files(created.io, [path])  # it may be in the folder, which Spark reads
        if (local := local_path(path)) is not None:
            with suppress(OSError):  # there are others in the folder
                os.rmdir(os.path.dirname(local))
        raise


def _refuse_users_of(lake: LakeContext, folder: str) -> None:
    """Reject a folder that another table is in, or whose files one references: what one deletes, the other loses."""
    for entry in list_entries(lake.catalog):
        try:
            place = Place.of(entry.load(lake.catalog), entry.name)
        except (NeveError, NoSuchTableError) as e:
            raise UserError(
                f"Cannot take over {folder}: table {entry.name} may reference its files, and cannot be read ({e}). Try "
                "again when it can be, or drop the entry if its table is damaged."
            ) from e
        is_in_folder = find_overlap(place.metadata, place.metadata_location, folder) is not None
        if is_in_folder or pc.any(is_inside_all(pa.array(place.paths_in_use(), pa.string()), [folder])).as_py():
            raise UserError(
                f"Cannot take over {folder}: table {place.name} is in it, or references its files. Drop that table "
                "first, or make a table of the folder with snapshot_folder(folder, name), which deletes none."
            )


def _with_scheme(folder: str) -> str:
    return folder if scheme_of(folder) else f"file://{folder}"


def _reason(error: Exception) -> str:
    cause = error.java_exception if isinstance(error, Py4JJavaError) else None
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    return str(error if cause is None else cause.getMessage()).split("\n", 1)[0]


def _partition_names(rows: DataFrame, folder: str) -> list[str]:
    """Return the names in the folders that lead to the first file: `day=2026-01-01/region=eu` has two."""
    files = rows.inputFiles()
    if not files:
        raise UserError(f"Found no data files in {folder}.")
    root, path = (PurePosixPath(unquote(urlsplit(text).path)) for text in (folder, files[0]))
    folders = path.parts[len(root.parts) : -1]
    return [name for name, is_partition, _ in (each.partition("=") for each in folders) if is_partition]
