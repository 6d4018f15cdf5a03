"""Other engines as witnesses of what is in a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyarrow as pa
from pyiceberg.table import StaticTable
from pyiceberg.table import Table as IcebergTable


def for_peers(table: Any) -> IcebergTable:
    """A table as others can read it: nobody else reads the tree of version 4 yet, but everybody its export."""
    if table.refresh().context.metadata.format_version < 4:
        found: IcebergTable = table.context.iceberg
        return found
    return StaticTable.from_metadata(table.export_metadata())


@cache
def _extension(package: Any) -> Path:
    return next(Path(package.__file__).parent.rglob("*.duckdb_extension"))


def duckdb_rows(table: IcebergTable) -> pa.Table:
    """The rows DuckDB reads from the current metadata file."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for package in (duckdb_extension_avro, duckdb_extension_iceberg):
            connection.load_extension(str(_extension(package)))
        connection.execute("SET TimeZone = 'UTC'")
        return connection.sql("SELECT * FROM iceberg_scan(?)", params=[table.metadata_location]).to_arrow_table()


def pyiceberg_rows(table: IcebergTable) -> pa.Table:
    """The rows PyIceberg reads."""
    return table.scan().to_arrow()


@dataclass(frozen=True)
class Fault:
    """What a witness is known to do wrong: which tables it concerns, and what happens."""

    witness: str
    reason: str
    concerns: Callable[[IcebergTable], bool]


def _partition_sources_are_all_gone(table: IcebergTable) -> bool:
    columns = table.schema().field_ids
    fields = [f for spec in table.metadata.partition_specs for f in spec.fields]
    return bool(fields) and not any(f.source_id in columns for f in fields)


def _has_equality_deletes(table: IcebergTable) -> bool:
    snapshot = table.current_snapshot()
    return snapshot is not None and int(snapshot.summary["total-equality-deletes"] or 0) > 0


FAULTS: tuple[Fault, ...] = (
    Fault("PyIceberg", "refuses tables with equality deletes", _has_equality_deletes),
    Fault(
        "DuckDB",
        "ends the process when the columns of all partition fields were dropped",
        _partition_sources_are_all_gone,
    ),
)

WITNESSES: dict[str, Callable[[IcebergTable], pa.Table]] = {"PyIceberg": pyiceberg_rows, "DuckDB": duckdb_rows}


def witnesses(table: IcebergTable) -> dict[str, Callable[[IcebergTable], pa.Table]]:
    """The witnesses that can read a table, by their names; `FAULTS` says why one is not among them."""
    faulty = {fault.witness for fault in FAULTS if fault.concerns(table)}
    return {name: read for name, read in WITNESSES.items() if name not in faulty}
