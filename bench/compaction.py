"""Compaction against PyIceberg's planning and against Spark's own reading and writing, in the same run.

    make bench-compaction                    (NEVE_BENCH_FILES, NEVE_BENCH_ROWS for smaller tables)

Planning: a million files of three specs, with a filter, against PyIceberg's `plan_files` alone. Running: a TPC-H-like
lineitem in small files is compacted, bare and with one row in a hundred deleted by vectors, and moved to another spec;
Spark reads the same files and writes them, at the same compression. Prints CPU seconds of driver, JVM and Python
workers, and ratios. Cases are interleaved; a ratio is the median over the rounds. Ends with an error when a target is
missed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

import neve
from bench.cpu import Ledger, ratio, run_interleaved
from bench.dml import DDL, lineitem
from bench.metadata import FILES, WHERE, cpu_of, table_with_usual_manifests
from neve.io.avro.jit import load_compiled
from neve.ops.results import RewriteResult
from neve.predicate import parse
from neve.run.spark.session import local_session
from neve.table import Table

ROWS = int(os.environ.get("NEVE_BENCH_ROWS", "4000000"))
SMALL_FILES = 64
ROUNDS, WARM = int(os.environ.get("NEVE_BENCH_ROUNDS", "3")), 1
LEVEL = "3"  # of zstd, for both
TARGET = 64 << 20
MAX_UPGRADE = 0.4  # of the CPU of Spark's repartition


def bench_planning(folder: Path) -> bool:
    location = table_with_usual_manifests(folder, FILES)
    table = neve.connect(folder / "lake").register_table("bench.many", location)
    peer = StaticTable.from_metadata(location)
    where = parse(WHERE, table.schema).expression

    def ours() -> int:
        return table.rewrite_data_files().where(WHERE).plan_with_stats().plan.files

    def theirs() -> int:
        clear_manifest_cache()
        return len(list(peer.scan(row_filter=where).plan_files()))

    load_compiled()
    ours()
    mine = [cpu_of(ours) for _ in range(3)]
    peers, found = cpu_of(theirs)
    least = median(s for s, _ in mine)
    print(f"plan over {FILES} files of 3 specs: {mine[0][1]} of {found} files that match are rewritten")
    print(f"  PyIceberg plan_files {peers:8.2f} CPU s; Névé {least:8.2f} CPU s")
    return verdict("planning", "times less CPU than PyIceberg's plan_files", peers / least, 15)


class Bench:
    """A table of many small files, restored before every case."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.lake = neve.connect(folder / "lake", spark=spark)
        self.plain = self.table("plain")
        self.deleted = self.table("deleted")
        self.deleted.delete().where("l_partkey % 100 = 7").mode("merge-on-read").execute()
        self.moved = self.table("moved")
        self.moved.evolve_partitions(add=["l_shipmode"])
        self.start = {t.name: self.head(t) for t in (self.plain, self.deleted, self.moved)}

    def table(self, name: str) -> Table:
        properties = {"write.parquet.compression-level": LEVEL, "write.distribution-mode": "none"}
        table = self.lake.create_table(f"bench.{name}", DDL, format_version=3, properties=properties)
        table.append(lineitem(self.spark, ROWS).repartition(SMALL_FILES))
        return table

    @staticmethod
    def head(table: Table) -> int | None:
        return table.context.refreshed().metadata.current_snapshot_id

    def paths(self, table: Table) -> list[str]:
        return list(table.scan().plan().files["file_path"].to_pylist())

    def rewrite(self, table: Table) -> RewriteResult:
        options = {"rewrite-all": True, "target-file-size-bytes": TARGET}
        result = table.rewrite_data_files().options(options).execute()
        if os.environ.get("NEVE_BENCH_VERBOSE"):
            print(f"    {table.name}: {result.summary}, {result.seconds} s")
        return result

    def on_restored_table(self, table: Table) -> Callable[[], object]:
        """Return a function that compacts the restored table."""

        def run() -> object:
            if self.head(table) != self.start[table.name]:
                table.rollback(self.start[table.name])
            return self.rewrite(table.refresh())

        return run

    def bare_spark(self, table: Table, by: str | None = None) -> Callable[[], None]:
        """Return a function that rewrites the files with Spark: as many as the compaction, or by partition."""
        paths = self.paths(table)
        size = sum(table.scan().plan().files["file_size_in_bytes"].to_pylist())

        def run() -> None:
            path = str(self.folder / "bare")
            shutil.rmtree(path, ignore_errors=True)
            rows = self.spark.read.parquet(*paths)
            rows = rows.coalesce(max(size // TARGET, 1)) if by is None else rows.repartition(by)
            writer = rows.write.option("compression", "zstd").option("parquet.compression.codec.zstd.level", LEVEL)
            (writer if by is None else writer.partitionBy(by)).parquet(path)

        return run


def bench_running(folder: Path) -> list[bool]:
    spark = local_session("local[2]", {"spark.driver.memory": "4g", "spark.local.dir": str(folder / "local")})
    bench, ledger = Bench(spark, folder), Ledger().start()
    cases: dict[str, Callable[[], object]] = {
        "Spark: read and write": bench.bare_spark(bench.plain),
        "bin-pack": bench.on_restored_table(bench.plain),
        "bin-pack with vectors": bench.on_restored_table(bench.deleted),
        "Spark: repartition and write": bench.bare_spark(bench.moved, "l_shipmode"),
        "spec upgrade": bench.on_restored_table(bench.moved),
    }
    spent = run_interleaved(ledger, cases, ROUNDS, WARM)
    for name in cases:
        print(f"  {name:32s} {median(spent[name]):7.2f} CPU s  {[round(s, 2) for s in spent[name]]}")
    spark.stop()
    faster = {case: 1 / ratio(spent, case, "Spark: read and write") for case in ("bin-pack", "bin-pack with vectors")}
    upgrade = ratio(spent, "spec upgrade", "Spark: repartition and write")
    holds = upgrade <= MAX_UPGRADE
    print(
        f"{'PASS' if holds else 'FAIL'}  spec upgrade: {upgrade:.2f} times Spark's repartition (at most {MAX_UPGRADE})"
    )
    return [
        verdict("bin-pack", "times the throughput of Spark's read and write", faster["bin-pack"], 2.4),
        verdict("bin-pack with vectors", "times the same", faster["bin-pack with vectors"], 2.3),
        holds,
    ]


def verdict(case: str, what: str, found: float, least: float) -> bool:
    print(f"{'PASS' if found >= least else 'FAIL'}  {case}: {found:.2f} {what} (at least {least})")
    return found >= least


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        wanted = sys.argv[1:] or ["planning", "running"]
        good = []
        if "planning" in wanted:
            (Path(name) / "many").mkdir()
            good.append(bench_planning(Path(name) / "many"))
        if "running" in wanted:
            good += bench_running(Path(name))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
