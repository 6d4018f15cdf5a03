"""Other engines that read a table by its metadata file: PyIceberg, DuckDB, DataFusion with Iceberg's Rust library."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyarrow as pa
from datafusion import SessionContext
from pyiceberg.table import StaticTable
from pyiceberg.table import Table as IcebergTable

Reader = Callable[[IcebergTable], pa.Table]


def for_peers(table: Any) -> IcebergTable:
    """Return a table that other engines can read: for version 4 the export, which all engines read."""
    if table.refresh().context.metadata.format_version < 4:
        found: IcebergTable = table.context.iceberg
        return found
    return StaticTable.from_metadata(table.export_metadata())


@cache
def _extension(package: Any) -> Path:
    return next(Path(package.__file__).parent.rglob("*.duckdb_extension"))


def duckdb_rows(table: IcebergTable, *, caches: bool = False) -> pa.Table:
    """Return the rows that DuckDB reads from the current metadata file; its file cache mixes up deletion vectors."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for package in (duckdb_extension_avro, duckdb_extension_iceberg):
            connection.load_extension(str(_extension(package)))
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"SET enable_external_file_cache = {caches}")
        return connection.sql("SELECT * FROM iceberg_scan(?)", params=[table.metadata_location]).to_arrow_table()


def pyiceberg_rows(table: IcebergTable) -> pa.Table:
    """Return the rows that PyIceberg reads."""
    return table.scan().to_arrow()


def datafusion_rows(table: IcebergTable) -> pa.Table:
    """Return the rows that DataFusion reads through Iceberg's Rust library."""
    session = SessionContext()
    session.register_table("t", table)
    return session.table("t").to_arrow_table()


BASIC_READERS: dict[str, Reader] = {"PyIceberg": pyiceberg_rows, "DuckDB": duckdb_rows}
READERS: dict[str, Reader] = {**BASIC_READERS, "DataFusion": datafusion_rows}
CACHING_DUCKDB = "DuckDB as it comes"  # used only to reproduce its known bug
