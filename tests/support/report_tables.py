"""Tables for reports that exist in metadata only: no data file is ever written, and no Spark is started.

>>> table = old_table(tmp_path)              # three specs, renamed columns, deletes, a branch and a tag
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.types import StringType

import neve
from neve.commit.actions import Append, RowDelta
from neve.commit.environment import Environment
from neve.commit.outcome import Committed
from neve.commit.protocol import commit
from neve.tree.entries import DETAIL, Content, EntryTable, Status

DAY_MS = 24 * 60 * 60 * 1000
START_DAY = 20_454  # 2026-01-01: the first day there are rows of
CLOCK_DAY = 47_482  # 2100-01-01: when the table was made; history does not go back, so it lies in the future
NAME = "shop.sales"


@dataclass
class Stage:
    """A table and a clock: every commit comes a few days after the last."""

    table: neve.Table
    clock: list[int]
    rng: np.random.Generator

    @classmethod
    def create(
        cls, folder: Path, version: int = 2, name: Any = NAME, schema: str | None = None, by: Any = None
    ) -> Stage:
        clock = [CLOCK_DAY * DAY_MS]
        environment = Environment(now_ms=lambda: clock[0], sleep=lambda seconds: None)
        lake = neve.connect(folder, environment=environment)
        columns = schema or "id bigint not null, ts timestamp, region string, amount double"
        table = lake.create_table(name, columns, by or ["days(ts)"], format_version=version)
        return cls(table, clock, np.random.default_rng(3))

    def wait(self, days: float = 3) -> None:
        self.clock[0] += int(days * DAY_MS)

    def commit(self, action: Any, branch: str = "main") -> None:
        context = self.table.refresh().context
        done = commit(context.catalog, context.iceberg, action, environment=context.environment, branch=branch)
        assert isinstance(done, Committed), done
        self.table.refresh()
        self.wait()

    def files(self, partitions: list[tuple[Any, ...]], sizes: Any, **stated: Any) -> EntryTable:
        """New data files under the default spec, one for each partition tuple given."""
        specs, spec_id = self.table.refresh().context.specs, self.table.context.metadata.default_spec_id
        rows = len(partitions)
        numbers = self.rng.integers(0, 1 << 62, rows)
        location = self.table.context.metadata.location
        tuples = dict(zip(specs.columns(spec_id), zip(*partitions, strict=True), strict=False))
        columns = {
            "manifest": -1,
            "row": -1,
            "status": int(Status.ADDED),
            "content": int(Content.DATA),
            "file_path": [f"{location}/data/{n:016x}.parquet" for n in numbers.tolist()],
            "file_format": ["PARQUET"] * rows,
            "spec_id": spec_id,
            "record_count": (np.asarray(sizes) // 90 + 1).astype(np.int64),
            "file_size_in_bytes": np.asarray(sizes, np.int64),
            **{name: pa.array(values, specs_type(specs, name)) for name, values in tuples.items()},
        }
        return EntryTable.from_columns({**columns, **stated}, specs, rows, DETAIL.names)

    def append(self, partitions: list[tuple[Any, ...]], mean: float, branch: str = "main") -> EntryTable:
        """Add files of about a size."""
        made = self.files(partitions, self.rng.lognormal(np.log(mean), 0.8, len(partitions)))
        self.commit(Append(made, fast=True), branch)
        return made

    def delete(self, of: EntryTable, share: float) -> None:
        """Delete a share of the rows of some files: by position deletes, or by vectors where the version has them."""
        rows = np.maximum((of.numpy("record_count") * share).astype(np.int64), 1)
        names = of["file_path"].to_pylist()
        is_vector = self.table.context.metadata.format_version >= 3
        columns: dict[str, Any] = {
            "content": int(Content.POSITION_DELETES),
            "file_path": [n.replace(".parquet", "-deletes.puffin" if is_vector else "-deletes.parquet") for n in names],
            "file_format": ["PUFFIN" if is_vector else "PARQUET"] * len(names),
            "record_count": rows,
            "file_size_in_bytes": rows * 8 + 300,
            "referenced_data_file": names,
        }
        if is_vector:
            columns |= {"content_offset": [4] * len(names), "content_size_in_bytes": rows}
        self.commit(RowDelta(added_deletes=of.with_columns(**columns)))

    def delete_by_value(self, of: EntryTable) -> None:
        """Delete rows by their id, in the partition of a file."""
        path = of["file_path"][0].as_py().replace(".parquet", "-by-value.parquet")
        changed = {"content": int(Content.EQUALITY_DELETES), "file_path": [path], "record_count": [7]}
        self.commit(RowDelta(added_deletes=of.take([0]).with_columns(**changed, equality_ids=[[1]])))


def specs_type(specs: Any, column: str) -> pa.DataType:
    return next(u.arrow_type for u in specs.union if u.column == column)


def old_table(folder: Path, version: int = 2) -> neve.Table:
    """A table as people have them: by day at first, then by region too, then by bucket; changed and deleted from."""
    stage = Stage.create(folder, version)
    by_day = [
        stage.append([(START_DAY + d,) for d in range(at, at + 10) for _ in range(8)], 3e6) for at in range(0, 60, 10)
    ]
    with stage.table.evolve_schema() as change:
        change.rename_column("amount", "price")
        change.add_column("note", StringType())
    stage.delete(by_day[0].take(range(40)), 0.35)
    stage.delete(by_day[3].take(range(25)), 0.04)
    stage.table.create_tag("before the move")
    stage.table.evolve_partitions(add=["region"])
    regions = ("eu", "us", "apac", None)
    for at in range(60, 90, 10):
        made = stage.append([(START_DAY + d, r) for d in range(at, at + 10) for r in regions for _ in range(3)], 4e7)
    stage.table.create_branch("audit")
    if version == 2:
        stage.delete_by_value(made)
    stage.delete(made.take(range(12)), 0.15)
    with stage.table.evolve_schema() as change:
        change.delete_column("note")
    stage.table.evolve_partitions(add=["bucket(16, id)"], drop=["days(ts)", "region"])
    stage.wait(20)
    stage.append([(b,) for b in range(16)], 5.4e8)
    return stage.table


def large_table(folder: Path, files: int = 100_000) -> neve.Table:
    """A table of many files in three specs, a fifth of which have deletes."""
    stage = Stage.create(folder)
    by_day = stage.append([(START_DAY + n % 700,) for n in range(files * 4 // 10)], 6e6)
    stage.delete(by_day.take(range(files // 5)), 0.2)
    stage.table.evolve_partitions(add=["region"])
    stage.append([(START_DAY + n % 365, f"r{n % 41:02d}") for n in range(files // 2)], 3e7)
    stage.table.evolve_partitions(add=["bucket(64, id)"], drop=["days(ts)", "region"])
    stage.append([(n % 64,) for n in range(files - files * 4 // 10 - files // 2)], 2e8)
    return stage.table


HOSTILE = (
    "<script>hacked = 1</script>",
    '"><img src=x onerror="hacked = 1">',
    "' onmouseover='hacked = 1",
    "]]></title></style></script><svg onload=hacked=1>",
    "\u202egnp exe \u2066 \u200f",
    "nul \x00 bell \x07 esc \x1b[31m",
    "\ud7ff \ufeff \u2028 \u2029 {{7*7}} ${7*7} `x`",
    "long " + "x" * 5000,
    "שלום عالم",
)


def hostile_table(folder: Path) -> neve.Table:
    """A table whose names and values mean harm, wherever others may choose them."""
    stage = Stage.create(folder, 2, ("shop", '"><img src=x onerror=hacked=1>'), "id bigint, region string", ["region"])
    with stage.table.evolve_schema() as change:
        for number, text in enumerate(HOSTILE):
            change.add_column((f"{text} {number}",), StringType(), doc=text)
    made = stage.append([(text,) for text in HOSTILE], 1e6)
    stage.delete(made.take([0, 1]), 0.5)
    with stage.table.evolve_schema() as change:
        change.rename_column("region", HOSTILE[0])
        change.delete_column((f"{HOSTILE[1]} 1",))
    for text in HOSTILE[:4]:
        stage.table.create_branch(text)
        stage.table.create_tag(f"{text} tag")
    stage.table.set_properties(**{text: text for text in HOSTILE})
    stage.table.evolve_partitions(rename={"region": HOSTILE[3]})
    stage.commit(Append(stage.files([(text,) for text in HOSTILE], [1000] * len(HOSTILE)), fast=True))
    return stage.table
