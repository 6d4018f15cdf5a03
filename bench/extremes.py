"""Extreme tables: a history of 10,000 snapshots, rows of 40 kB, conditions of thousands of values.

    python -m bench.extremes [history | wide-rows | conditions]

Each part runs in a process of its own. It prints the CPU seconds and the peak memory of its steps, and ends with an
error if one misses its limit. These limits are seconds and MiB, not ratios: they bound work that has no peer. A step
without a limit is known to be slow.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import psutil
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

import neve
from bench.metadata import verdict
from neve.run.spark.session import local_session

SNAPSHOTS = 10_000
WIDE_ROWS, WIDTH = 70_000, 40_000
VALUES, TERMS = 100_000, 3_000

Lines = list[tuple[str, float, float | None, str]]  # what, how much, the limit if there is one, the unit


def history(folder: Path) -> Lines:
    """Append to a table of many snapshots, and expire them."""
    lake = neve.connect(folder / "lake")
    table = lake.create_table("d.one", "id bigint")
    table.append([{"id": 1}])
    lake.register_table("d.old", with_snapshots(Path(table.refresh().iceberg.metadata_location[7:]), SNAPSHOTS))
    old = lake.table("d.old")
    appended = [cpu_of(lambda: lake.table("d.old").append([{"id": 2}])) for _ in range(5)]
    oldest = old.refresh().context.metadata.snapshots[-20].timestamp_ms
    expired = cpu_of(lambda: old.expire_snapshots().older_than(oldest).allow_shared().execute())
    left = len(old.refresh().context.metadata.snapshots)
    assert left < SNAPSHOTS // 100, left
    return [
        (f"append to {SNAPSHOTS:,} snapshots", sorted(appended)[2], 0.5, "CPU s"),
        (f"expire {SNAPSHOTS:,} snapshots", expired, None, "CPU s"),
    ]


def with_snapshots(metadata_file: Path, count: int) -> str:
    """Write metadata with a history of many snapshots, all of the same files; return its location."""
    metadata = json.loads(metadata_file.read_text())
    [snapshot] = metadata["snapshots"]
    ids, start = range(10**15, 10**15 + count), snapshot["timestamp-ms"] - count * 1000
    metadata["snapshots"] = [
        {**snapshot, "snapshot-id": n, "sequence-number": i + 1, "timestamp-ms": start + i * 1000}
        | ({"parent-snapshot-id": n - 1} if i else {})
        for i, n in enumerate(ids)
    ]
    metadata["snapshot-log"] = [
        {"snapshot-id": s["snapshot-id"], "timestamp-ms": s["timestamp-ms"]} for s in metadata["snapshots"]
    ]
    metadata |= {"current-snapshot-id": ids[-1], "last-sequence-number": count, "metadata-log": []}
    metadata["refs"]["main"]["snapshot-id"] = ids[-1]
    path = metadata_file.with_name("99999-0.metadata.json")
    path.write_text(json.dumps(metadata))
    return path.as_uri()


def wide_rows(folder: Path) -> Lines:
    """Append long texts: from Spark, and as they arrive in this process."""
    spark = local_session("local[2]", {"spark.driver.memory": "4g"})
    lake = neve.connect(folder / "lake", spark=spark)
    table = lake.create_table("d.wide", "id bigint, doc string")
    # Every document is different, and half of it can be compressed.
    doc = F.concat(F.repeat(F.sha2(F.col("id").cast("string"), 512), WIDTH // 256), F.repeat(F.lit("x"), WIDTH // 2))
    with Peaks(lambda: psutil.Process().children(recursive=True), "python") as workers:
        table.append(spark.range(WIDE_ROWS).select("id", doc.alias("doc")))
    assert table.refresh().scan().count() == WIDE_ROWS
    before = getrusage(RUSAGE_SELF).ru_maxrss >> 10
    schema = pa.schema([("id", pa.int64()), ("doc", pa.string())])
    table.refresh().append(pa.RecordBatchReader.from_batches(schema, documents(schema)))
    grown = (getrusage(RUSAGE_SELF).ru_maxrss >> 10) - before
    assert table.refresh().scan().count() == 2 * WIDE_ROWS
    spark.stop()
    what = f"append of {WIDE_ROWS:,} rows of {WIDTH // 1000} kB"
    return [
        (f"{what} from Spark, a worker", workers.most_mib, 1536, "MiB"),
        (f"{what}, streamed in the process", grown, 1536, "MiB"),
    ]


def documents(schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows of 40 kB, a few at a time."""
    for start in range(0, WIDE_ROWS, 500):
        ids = range(start, start + 500)
        texts = [f"{n:020d}" * (WIDTH // 40) + "x" * (WIDTH // 2) for n in ids]
        yield pa.record_batch([pa.array(ids, pa.int64()), pa.array(texts)], schema=schema)


def conditions(folder: Path) -> Lines:
    """Read by many values, and by many comparisons."""
    lake = neve.connect(folder / "lake")
    table = lake.create_table("d.t", "id bigint, name string", partition_by=["bucket(16, id)"])
    rows = pa.table({"id": pa.array(range(200_000), pa.int64()), "name": [f"n{i}" for i in range(200_000)]})
    table.append(rows)
    values = ", ".join(str(2 * i) for i in range(VALUES))
    terms = " OR ".join(f"id = {i * 7}" for i in range(TERMS))
    pairs = " OR ".join(f"(id = {i * 7} AND name = 'n{i * 7}')" for i in range(TERMS))
    counts: list[int] = []
    costs = [
        cpu_of(lambda text=text: counts.append(table.refresh().scan(text).to_arrow().num_rows))  # type: ignore[misc]
        for text in (f"id IN ({values})", terms, pairs)
    ]
    assert counts == [VALUES, TERMS, TERMS], counts
    return [
        (f"scan with {VALUES:,} values in IN", costs[0], 3, "CPU s"),
        (f"scan with {TERMS:,} comparisons joined by OR", costs[1], 3, "CPU s"),
        (f"scan with {TERMS:,} pairs of comparisons joined by OR", costs[2], None, "CPU s"),
    ]


class Peaks:
    """Samples the memory of the processes with a name, and keeps the most that one of them had."""

    def __init__(self, processes: Callable[[], list[psutil.Process]], name: str) -> None:
        self._processes, self._name, self._stop, self.most_mib = processes, name, threading.Event(), 0.0

    def __enter__(self) -> Peaks:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for process in self._processes():
                try:
                    if self._name in process.name():
                        self.most_mib = max(self.most_mib, process.memory_full_info().uss / (1 << 20))
                except psutil.Error:
                    continue


def cpu_of(act: Callable[[], object]) -> float:
    """Return the CPU seconds of this process for an act."""
    before = time.process_time()
    act()
    return time.process_time() - before


PARTS: dict[str, Callable[[Path], Lines]] = {"history": history, "wide-rows": wide_rows, "conditions": conditions}


def run_part(name: str) -> bool:
    """Run a part in this process; return whether it keeps its limits."""
    folder = Path(tempfile.mkdtemp(prefix="neve-bench-"))
    try:
        lines = PARTS[name](folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    kept = [limit is None or value <= limit for _, value, limit, _ in lines]
    for (what, value, limit, unit), is_kept in zip(lines, kept, strict=True):
        end = "" if limit is None else f"  (at most {limit:g}) {verdict(is_kept)}"
        print(f"  {what:<60} {value:8.2f} {unit}{end}")
    return all(kept)


def main() -> None:
    """Run the named part, or each part in a process of its own."""
    if sys.argv[1:]:
        sys.exit(0 if run_part(sys.argv[1]) else 1)
    ends = [subprocess.run([sys.executable, "-m", "bench.extremes", part], check=False).returncode for part in PARTS]
    sys.exit(max(ends))


if __name__ == "__main__":
    main()
