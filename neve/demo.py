"""The main job on the embedded lake: a table lives through four partition specs and is read back under each.

Everything shown is computed while it runs, and every answer is checked against plain Python.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from neve.errors import TableError, UserError
from neve.lake import Lake, connect
from neve.show import arrow_table
from neve.table import Table

__all__ = ["run"]

_START = datetime(2026, 1, 1, tzinfo=UTC)
_REGIONS = ("eu", "us", "apac")
_NAME = "demo.events"


def run(console: Console, folder: Path | None = None) -> None:
    """Run the demo in a folder that stays, or in one that is removed afterwards."""
    if folder is not None:
        _run(console, folder)
        return
    with tempfile.TemporaryDirectory(prefix="neve-demo-") as scratch:
        _run(console, Path(scratch) / "lake")


def _run(console: Console, folder: Path) -> None:
    lake = connect(folder)
    if _NAME in lake.tables():
        raise UserError(f"The lake {folder} has a table {_NAME} already. Give --lake another folder.")
    console.print("Starting Spark …", highlight=False)
    lake.spark()
    model: list[dict[str, Any]] = []
    table = _lived(console, lake, model)
    _read_back(console, table, model)
    console.print(arrow_table(table.inspect.specs(), "Partition specs the table has had", width=console.width))
    partitions = table.inspect.partitions().select(["spec_id", "partition", "file_count", "record_count"])
    console.print(arrow_table(partitions, "Partitions, each under its own spec", width=console.width))
    audit = table.verify()
    console.print(str(audit), highlight=False, markup=False)
    if not audit.is_sound:
        raise TableError("The demo table did not pass its audit.")


def _lived(console: Console, lake: Lake, model: list[dict[str, Any]]) -> Table:
    """A table with four specs: day, day + region, bucket, none; and a column renamed on the way."""
    table = lake.create_table(
        _NAME, "id bigint not null, ts timestamp, region string, amount double", partition_by=["days(ts)"]
    )
    _append(console, table, model, 0, "partitioned by day")
    table.evolve_partitions(add=["region"])
    _append(console, table, model, 1, "by day and region")
    with table.evolve_schema() as change:
        change.rename_column("amount", "price")
    for row in model:
        row["price"] = row.pop("amount")
    table.evolve_partitions(add=["bucket(4, id)"], drop=["days(ts)", "region"])
    _append(console, table, model, 2, "by bucket of id, 'amount' now called 'price'")
    table.evolve_partitions(drop=["id_bucket_4"])
    _append(console, table, model, 3, "not partitioned")
    return table


def _append(console: Console, table: Table, model: list[dict[str, Any]], batch: int, what: str) -> None:
    spark = table.context.spark()
    value = "amount" if batch < 2 else "price"
    rows = [
        {
            "id": batch * 1000 + i,
            "ts": _START + timedelta(days=batch * 2 + i % 3, seconds=i),
            "region": _REGIONS[i % 3],
            value: i / 4,
        }
        for i in range(300)
    ]
    done = table.append(spark.createDataFrame(pa.Table.from_pylist(rows)))
    model += rows
    console.print(f"append  {done.rows_added} rows, {done.files_added} files: {what}", highlight=False)


def _read_back(console: Console, table: Table, model: list[dict[str, Any]]) -> None:
    questions: dict[str, Callable[[dict[str, Any]], bool]] = {
        "ts >= TIMESTAMP '2026-01-03' AND ts < TIMESTAMP '2026-01-04'": lambda r: r["ts"].day == 3,
        "region = 'eu'": lambda r: r["region"] == "eu",
        "id = 2007": lambda r: r["id"] == 2007,
        "price > 70": lambda r: r["price"] > 70,
    }
    for where, holds in questions.items():
        scan = table.scan(where)
        found = {row["id"] for row in scan.to_arrow(engine="spark").to_pylist()}
        expected = {row["id"] for row in model if holds(row)}
        console.print(f"scan    {where}: {len(found)} rows from {scan.summary()}", highlight=False)
        if found != expected:
            raise TableError(f"The demo read {len(found)} rows where {where}, but wrote {len(expected)}.")
