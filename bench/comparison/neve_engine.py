"""Névé."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

import neve
from bench.comparison.engine import Job
from bench.comparison.inputs import ONE_IN_A_HUNDRED, ONE_YEAR, PLANNED, Inputs
from bench.comparison.jobs import MODES
from bench.comparison.sparks import SETTINGS, content, in_parts, read_and_discard
from bench.lineitem import DDL
from neve.run.spark.session import local_session
from neve.table import Table

ONE_ROW = pa.table({"id": pa.array([1], pa.int64()), "region": ["r01"]})


class Neve:
    """Névé on plain Spark, without a jar."""

    name = "Névé"

    def __init__(self, inputs: Inputs) -> None:
        self.spark = local_session("local[2]", SETTINGS)
        self.lake = neve.connect(inputs.lake, spark=self.spark)

    def jobs(self, inputs: Inputs) -> dict[str, Job]:
        on = _Work(self, inputs)
        changes = {
            f"{verb} {short}": Job(lambda v=verb, m=mode: on.change(v, m), on.restore_table, on.content)  # type: ignore[misc]
            for short, mode in MODES.items()
            for verb in ("UPDATE", "DELETE", "MERGE")
        }
        return {
            "append": Job(on.append, answer=on.content),
            "scan": Job(lambda: read_and_discard(on.table.to_spark())),
            "scan of a year": Job(lambda: read_and_discard(on.table.scan(ONE_YEAR).to_spark())),
            **changes,
            "compaction": Job(on.compact, on.make_small_files, lambda: content(on.small.to_spark())),
            "spec upgrade": Job(on.upgrade, on.restore_table, on.content),
            **{
                f"plan {n} files": Job(lambda n=n: len(on.table_of_many_files(n).scan(PLANNED).plan().files))
                for n in inputs.growth
            },
            **{
                f"commit to {n} files": Job(lambda n=n: on.table_of_many_files(n).append(ONE_ROW))
                for n in inputs.growth
            },
        }

    def stop(self) -> None:
        self.spark.stop()


class _Work:
    """The tables of one size."""

    def __init__(self, engine: Neve, inputs: Inputs) -> None:
        self.engine, self.inputs = engine, inputs
        self.start: int | None = None

    @property
    def table(self) -> Table:
        return self.engine.lake.table(f"bench.neve_{self.inputs.name}")

    def rows(self, part: int) -> Any:
        return self.engine.spark.read.parquet(self.inputs.part(part))

    def append(self) -> None:
        name = f"bench.neve_{self.inputs.name}"
        table = self.engine.lake.create_table(name, DDL, ["l_returnflag"], format_version=2)
        table.append(self.rows(0))
        table.evolve_partitions(add=["years(l_shipdate)"], drop=["l_returnflag"])
        table.append(self.rows(1))
        table.evolve_partitions(add=["bucket(4, l_orderkey)"])
        table.append(self.rows(2))
        self.start = table.refresh().context.metadata.current_snapshot_id
        self.write_location_for_readers(table)

    def write_location_for_readers(self, table: Table) -> None:
        """Write the location of the table for engines that only read."""
        locations = {"metadata": table.context.iceberg.metadata_location, "location": table.context.metadata.location}
        (self.inputs.lake / f"{self.inputs.name}.json").write_text(json.dumps(locations))

    def content(self) -> str:
        return content(self.table.to_spark())

    def upgrade(self) -> Any:
        return self.table.rewrite_data_files().upgrade_spec().execute().summary

    def restore_table(self) -> None:
        if self.table.context.metadata.current_snapshot_id != self.start and self.start is not None:
            self.table.rollback(self.start)

    def change(self, verb: str, mode: str) -> Any:
        match verb:
            case "UPDATE":
                change: Any = self.table.update().set("l_extendedprice", "l_extendedprice + 1").where(ONE_IN_A_HUNDRED)
            case "DELETE":
                change = self.table.delete().where(ONE_IN_A_HUNDRED)
            case _:
                source = self.engine.spark.read.parquet(self.inputs.changes)
                on = "t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber"
                change = self.table.merge(source, on).when_matched_update({"l_extendedprice": "s.price"})
        return change.mode(mode).execute().summary

    def make_small_files(self) -> None:
        properties = {"write.distribution-mode": "none"}
        self.small = self.engine.lake.create_table(
            f"bench.neve_small_{self.inputs.name}", DDL, format_version=2, properties=properties
        )
        self.small.append(in_parts(self.rows(0), self.inputs.small_files))

    def compact(self) -> Any:
        return self.small.rewrite_data_files().option("rewrite-all", "true").execute().summary

    def table_of_many_files(self, files: int) -> Table:
        name = f"bench.neve_{files}"
        known = name in self.engine.lake.tables()
        location = (self.inputs.table_of(files) / "metadata.txt").read_text()
        return self.engine.lake.table(name) if known else self.engine.lake.register_table(name, location)
