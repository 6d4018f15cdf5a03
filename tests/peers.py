"""Other engines as witnesses of what is in a table."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyarrow as pa
from pyiceberg.table import Table as IcebergTable


class Unreadable(Exception):
    """A table that a witness is known not to read; `FAULTS` says why."""


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


def witnesses() -> dict[str, Callable[[IcebergTable], pa.Table]]:
    """Every witness by its name; one raises Unreadable for a table it is known not to read."""
    return {"PyIceberg": pyiceberg_rows, "DuckDB": duckdb_rows}
