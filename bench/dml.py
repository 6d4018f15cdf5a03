"""UPDATE, DELETE and MERGE compared with Spark's own cost for the same files, in the same run.

    make bench-dml                           (NEVE_BENCH_ROWS=2000000 make bench-dml for a smaller table)

A TPC-H-like lineitem of 10 million rows; every statement changes one row in a hundred, scattered over all files, with
planning and commit. Prints CPU seconds of driver, JVM and Python workers, and ratios: merge-on-read to Spark's scan of
all columns without output, copy-on-write to Spark's read and write of the same files, MERGE to the bare join. Cases are
interleaved; a ratio is the median over the rounds. Then a MERGE of a tenth of the keys under a driver of less than
2 GiB. Ends with an error when a target is missed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import neve
from bench.cpu import Ledger, ratio, run_interleaved
from bench.lineitem import DDL, lineitem
from neve.ops.results import ChangeResult
from neve.run.spark.session import local_session
from neve.table import Table

ROWS = int(os.environ.get("NEVE_BENCH_ROWS", "10000000"))
ROUNDS, WARM = int(os.environ.get("NEVE_BENCH_ROUNDS", "3")), 1  # of statements that rewrite everything
SHORT_ROUNDS, SHORT_WARM = 2 * ROUNDS + 1, 2  # of the others, where the noise of the machine weighs more
DRIVER_MIB = 2048
SCATTERED = "l_orderkey % 100 = 7"


def read_and_discard(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def changes(spark: SparkSession, folder: Path, share: int) -> DataFrame:
    """Return new prices for the lines of one order in `share`."""
    path = str(folder / f"changes-{share}")
    if not Path(path).exists():
        keys = lineitem(spark, ROWS).where(f"l_orderkey % {share} = 7")
        new = keys.select("l_orderkey", "l_linenumber", (F.col("l_extendedprice") + 1).alias("price"))
        new.coalesce(2).write.parquet(path)
    return spark.read.parquet(path)


class Bench:
    """One table, restored before every case."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        lake = neve.connect(folder / "lake", spark=spark)
        self.table: Table = lake.create_table("bench.lineitem", DDL, format_version=3)
        self.table.append(lineitem(spark, ROWS))
        files = self.table.scan().plan().files
        self.paths = files["file_path"].to_pylist()
        self.start = self.table.context.refreshed().metadata.current_snapshot_id
        size = sum(files["file_size_in_bytes"].to_pylist())
        print(f"lineitem: {ROWS} rows in {len(self.paths)} files, {size / 2**20:.0f} MiB")

    def on_restored_table(self, statement: Callable[[], object]) -> Callable[[], object]:
        """Return a function that runs the statement on the restored table."""

        def run() -> object:
            if self.table.context.refreshed().metadata.current_snapshot_id != self.start:
                self.table.rollback(self.start)
            self.table.refresh()
            return statement()

        return run

    def read_and_write(self) -> None:
        path = str(self.folder / "copy")
        shutil.rmtree(path, ignore_errors=True)
        self.spark.read.parquet(*self.paths).write.option("compression", "zstd").parquet(path)  # as the table does

    def bare_join(self) -> None:
        keys = ["l_orderkey", "l_linenumber"]
        read_and_discard(self.spark.read.parquet(*self.paths).join(changes(self.spark, self.folder, 100), keys))

    def collect_garbage(self) -> None:
        """Free the memory of the last case."""
        self.spark._jvm.System.gc()  # type: ignore[union-attr]

    def statements(self, mode: str) -> dict[str, Callable[[], object]]:
        verbs = {"UPDATE": self.update, "DELETE": self.delete, "MERGE": self.merge}
        return {f"{name} {mode}": self.on_restored_table(lambda v=verb: v(mode)) for name, verb in verbs.items()}  # type: ignore[misc]

    def update(self, mode: str) -> object:
        new = self.table.update().set("l_extendedprice", "l_extendedprice + 1").set("l_comment", "'changed'")
        return self._print_result(f"UPDATE {mode}", new.where(SCATTERED).mode(mode).execute())

    def delete(self, mode: str) -> object:
        return self._print_result(f"DELETE {mode}", self.table.delete().where(SCATTERED).mode(mode).execute())

    def merge(self, mode: str, share: int = 100) -> object:
        source = changes(self.spark, self.folder, share)
        merge = self.table.merge(source, on="t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber")
        merge = merge.when_matched_update({"l_extendedprice": "s.price"})
        new = {"l_orderkey": "s.l_orderkey", "l_linenumber": "s.l_linenumber", "l_extendedprice": "s.price"}
        return self._print_result(f"MERGE {mode}", merge.when_not_matched_insert(new).mode(mode).execute())

    def _print_result(self, what: str, result: ChangeResult) -> object:
        if os.environ.get("NEVE_BENCH_VERBOSE"):
            print(f"    {what}: {result.summary}; {dict(result.seconds)}")
        return result


