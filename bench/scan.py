"""Scans against Spark's own reader in the same run: a full scan, one with deletion vectors, one of many files.

    make bench-scan                          (NEVE_BENCH_ROWS=4000000 make bench-scan for smaller tables)

Prints CPU seconds of driver, JVM and Python workers, and ratios to `spark.read.parquet` on the same files. Cases are
interleaved; a ratio is the median over the rounds. Ends with an error when a target is missed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import neve
from bench.cpu import Ledger, ratio, run_interleaved
from neve.commit.actions import Append, RowDelta
from neve.commit.protocol import commit
from neve.io.deletion_vectors import PositionSet
from neve.io.puffin import pack_vectors
from neve.run.spark.session import local_session
from neve.table import Table
from neve.tree.entries import Content, EntryTable, Status

ROWS = int(os.environ.get("NEVE_BENCH_ROWS", "16000000"))
MANY = int(os.environ.get("NEVE_BENCH_FILES", "10000"))
PER_FILE = 1_000_000
DELETED = 0.01
MIN_CHEAPER = 20
ROUNDS, WARM = 5, 2

DDL = "id bigint, part int, price double, flag string, day date, note string"


def rows(table: Table, start: int, count: int, rng: np.random.Generator) -> pa.Table:
    """Return rows with a key, numbers, and strings with few and many distinct values."""
    notes = pa.array([f"note {i:07d} {'x' * (i % 23)}" for i in range(100_000)])
    columns = [
        pa.array(np.arange(start, start + count)),
        pa.array(rng.integers(0, 2_000_000, count, dtype=np.int32)),
        pa.array(np.round(rng.random(count) * 100_000, 2)),
        pa.array(["A", "N", "R"]).take(pa.array(rng.integers(0, 3, count))),
        pa.array(rng.integers(18_000, 20_000, count, dtype=np.int32)).cast(pa.date32()),
        notes.take(pa.array(rng.integers(0, len(notes), count))),
    ]
    return pa.Table.from_arrays(columns, schema=schema_to_pyarrow(table.schema))


def register(table: Table, paths: list[Path], counts: list[int]) -> None:
    """Add data files that were written outside the table."""
    columns = {
        "status": int(Status.ADDED),
        "content": int(Content.DATA),
        "file_path": [p.as_uri() for p in paths],
        "file_format": "PARQUET",
        "spec_id": 0,
        "record_count": counts,
        "file_size_in_bytes": [p.stat().st_size for p in paths],
        "manifest": -1,
        "row": -1,
    }
    entries = EntryTable.from_columns(columns, table.context.specs, len(paths))
    outcome = commit(table.context.catalog, table.iceberg, Append(entries))
    assert isinstance(outcome, neve.Committed), outcome


def few_large(lake: neve.Lake, folder: Path) -> Table:
    table = lake.create_table("bench.few", DDL, format_version=3)
    rng = np.random.default_rng(7)
    counts = [min(PER_FILE, ROWS - start) for start in range(0, ROWS, PER_FILE)]
    paths = [folder / f"few-{i:04d}.parquet" for i in range(len(counts))]
    for i, (path, count) in enumerate(zip(paths, counts, strict=True)):
        pq.write_table(rows(table, i * PER_FILE, count, rng), path, compression="zstd", row_group_size=250_000)
    register(table, paths, counts)
    return table


def many_small(lake: neve.Lake, folder: Path) -> Table:
    table = lake.create_table("bench.many", DDL, format_version=3)
    one = folder / "many-00000.parquet"
    pq.write_table(rows(table, 0, 10, np.random.default_rng(7)), one)
    paths = [folder / f"many-{i:05d}.parquet" for i in range(MANY)]
    data = one.read_bytes()
    for path in paths:
        path.write_bytes(data)
    register(table, paths, [10] * MANY)
    return table


def delete_some(table: Table, folder: Path) -> None:
    """Delete one row in a hundred with a vector for every data file."""
    files, rng = table.scan().plan().files, np.random.default_rng(11)
    paths, counts = files["file_path"].to_pylist(), files["record_count"].to_pylist()
    vectors = [PositionSet.of(np.sort(rng.choice(c, int(c * DELETED), replace=False))) for c in counts]
    data, placed = pack_vectors(zip(paths, vectors, strict=True))
    puffin = folder / "vectors.puffin"
    puffin.write_bytes(data)
    columns = {
        **{name: placed[name] for name in placed.column_names},
        "status": int(Status.ADDED),
        "content": int(Content.POSITION_DELETES),
        "file_path": puffin.as_uri(),
        "file_format": "PUFFIN",
        "spec_id": 0,
        "file_size_in_bytes": len(data),
        "manifest": -1,
        "row": -1,
    }
    entries = EntryTable.from_columns(columns, table.context.specs, len(paths))
    outcome = commit(table.context.catalog, table.iceberg, RowDelta(added_deletes=entries))
    assert isinstance(outcome, neve.Committed), outcome


def answer(found: DataFrame) -> tuple[object, ...]:
    """Return a checksum of a full scan of three columns."""
    return tuple(found.agg(F.count("*"), F.sum("price"), F.sum(F.length("note"))).collect()[0])


def bench_full_scans(spark: SparkSession, ledger: Ledger, lake: neve.Lake, folder: Path) -> list[bool]:
    table = few_large(lake, folder)
    clean = table.scan()
    paths = clean.plan().files["file_path"].to_pylist()
    delete_some(table, folder)
    table.refresh()
    counts = [answer(found)[0] for found in (spark.read.parquet(*paths), clean.to_spark(), table.scan().to_spark())]
    print(f"rows: spark.read.parquet {counts[0]}, table {counts[1]}, with vectors {counts[2]}")
    cases = {
        "spark.read.parquet": lambda: answer(spark.read.parquet(*paths)),
        "full scan": lambda: answer(clean.to_spark()),
        "full scan, 1% deleted by vectors": lambda: answer(table.scan().to_spark()),
    }
    spent = run_interleaved(ledger, cases, ROUNDS, WARM)
    for name in cases:
        print(f"  {name:40s} {median(spent[name]):7.2f} CPU s  {[round(s, 2) for s in spent[name]]}")
    limits = {"full scan": 1.1, "full scan, 1% deleted by vectors": 1.35}
    right = counts[1] == counts[0] and counts[2] == counts[0] - int(PER_FILE * DELETED) * (counts[0] // PER_FILE)
    return [right, *(verdict(name, ratio(spent, name, "spark.read.parquet"), most) for name, most in limits.items())]


def bench_many_files(spark: SparkSession, ledger: Ledger, lake: neve.Lake, folder: Path) -> list[bool]:
    """Spark's default starts a task per path and takes a minute: once is enough. Ours goes first, when less is warm."""
    table = many_small(lake, folder)
    paths = table.scan().plan().files["file_path"].to_pylist()
    cases = {
        "DataFrame of many files": lambda: table.scan().to_spark(),
        "spark.read.parquet of their paths": lambda: spark.read.parquet(*paths),
    }
    spent = run_interleaved(ledger, cases, rounds=1, warm=0)
    for name in cases:
        print(f"  {name:40s} {median(spent[name]):7.2f} CPU s")
    cheaper = ratio(spent, "spark.read.parquet of their paths", "DataFrame of many files")
    word = "PASS" if cheaper >= MIN_CHEAPER else "FAIL"
    result = f"{cheaper:.1f} times cheaper than spark.read.parquet (at least {MIN_CHEAPER})"
    print(f"{word}  DataFrame of {len(paths)} files: {result}")
    return [cheaper >= MIN_CHEAPER]


def verdict(name: str, found: float, most: float) -> bool:
    print(f"{'PASS' if found <= most else 'FAIL'}  {name}: {found:.2f} times spark.read.parquet (at most {most})")
    return found <= most


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = local_session("local[2]", {"spark.driver.memory": "4g", "spark.local.dir": str(folder / "local")})
        ledger, lake = Ledger().start(), neve.connect(folder / "lake", spark=spark)
        passed = bench_full_scans(spark, ledger, lake, folder) + bench_many_files(spark, ledger, lake, folder)
        spark.stop()
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
