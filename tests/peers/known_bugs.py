"""Known bugs of other engines: each with the tables that it affects and a table that reproduces it.

A comparison with an engine is skipped only for a bug in this list. `test_faults.py` and `test_spark.py` reproduce each
bug, so that a bug that a newer release fixes does not stay in the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import DoubleType, FloatType, IntegerType, StringType, TimestampType

from neve import Lake, Table
from neve.model.metadata import to_neve_metadata
from tests.peers.readers import BASIC_READERS, CACHING_DUCKDB, Reader
from tests.peers.spark import NAME as SPARK
from tests.support.tables import delete_equal, delete_rows

READ = "SELECT * FROM {t}"
FOLDER = 255  # bytes: the longest name that file systems take
Row = dict[str, Any]
_ROWS: list[Row] = [{"id": i, "region": ("eu", "us")[i % 2], "day": date(2024, 1, i)} for i in range(1, 5)]


@dataclass(frozen=True)
class Fault:
    """A known bug of an engine: the affected tables, the error, and how to reproduce it."""

    engine: str
    reason: str
    concerns: Callable[[IcebergTable], bool]
    message: str  # start of the error message; empty: it reads or leaves wrong rows
    table: Callable[[Lake, str], Table]  # a table that reproduces it
    statement: str = ""  # the statement that fails; empty: reading is wrong
    by_spark: str = ""  # what Spark with Iceberg writes to the table first; empty: only Névé wrote it


# --- affected tables ---


def _has_equality_deletes(table: IcebergTable) -> bool:
    snapshot = table.current_snapshot()
    return snapshot is not None and int(_summary(snapshot).get("total-equality-deletes") or 0) > 0


def _has_deletes(table: IcebergTable) -> bool:
    snapshot = table.current_snapshot()
    return snapshot is not None and int(_summary(snapshot).get("total-delete-files") or 0) > 0


def _has_vectors(table: IcebergTable) -> bool:
    return table.metadata.format_version >= 3 and _has_deletes(table)


def _partition_sources_are_all_gone(table: IcebergTable) -> bool:
    columns = table.schema().field_ids
    fields = [f for spec in table.metadata.partition_specs for f in spec.fields]
    return bool(fields) and not any(f.source_id in columns for f in fields)


def _a_partition_source_is_gone(table: IcebergTable) -> bool:
    columns = table.schema().field_ids
    return any(f.source_id not in columns for spec in table.metadata.partition_specs for f in spec.fields)


def _schema_is_newer_than_the_snapshot(table: IcebergTable) -> bool:
    snapshot = table.current_snapshot()
    return snapshot is not None and snapshot.schema_id != table.metadata.current_schema_id


def _has_a_void_field_named_as_a_column(table: IcebergTable) -> bool:
    names = table.schema().column_names
    fields = [f for spec in table.metadata.partition_specs for f in spec.fields]
    return any(isinstance(f.transform, VoidTransform) and f.name in names for f in fields)


def _has_two_void_fields_of_a_column(table: IcebergTable) -> bool:
    specs = [[f.source_id for f in s.fields if isinstance(f.transform, VoidTransform)] for s in table.specs().values()]
    return any(len(set(sources)) < len(sources) for sources in specs)


def _has_a_field_named_as_another_column(table: IcebergTable) -> bool:
    columns = {column.name: column.field_id for column in table.schema().fields}
    fields = [f for spec in table.metadata.partition_specs for f in spec.fields]
    return any(columns.get(f.name, f.source_id) != f.source_id for f in fields)


def _has_a_field_whose_name_avro_does_not_take(table: IcebergTable) -> bool:
    names = [f.name for spec in table.metadata.partition_specs for f in spec.fields]
    is_plain = all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in names)
    return table.metadata.format_version != 2 and not is_plain


def _has_a_field_beyond_ascii(table: IcebergTable) -> bool:
    return not all(f.name.isascii() for spec in table.metadata.partition_specs for f in spec.fields)


def _has_dates_as_times(table: IcebergTable) -> bool:
    schemas = table.metadata.schemas
    kinds = {i: {str(s.find_type(i)) for s in schemas if i in s.field_ids} for s in schemas for i in s.field_ids}
    return any({"date", "timestamp"} <= found for found in kinds.values())


def _is_upgraded_and_not_written(table: IcebergTable) -> bool:
    head = table.current_snapshot()
    return table.metadata.format_version > 1 and head is not None and not head.sequence_number


def _has_been_of_version_1(table: IcebergTable) -> bool:
    return table.metadata.format_version > 1 and any(not s.sequence_number for s in table.metadata.snapshots)


def _has_position_deletes_and_specs(table: IcebergTable) -> bool:
    return table.metadata.format_version == 2 and len(table.metadata.partition_specs) > 1 and _has_deletes(table)


def _is_partitioned_by_a_column(table: IcebergTable) -> bool:
    return any(isinstance(f.transform, IdentityTransform) for s in table.specs().values() for f in s.fields)


def _is_partitioned_by_a_text(table: IcebergTable, kinds: Any = IdentityTransform) -> bool:
    fields = [f for s in table.specs().values() for f in s.fields if isinstance(f.transform, kinds)]
    texts = {column.field_id for column in table.schema().fields if isinstance(column.field_type, StringType)}
    return any(f.source_id in texts for f in fields)


def _changes_rows_merge_on_read(table: IcebergTable) -> bool:
    return "merge-on-read" in {table.properties.get(f"write.{word}.mode") for word in ("delete", "update", "merge")}


def _has_snapshots_without_a_number(table: IcebergTable) -> bool:
    rows = to_neve_metadata(table.metadata).lazy_snapshots.rows
    return table.metadata.format_version > 2 and not all("sequence-number" in row for row in rows)


def _has_fractions(table: IcebergTable) -> bool:
    return any(isinstance(column.field_type, FloatType | DoubleType) for column in table.schema().fields)


def _summary(snapshot: Any) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


# --- tables that reproduce a bug ---


def _table(lake: Lake, name: str, version: int = 2, by: tuple[str, ...] = ()) -> Table:
    table = lake.create_table(name, "id bigint, region string, day date", by, format_version=version)
    table.append(_ROWS)
    return table


def _with_an_equality_delete(lake: Lake, name: str) -> Table:
    table = _table(lake, name)
    delete_equal(table, 2)
    return table


def _with_a_vector(lake: Lake, name: str) -> Table:
    table = _table(lake, name, version=3)
    delete_rows(table, 2)
    return table


def _with_vectors_in_another_order(lake: Lake, name: str) -> Table:
    """Create three vectors in one Puffin file; the manifest lists the third before the first and the second."""
    modes = {"write.delete.mode": "merge-on-read"}
    table = lake.create_table(name, "id bigint, part int", ["part"], format_version=3, properties=modes)
    for part in (3, 0, 2, 1):
        table.append([{"id": 10 * part + i, "part": part} for i in range(5)])
    table.delete().where("id IN (0, 1, 10, 12, 20, 23)").execute()
    table.delete().where("id = 30").execute()
    table.rewrite_manifests().cluster_by("part").execute()
    return table


def _without_the_column_of_its_partitions(lake: Lake, name: str) -> Table:
    table = _table(lake, name, by=("region",)).evolve_partitions(drop=["region"])
    with table.evolve_schema() as change:
        change.delete_column("region")
    return table


def _with_another_column_of_that_name(lake: Lake, name: str) -> Table:
    table = _without_the_column_of_its_partitions(lake, name)
    with table.evolve_schema() as change:
        change.add_column("region", IntegerType())
    table.append([{"id": 5, "day": date(2024, 1, 5), "region": 1}])
    return table


def _without_the_column_of_its_deletes(lake: Lake, name: str, version: int = 3) -> Table:
    table = _table(lake, name, version=version, by=("region",))
    delete_rows(table, 2)
    table.evolve_partitions(drop=["region"], add=["bucket(2, id)"])
    with table.evolve_schema() as change:
        change.delete_column("region")
    return table


def _with_deletes_of_two_specs_for_nothing(lake: Lake, name: str) -> Table:
    table = lake.create_table(name, "id bigint, region string", ["region"], format_version=2)
    table.append([{"id": i, "region": None} for i in (1, 2)])
    delete_rows(table, 1)
    table = table.evolve_partitions(drop=["region"])
    table.append([{"id": i, "region": None} for i in (3, 4)])
    delete_rows(table, 3)
    return table


def _merge_on_read_without_the_column(lake: Lake, name: str) -> Table:
    mode = {"write.delete.mode": "merge-on-read"}
    return _without_the_column_of_its_deletes(lake, name).set_properties(**mode)


def _with_a_void_field(lake: Lake, name: str) -> Table:
    table = _table(lake, name, version=1, by=("region",)).evolve_partitions(drop=["region"])
    table.append(_ROWS)
    return table


def _with_two_void_fields(lake: Lake, name: str) -> Table:
    table = _table(lake, name, version=1, by=("bucket(2, id)",))
    table = table.evolve_partitions(drop=["bucket(2, id)"], add=["bucket(4, id)"])
    table = table.evolve_partitions(drop=["bucket(4, id)"])
    table.append(_ROWS)
    return table


def _by_a_name_with_a_space(lake: Lake, name: str) -> Table:
    table = lake.create_table(name, "id bigint, `the day` date", ["`the day`"], format_version=3)
    table.append([{"id": 1, "the day": date(2024, 1, 1)}])
    return table


def _with_a_null_among_its_partitions(lake: Lake, name: str) -> Table:
    table = lake.create_table(name, "id bigint, day date", ["day"], format_version=2)
    table.append(
        [{"id": 1, "day": date(2024, 1, 1)}, {"id": 2, "day": None}]
    )  # one manifest: Spark does not touch others
    return table


def _with_a_long_text_among_its_partitions(lake: Lake, name: str) -> Table:
    table = lake.create_table(name, "id bigint, region string", ["region"], format_version=2)
    table.append([{"id": 1, "region": "x" * (FOLDER - len("region=") + 1)}])
    return table


def _with_a_null_among_its_texts(lake: Lake, name: str) -> Table:
    table = lake.create_table(name, "id bigint, region string", ["truncate(2, region)"], format_version=2)
    table.append([{"id": 1, "region": None}, {"id": 2, "region": "eu"}])
    return table


def _by_a_name_beyond_ascii(lake: Lake, name: str) -> Table:
    table = lake.create_table(name, "id bigint, `größe` bigint", ["`größe`"], format_version=2)
    table.append([{"id": 1, "größe": 9}])
    return table


def _renamed(lake: Lake, name: str) -> Table:
    table = _table(lake, name)
    with table.evolve_schema() as change:
        change.rename_column("region", "land")
    return table


def _with_a_zero(lake: Lake, name: str) -> Table:
    table = lake.create_table(name, "id bigint, d double", format_version=2)
    table.append([{"id": n, "d": 0.0} for n in range(100)])  # so many that the column has a dictionary
    return table


def _promoted_date(lake: Lake, name: str) -> Table:
    table = _table(lake, name, version=3)
    with table.evolve_schema() as change:
        change.update_column("day", TimestampType())
    return table


def _upgraded(lake: Lake, name: str) -> Table:
    return _table(lake, name, version=1).upgrade(2)


def _upgraded_after_a_change(lake: Lake, name: str) -> Table:
    table = _table(lake, name, version=1, by=("region",))
    table.delete().where("region = 'eu'").execute()  # the manifest is written again with the file of the other region
    table = table.upgrade(2)
    table.append([_ROWS[0]])
    return table


FAULTS: tuple[Fault, ...] = (
    Fault(
        "PyIceberg",
        "refuses tables with equality deletes",
        _has_equality_deletes,
        "ValueError: PyIceberg does not yet support equality deletes",
        _with_an_equality_delete,
    ),
    Fault(
        "PyIceberg",
        "does not read files written before a date was promoted to a timestamp",
        _has_dates_as_times,
        "AttributeError: 'pyarrow.lib.DataType' object has no attribute 'tz'",
        _promoted_date,
    ),
    Fault(
        "DuckDB",
        "ends the process when the columns of all partition fields were dropped",
        _partition_sources_are_all_gone,
        "Died",
        _without_the_column_of_its_partitions,
    ),
    Fault(
        "DuckDB",
        "does not read the list of a snapshot that version 1 wrote once the table is of a later version",
        _is_upgraded_and_not_written,
        "AssertionError: DuckDB: Error: required field 'sequence_number' is NULL!",
        _upgraded,
    ),
    Fault(
        "DuckDB",
        "does not read manifests of version 1 that carry files of earlier ones once the table is of a later version",
        _has_been_of_version_1,
        "AssertionError: DuckDB: Error: 'manifest_entry.sequence_number' is only allowed to be NULL for ADDED entries",
        _upgraded_after_a_change,
    ),
    Fault(
        "DuckDB",
        "ends the process, or says it cannot convert a tuple, over deletes under a spec whose column was dropped",
        lambda table: _a_partition_source_is_gone(table) and _has_deletes(table),
        "Died",
        _without_the_column_of_its_deletes,
    ),
    Fault(
        "DuckDB",
        "ends the process over a partition field whose name is not ASCII, whoever wrote the table",
        _has_a_field_beyond_ascii,
        "Died",
        _by_a_name_beyond_ascii,
    ),
    Fault(
        CACHING_DUCKDB,
        "applies the deletion vector of another data file where manifests do not name those of one Puffin file in the "
        "order they lie in; SET enable_external_file_cache = false keeps it from that",
        _has_vectors,
        "",
        _with_vectors_in_another_order,
    ),
    Fault(
        "DataFusion",
        "takes deletion vectors for Parquet files",
        _has_vectors,
        "Exception: DataFusion error: FFI error: External error: Unexpected => Failed to load Parquet metadata",
        _with_a_vector,
    ),
    Fault(
        "DataFusion",
        "refuses a spec of version 1 in which a field by a column was dropped",
        _has_a_void_field_named_as_a_column,
        "Exception: DataFusion error: FFI error: External error: Unexpected => file scan task generate failed",
        _with_a_void_field,
    ),
    Fault(
        "DataFusion",
        "refuses a spec of version 1 in which two fields by one column were dropped",
        _has_two_void_fields_of_a_column,
        "Exception: DataFusion error: FFI error: External error: Unexpected => file scan task generate failed",
        _with_two_void_fields,
    ),
    Fault(
        "DataFusion",
        "does not find values of a partition field whose name Avro spells otherwise, except in version 2",
        _has_a_field_whose_name_avro_does_not_take,
        "Exception: DataFusion error: FFI error: External error: Unexpected => file scan task generate failed",
        _by_a_name_with_a_space,
    ),
    Fault(
        "DataFusion",
        "reads with the columns of the snapshot, not with those of the table",
        _schema_is_newer_than_the_snapshot,
        "Exception: DataFusion error: FFI error: External error: DataInvalid => Column land not found",
        _renamed,
    ),
)
"""Bugs of other engines on tables that Névé wrote."""


SHARED_FAULTS: tuple[Fault, ...] = (
    Fault(
        "DataFusion",
        "refuses a manifest that Spark wrote of a spec whose column was dropped when another column has its name",
        _has_a_field_named_as_another_column,
        "Exception: DataFusion error: FFI error: External error: Unexpected => file scan task generate failed",
        _with_another_column_of_that_name,
        by_spark="DELETE FROM {t} WHERE id = 1",
    ),
    Fault(
        "DataFusion",
        "does not read a table of version 3 whose first snapshots, of version 1, Spark left without a sequence number",
        _has_snapshots_without_a_number,
        "RuntimeError: Failed to load static table: DataInvalid => Failed to parse json string",
        lambda lake, name: _table(lake, name, version=1),
        by_spark="ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')",
    ),
)
"""Bugs of other engines on tables that Spark with Iceberg wrote."""


WRITES_NULL = Fault(
    SPARK,
    "shows and writes null for the value of a partition field whose column was dropped",
    _a_partition_source_is_gone,
    "partition: {}, but Névé has {'region': 'eu'}",
    _without_the_column_of_its_partitions,
)
OLD_DATES = Fault(
    SPARK,
    "does not read files written before a date was promoted to a timestamp",
    _has_dates_as_times,
    "java.lang.ClassCastException: class org.apache.iceberg.shaded.org.apache.arrow.vector.TimeStampMicro",
    _promoted_date,
    READ,
)
LONG_TEXT = Fault(
    SPARK,
    f"does not write to a partition whose `name=value`, escaped, is longer than the name of a folder: {FOLDER} bytes",
    _is_partitioned_by_a_text,
    "Failed to create Parquet file",
    _with_a_long_text_among_its_partitions,
    "INSERT INTO {t} SELECT * FROM {t}",
)

ZEROS = Fault(
    SPARK,
    "passes over files by the sign of their zeros, which SQL does not tell apart",
    _has_fractions,
    "",
    _with_a_zero,
    "UPDATE {t} SET id = 9 WHERE d = CAST('-0.0' AS double)",
)
STARTS = Fault(
    SPARK,
    "fails over a text that begins with another where the value of a partition by texts is null",
    lambda table: _is_partitioned_by_a_text(table, IdentityTransform | TruncateTransform),
    'Cannot invoke "String.startsWith(String)"',
    _with_a_null_among_its_texts,
    "SELECT id FROM {t} WHERE region LIKE 'e%' OR id = 1",
)
NULL_UNDER_COALESCE = Fault(
    SPARK,
    "does not delete by a condition in which coalesce is given an alternative that is null",
    lambda table: True,
    "The Spark SQL phase optimization failed with an internal error",
    _table,
    "DELETE FROM {t} WHERE coalesce(id = 1 OR id > NULL, false)",
)

SPARK_FAULTS: tuple[Fault, ...] = (
    WRITES_NULL,
    OLD_DATES,
    LONG_TEXT,
    ZEROS,
    STARTS,
    NULL_UNDER_COALESCE,
    Fault(
        SPARK,
        "makes a table of version 2 that it cannot read by a change copy-on-write where the column of a partition field"
        " was dropped and files have deletes",
        lambda table: table.metadata.format_version == 2 and _a_partition_source_is_gone(table) and _has_deletes(table),
        "Mismatched partition tuples (PartitionData{region=eu}, PartitionData{region=null})",
        lambda lake, name: _without_the_column_of_its_deletes(lake, name, version=2),
        "SELECT id FROM {t}",
        by_spark="DELETE FROM {t} WHERE id = 1",
    ),
    Fault(
        SPARK,
        "does not change rows merge-on-read where the column of a partition field was dropped",
        lambda table: _a_partition_source_is_gone(table) and _changes_rows_merge_on_read(table),
        "Cannot find field 1000: region: optional unknown in struct",
        _merge_on_read_without_the_column,
        "DELETE FROM {t} WHERE id = 1",
    ),
    Fault(
        SPARK,
        "deletes rows in which a column that partitions are by is null when it is to delete those below a bound",
        _is_partitioned_by_a_column,
        "",
        _with_a_null_among_its_partitions,
        "DELETE FROM {t} WHERE day < DATE '2024-01-03'",
    ),
    Fault(
        SPARK,
        "does not rewrite position deletes of two specs whose tuples look alike once fields are missing",
        _has_position_deletes_and_specs,
        "are expected to have same spec id, but got",
        _with_deletes_of_two_specs_for_nothing,
        "CALL system.rewrite_position_delete_files(table => '{t}', options => map('rewrite-all', 'true'))",
    ),
)
"""Bugs of Spark with Iceberg."""


def faults_in(statement: str, name: str, table: IcebergTable, message: str) -> list[Fault]:
    """Return the known bugs for which a maintenance call of Spark with Iceberg fails; row changes must work."""
    known = [f for f in faults_of(SPARK, table) if f.statement.startswith("CALL")]
    return [f for f in known if f.statement.format(t=name) == statement and f.message in message]


def fault_by_reason(reason: str) -> Fault:
    """Return the known bug of Spark with Iceberg with a reason."""
    return {fault.reason: fault for fault in SPARK_FAULTS}[reason]


def is_read_by_spark(table: IcebergTable) -> bool:
    """Return whether Spark with Iceberg reads the rows of a table without a known bug."""
    return not any(fault.statement == READ for fault in faults_of(SPARK, table))


def faults_of(engine: str, table: IcebergTable) -> list[Fault]:
    """Return the known bugs of an engine that affect a table."""
    known = (*FAULTS, *SHARED_FAULTS, *SPARK_FAULTS)
    return [fault for fault in known if fault.engine == engine and fault.concerns(table)]


def witnesses(table: IcebergTable) -> dict[str, Reader]:
    """Return the readers without a known bug on a table, by name; `FAULTS` lists the bugs."""
    return {name: read for name, read in BASIC_READERS.items() if not faults_of(name, table)}