def ratios(bench: Bench, ledger: Ledger) -> list[bool]:
    read = bench.spark.read.parquet(*bench.paths)
    short = {
        "Spark: scan of all columns": lambda: read_and_discard(read),
        "Spark: join": bench.bare_join,
        **bench.statements("merge-on-read"),
    }
    long = {"Spark: read and write": bench.read_and_write, **bench.statements("copy-on-write")}
    spent = run_and_print(bench, ledger, short, SHORT_ROUNDS, SHORT_WARM)
    spent |= run_and_print(bench, ledger, long, ROUNDS, WARM)
    limits = (
        ("UPDATE merge-on-read", "Spark: scan of all columns", 0.7),
        ("DELETE merge-on-read", "Spark: scan of all columns", 0.2),
        ("UPDATE copy-on-write", "Spark: read and write", 0.45),
        ("DELETE copy-on-write", "Spark: read and write", 0.45),
        ("MERGE merge-on-read", "Spark: join", 1.25),
    )
    return [verdict(case, to, ratio(spent, case, to), most) for case, to, most in limits]


def run_and_print(
    bench: Bench, ledger: Ledger, cases: dict[str, Callable[[], object]], rounds: int, warm: int
) -> dict[str, list[float]]:
    spent = run_interleaved(ledger, cases, rounds, warm, bench.collect_garbage)
    for name, each in spent.items():
        print(f"  {name:32s} {median(each):7.2f} CPU s  {[round(s, 2) for s in each]}", flush=True)
    return spent


def verdict(case: str, to: str, found: float, most: float) -> bool:
    print(f"{'PASS' if found <= most else 'FAIL'}  {case}: {found:.2f} times {to} (at most {most})")
    return found <= most


def large_merge(bench: Bench) -> bool:
    """Merge a tenth of all keys; print the memory of the JVM, driver and executor in one, and of this process."""
    before = _peak_mib()
    result = bench.on_restored_table(lambda: bench.merge("merge-on-read", 10))()
    peak = _peak_mib()
    print(f"MERGE of {ROWS // 10} keys: {result.summary}")
    fits = peak < DRIVER_MIB
    print(
        f"{'PASS' if fits else 'FAIL'}  driver, with the executor in the same JVM: {peak} MiB at most resident, "
        f"{before} before (under {DRIVER_MIB})"
    )
    return fits and result.rows_updated == ROWS // 10


def _peak_mib() -> int:
    """Return the peak memory of this process and its JVM; Python workers are executors."""
    me = psutil.Process()
    jvms = [p for p in me.children(recursive=True) if "java" in p.name()]
    peaks = [Path(f"/proc/{p.pid}/status").read_text() for p in (me, *jvms)]
    lines = [line for text in peaks for line in text.splitlines() if line.startswith("VmHWM")]
    return sum(int(line.split()[1]) for line in lines) // 1024


def session(folder: Path, memory: str) -> SparkSession:
    return local_session("local[2]", {"spark.driver.memory": memory, "spark.local.dir": str(folder / "local")})


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = session(folder, "1200m" if sys.argv[1:] == ["memory"] else "4g")
        bench = Bench(spark, folder)
        passed = [large_merge(bench)] if sys.argv[1:] == ["memory"] else ratios(bench, Ledger().start())
        spark.stop()
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
