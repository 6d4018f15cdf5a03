"""PyIceberg: appends, scans, deletes by copy, planning and commits; it has no UPDATE, and no compaction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, In, LessThan
from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.table import StaticTable
from pyiceberg.transforms import BucketTransform, YearTransform

from bench.comparison.engine import Job
from bench.comparison.inputs import PARTS, Inputs, Lines
from bench.comparison.neve_engine import ONE_ROW
from bench.comparison.readers import arrow_checksum, metadata_location
from bench.comparison.statements import LINE_SUMS
from bench.lineitem import DDL
from neve.model.ddl import schema_of_ddl

LINE_SCHEMA = schema_of_ddl(DDL)
LINE_TYPES = LINE_SCHEMA.as_arrow()
TAX = EqualTo("l_tax", "0.07")
YEAR = And(GreaterThanOrEqual("l_shipdate", "1994-01-01"), LessThan("l_shipdate", "1995-01-01"))
PLANNED = And(EqualTo("region", "r07"), LessThan("id", 500))


class IcebergTables:
    """Lineitem tables in a SQLite catalog of PyIceberg."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.catalog = SqlCatalog("peer", uri=f"sqlite:///{home}/catalog.db", warehouse=home.as_uri())
        self.catalog.create_namespace("bench")

    def load(self, name: str) -> Any:
        return self.catalog.load_table(f"bench.{name}")

    def create(self, name: str) -> Any:
        return self.catalog.create_table(f"bench.{name}", LINE_SCHEMA)

    def create_again(self, name: str, by_year: bool = False) -> None:
        self.drop(name)
        table = self.create(name)
        if by_year:
            with table.update_spec() as change:
                change.add_field("l_shipdate", YearTransform(), "l_shipdate_year")

    def drop(self, name: str) -> None:
        if self.catalog.table_exists(f"bench.{name}"):
            self.catalog.purge_table(f"bench.{name}")

    def content(self, name: str, where: Any = None) -> str:
        filters = {} if where is None else {"row_filter": where}
        return arrow_checksum(self.load(name).scan(selected_fields=LINE_SUMS, **filters).to_arrow())

    def close(self) -> None:
        self.catalog.engine.dispose()


class PyIceberg:
    """PyIceberg with its SQLite catalog."""

    name = f"PyIceberg {version('pyiceberg')}"

    def __init__(self, inputs: Inputs) -> None:
        self.tables = IcebergTables(inputs.folder / "pyiceberg")

    def jobs(self, inputs: Inputs) -> dict[str, Job]:
        return _Work(self.tables, inputs).jobs()

    def spark_jobs(self) -> None:
        return None

    def stop(self) -> None:
        self.tables.close()


class _Work:
    """The tables of one size."""

    def __init__(self, tables: IcebergTables, inputs: Inputs) -> None:
        self.tables, self.inputs = tables, inputs
        self.whole, self.third = f"lineitem_{inputs.name}", f"third_{inputs.name}"
        self.held: pa.Table | None = None
        self.starts: dict[str, int] = {}

    def jobs(self) -> dict[str, Job]:
        keys = In("l_orderkey", self.inputs.third.keys)
        content = self.tables.content
        return {
            "append": Job(self.make_whole, lambda: self.drop(self.whole), lambda: content(self.whole)),
            "Arrow append": self.arrow_append("arrow"),
            "Arrow append by year": self.arrow_append("arrow_by_year"),
            "scan": self.scan(self.read),
            "scan of a year": self.scan(lambda scan: self.read(scan.filter(YEAR)), YEAR),
            "to_arrow": self.scan(lambda scan: scan.to_arrow().num_rows),
            "scan with deletes": Job(
                lambda: self.read(self.table_of_neve().scan()),
                answer=lambda: arrow_checksum(self.table_of_neve().scan(selected_fields=LINE_SUMS).to_arrow()),
            ),
            "DELETE CoW": self.delete(TAX),
            "DELETE by key CoW": self.delete(keys),
            **self.metadata_jobs(),
        }

    def metadata_jobs(self) -> dict[str, Job]:
        jobs = {}
        for files in self.inputs.growth:
            ready = partial(self.register, files)
            jobs[f"plan {files} files"] = Job(partial(self.planned_files, files), ready)
            jobs[f"commit to {files} files"] = Job(partial(self.commit_one_row, files), ready)
        return jobs

    def scan(self, read: Callable[[Any], int], where: Any = None) -> Job:
        return Job(
            lambda: read(self.tables.load(self.whole).scan()),
            lambda: self.restore(self.whole, self.make_whole),
            lambda: self.tables.content(self.whole, where),
        )

    def delete(self, where: Any) -> Job:
        return Job(
            lambda: self.tables.load(self.third).delete(where),
            lambda: self.restore(self.third, lambda: self.make_evolved(self.third, self.inputs.third)),
            lambda: self.tables.content(self.third),
        )

    def arrow_append(self, table: str) -> Job:
        name = f"{table}_{self.inputs.name}"

        def ready() -> None:
            self.tables.create_again(name, by_year=table.endswith("year"))
            self.held = self.rows(self.inputs.third, *range(PARTS))

        def append() -> None:
            rows, self.held = self.held, None
            self.tables.load(name).append(rows)

        return Job(append, ready, lambda: self.tables.content(name))

    # -- tables ------------------------------------------------------------------------------------------------------

    def make_whole(self) -> None:
        self.make_evolved(self.whole, self.inputs.whole)

    def make_evolved(self, name: str, lines: Lines) -> None:
        """Write the parts of the rows under three specs."""
        table = self.tables.create(name)
        with table.update_spec() as change:
            change.add_identity("l_returnflag")
        table.append(self.rows(lines, 0))
        with table.update_spec() as change:
            change.remove_field("l_returnflag")
            change.add_field("l_shipdate", YearTransform(), "l_shipdate_year")
        table.append(self.rows(lines, 1))
        with table.update_spec() as change:
            change.add_field("l_orderkey", BucketTransform(4), "l_orderkey_bucket_4")
        table.append(self.rows(lines, 2))

    def drop(self, name: str) -> None:
        self.starts.pop(name, None)
        self.tables.drop(name)

    def restore(self, name: str, make: Callable[[], None]) -> None:
        """Bring a table back to the rows it was made with; make it if it does not exist."""
        if not self.tables.catalog.table_exists(f"bench.{name}"):
            make()
        table = self.tables.load(name)
        current = table.metadata.current_snapshot_id
        start = self.starts.setdefault(name, current)
        if start != current:
            table.manage_snapshots().rollback_to_snapshot(start).commit()

    def rows(self, lines: Lines, *parts: int) -> pa.Table:
        return lines.arrow(*parts).cast(LINE_TYPES)

    def read(self, scan: Any) -> int:
        return sum(batch.num_rows for batch in scan.to_arrow_batch_reader())

    def table_of_neve(self) -> Any:
        return StaticTable.from_metadata(metadata_location(self.inputs))

    def register(self, files: int) -> None:
        """Add a table of many files to the catalog, if it is not there."""
        name = f"bench.many_{files}"
        if not self.tables.catalog.table_exists(name):
            self.tables.catalog.register_table(name, (self.inputs.table_of(files) / "metadata.txt").read_text())

    def planned_files(self, files: int) -> int:
        clear_manifest_cache()
        return len(list(self.tables.load(f"many_{files}").scan(PLANNED).plan_files()))

    def commit_one_row(self, files: int) -> None:
        table = self.tables.load(f"many_{files}")
        table.append(ONE_ROW.cast(table.schema().select("id", "region").as_arrow()))
