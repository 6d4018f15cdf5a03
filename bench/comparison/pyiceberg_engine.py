"""PyIceberg: appends, scans, deletes by copy, planning and commits; it has no UPDATE, and no compaction."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.transforms import BucketTransform, YearTransform

from bench.comparison.engine import Job
from bench.comparison.inputs import Inputs
from bench.comparison.neve_engine import ONE_ROW
from bench.lineitem import DDL
from neve.model.ddl import schema_of_ddl

YEAR = And(GreaterThanOrEqual("l_shipdate", "1994-01-01"), LessThan("l_shipdate", "1995-01-01"))
PLANNED = And(EqualTo("region", "r07"), LessThan("id", 500))


class PyIceberg:
    """PyIceberg with its SQLite catalog."""

    name = f"PyIceberg {version('pyiceberg')}"

    def __init__(self, inputs: Inputs) -> None:
        home = inputs.folder / "pyiceberg"
        home.mkdir()
        self.catalog = SqlCatalog("peer", uri=f"sqlite:///{home}/catalog.db", warehouse=home.as_uri())
        self.catalog.create_namespace("bench")

    def jobs(self, inputs: Inputs) -> dict[str, Job]:
        on = _Work(self.catalog, inputs)
        return {
            "append": Job(on.append, answer=on.content),
            "scan": Job(lambda: on.read(on.table.scan())),
            "scan of a year": Job(lambda: on.read(on.table.scan(YEAR))),
            "DELETE CoW": Job(lambda: on.table.delete(EqualTo("l_tax", "0.07")), answer=on.content),
            **{f"plan {n} files": Job(lambda n=n: on.planned_files(n)) for n in inputs.growth},
            **{
                f"commit to {n} files": Job(lambda n=n: on.table_of_many_files(n).append(on.row(n)))
                for n in inputs.growth
            },
        }

    def stop(self) -> None:
        self.catalog.engine.dispose()


class _Work:
    """The tables of one size."""

    def __init__(self, catalog: SqlCatalog, inputs: Inputs) -> None:
        self.catalog, self.inputs = catalog, inputs

    @property
    def table(self) -> Any:
        return self.catalog.load_table(f"bench.lineitem_{self.inputs.name}")

    def append(self) -> None:
        schema = schema_of_ddl(DDL)
        table = self.catalog.create_table(f"bench.lineitem_{self.inputs.name}", schema)
        with table.update_spec() as change:
            change.add_identity("l_returnflag")
        table.append(self.rows(0, table))
        with table.update_spec() as change:
            change.remove_field("l_returnflag")
            change.add_field("l_shipdate", YearTransform(), "l_shipdate_year")
        table.append(self.rows(1, table))
        with table.update_spec() as change:
            change.add_field("l_orderkey", BucketTransform(4), "l_orderkey_bucket_4")
        table.append(self.rows(2, table))

    def rows(self, part: int, table: Any) -> Any:
        return self.inputs.arrow(self.inputs.part(part)).cast(table.schema().as_arrow())

    def read(self, scan: Any) -> int:
        return sum(batch.num_rows for batch in scan.to_arrow_batch_reader())

    def content(self) -> str:
        found = self.table.scan(selected_fields=("l_extendedprice", "l_orderkey")).to_arrow()
        prices, keys = (pc.sum(found[name]) for name in ("l_extendedprice", "l_orderkey"))
        return f"{found.num_rows} rows, prices of {prices}, keys of {keys}"

    def table_of_many_files(self, files: int) -> Any:
        name = f"bench.many_{files}"
        if not self.catalog.table_exists(name):
            self.catalog.register_table(name, (self.inputs.table_of(files) / "metadata.txt").read_text())
        return self.catalog.load_table(name)

    def planned_files(self, files: int) -> int:
        clear_manifest_cache()
        return len(list(self.table_of_many_files(files).scan(PLANNED).plan_files()))

    def row(self, files: int) -> Any:
        return ONE_ROW.cast(self.table_of_many_files(files).schema().select("id", "region").as_arrow())
