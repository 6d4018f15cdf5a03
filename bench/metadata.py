"""Metadata speed against PyIceberg in the same run: planning over a million files, and an append to an old table.

Planning is measured from trees of versions 2, 3 and 4 with the same files; what small commits cost on them is measured
by `bench.tree`.

    make bench-metadata                      (NEVE_BENCH_FILES=100000 make bench-metadata for a smaller table)

Prints CPU seconds (all threads) and ratios. Cases are interleaved; the figure of a case is its median.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, clear_manifest_cache
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record

from neve.catalog import open_catalog
from neve.commit.actions import Append
from neve.commit.protocol import commit
from neve.io.avro.jit import load_compiled
from neve.model.metadata import parse_metadata
from neve.model.partition import Specs
from neve.ops.plan_scan import plan_snapshot_scan
from neve.predicate import parse as predicate
from neve.tree.entries import BOUNDS, COUNTS, EntryTable, Status
from neve.tree.pyiceberg_files import entries_from_pyiceberg
from neve.tree.read import manifests_of, read_entries
from neve.tree.tree_writer import assign_row_ids, tree_writer_for
from neve.tree.write import ManifestContext, ManifestListHeader, write_manifest_list, write_manifests

FILES = int(os.environ.get("NEVE_BENCH_FILES", "1000000"))
PER_MANIFEST = 10_000
ROUNDS = 3
TARGETS = {2: 15, 3: 15, 4: 100}
"""Required ratio of the CPU time of PyIceberg to that of planning, by tree version."""
RUNS = {2: 1, 3: 1, 4: 5}
"""Runs in each round, by tree version: a short run varies more."""
WHERE = "ts >= TIMESTAMP '2024-03-01' AND ts < TIMESTAMP '2024-03-08' AND region = 'r07' AND id < 500"

SCHEMA = [
    {"id": 1, "name": "id", "required": True, "type": "long"},
    {"id": 2, "name": "ts", "required": False, "type": "timestamp"},
    {"id": 3, "name": "region", "required": False, "type": "string"},
    *({"id": i, "name": f"c{i}", "required": False, "type": "double"} for i in range(4, 12)),
]
SPECS = [
    {"spec-id": 0, "fields": [_day := {"name": "ts_day", "transform": "day", "source-id": 2, "field-id": 1000}]},
    {"spec-id": 1, "fields": [_day, {"name": "region", "transform": "identity", "source-id": 3, "field-id": 1001}]},
    {"spec-id": 2, "fields": [{"name": "id_bucket", "transform": "bucket[64]", "source-id": 1, "field-id": 1002}]},
]
COMMIT = uuid.UUID(int=0x9C12D44103FE46939A96A0705DDF69C1)
"""The part of the manifest names that identifies a commit."""
DAY_MICROS = 86_400_000_000


def document(location: str, snapshots: list[dict], properties: dict[str, str] | None = None) -> dict:
    """Return the metadata of a benchmark table."""
    return {
        "format-version": 2,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": location,
        "last-sequence-number": len(snapshots),
        "last-updated-ms": 1_700_000_000_000 + len(snapshots),
        "last-column-id": 11,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": SCHEMA}],
        "current-schema-id": 0,
        "partition-specs": SPECS,
        "default-spec-id": 2,
        "last-partition-id": 1002,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "snapshots": snapshots,
        "current-snapshot-id": snapshots[-1]["snapshot-id"],
        "refs": {"main": {"snapshot-id": snapshots[-1]["snapshot-id"], "type": "branch"}},
        "snapshot-log": [{"snapshot-id": s["snapshot-id"], "timestamp-ms": s["timestamp-ms"]} for s in snapshots],
        "properties": properties or {},
    }


def snapshot(number: int, manifest_list: str) -> dict:
    """Return a snapshot as an append writes it."""
    summary = {"operation": "append", "added-data-files": "1", "added-records": "10", "total-data-files": str(number)}
    summary |= {"total-records": str(10 * number), "total-delete-files": "0"}  # Spark does not plan without them
    summary |= {"total-position-deletes": "0", "total-equality-deletes": "0"}
    return {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": 1_700_000_000_000 + number,
        "manifest-list": manifest_list,
        "summary": summary,
        "schema-id": 0,
        **({"parent-snapshot-id": number - 1} if number > 1 else {}),
    }


def many_files(folder: Path, version: int, manifests: int, each: int, properties: dict[str, str] | None = None) -> str:
    """Write a table of manifests with some files each, of three specs in turn, and return the location of its metadata.

    The files are the same in every version.
    """
    location, io = folder.as_uri(), PyArrowFileIO()
    (folder / "metadata").mkdir(parents=True)
    suffix, key = ("parquet", "root-manifest") if version > 3 else ("avro", "manifest-list")
    row = snapshot(1, f"{location}/metadata/snap-1.{suffix}")
    row[key] = row.pop("manifest-list")
    whole = document(location, [row], {"commit.manifest-merge.enabled": "false", **(properties or {})})
    whole |= {"format-version": version, **({"next-row-id": 1 << 50} if version > 2 else {})}
    metadata = parse_metadata(json.dumps(whole).encode(), "bench")
    numbers, rng = count(), np.random.default_rng(7)
    new_path = lambda: f"{location}/metadata/{COMMIT}-m{next(numbers)}.{suffix}"  # noqa: E731
    context = ManifestContext(metadata, Specs.of(metadata), 1, new_path, target_bytes=1 << 30)
    shape, written = tree_writer_for(metadata), []
    with no_fsync():
        for at in range(manifests):
            entries = random_entries(context.specs, at % 3, at * each, each, rng, location)
            written += shape.write_added(io, entries, context)
        if version > 2:
            written, _ = assign_row_ids(written, 0)
        shape.write_list_or_root(
            io, row[key], written, ManifestListHeader(1, None, 1, 0 if version > 2 else None), context
        )
    path = folder / "metadata" / "00000-bench.metadata.json"
    path.write_text(json.dumps(whole))
    return path.as_uri()


def table_with_usual_manifests(folder: Path, files: int, version: int = 2) -> str:
    """Create a table with this number of files, in manifests of the usual length."""
    each = min(PER_MANIFEST, files)
    return many_files(folder, version, files // each, each)


@contextmanager
def no_fsync() -> Iterator[None]:
    """Disable fsync: tables exist only for the measurement and must not wait for the disk."""
    fsync, os.fsync = os.fsync, lambda descriptor: None
    try:
        yield
    finally:
        os.fsync = fsync


def random_entries(
    specs: Specs, spec_id: int, start: int, rows: int, rng, location: str, days: tuple[int, int] = (0, 365)
) -> EntryTable:
    """Return new files of a spec, of some days of a year, with statistics of ten columns."""
    day = 19_700 + rng.integers(*days, rows)
    regions = rng.integers(0, 40, rows)
    low = rng.integers(0, 1000, rows)
    micros = day * DAY_MICROS
    bounds = {1: (low, low + 100), 2: (micros, micros + DAY_MICROS - 1)}
    bounds |= {i: tuple(np.sort(rng.random((2, rows)), axis=0)) for i in range(4, 12)}
    names, counts = rng.integers(0, 1 << 62, rows), rng.integers(1_000, 100_000, rows)
    columns = {
        "status": np.full(rows, Status.ADDED, np.int8),
        "content": np.zeros(rows, np.int8),
        "file_path": [f"{location}/data/{spec_id}/{start + i:08d}-{n:016x}-00001.parquet" for i, n in enumerate(names)],
        "file_format": "PARQUET",
        "spec_id": np.full(rows, spec_id, np.int32),
        "record_count": counts,
        "file_size_in_bytes": rng.integers(1 << 20, 1 << 27, rows),
        "p1000": pa.array(day.astype(np.int32)).cast(pa.date32()) if spec_id < 2 else None,
        "p1001": [f"r{r:02d}" for r in regions] if spec_id == 1 else None,
        "p1002": rng.integers(0, 64, rows).astype(np.int32) if spec_id == 2 else None,
        "value_counts": _counts(counts, list(bounds)),
        "null_value_counts": _counts(np.zeros(rows, np.int64), list(bounds)),
        "lower_bounds": _bounds({i: ends[0] for i, ends in bounds.items()}, rows),
        "upper_bounds": _bounds({i: ends[1] for i, ends in bounds.items()}, rows),
    }
    detail = ["value_counts", "null_value_counts", "lower_bounds", "upper_bounds"]
    return EntryTable.from_columns(columns, specs, rows, detail)


def _lists(kind: pa.DataType, rows: int, ids: list[int], values: pa.Array) -> pa.Array:
    keys = pa.array(np.tile(np.array(ids, np.int32), rows))
    items = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * len(ids)), items)


def _counts(values: np.ndarray, ids: list[int]) -> pa.Array:
    """Return the same count for each column of a file."""
    return _lists(COUNTS, len(values), ids, pa.array(np.repeat(values, len(ids))))


def _bounds(values: dict[int, np.ndarray], rows: int) -> pa.Array:
    table = np.empty((rows, len(values)), np.int64)
    for at, (field_id, column) in enumerate(values.items()):
        table[:, at] = column if field_id < 4 else column.view(np.int64)
    raw = pa.py_buffer(table.tobytes())
    fixed = pa.Array.from_buffers(pa.binary(8), rows * len(values), [None, raw])
    return _lists(BOUNDS, rows, list(values), fixed.cast(pa.binary()))


def cpu_of(case: Callable[[], object]) -> tuple[float, object]:
    """Return the CPU seconds of a call, over all threads of this process, and its result."""
    gc.collect()
    start = time.process_time()
    found = case()
    return time.process_time() - start, found


def bench_planning(folder: Path) -> bool:
    """Plan the files of one table in every version with Névé, and from version 2 with PyIceberg."""
    locations = {version: table_with_usual_manifests(folder / f"v{version}", FILES, version) for version in TARGETS}
    tables = {
        version: parse_metadata(Path(p.removeprefix("file://")).read_bytes(), p) for version, p in locations.items()
    }
    where, io = predicate(WHERE, tables[2].schema()).expression, PyArrowFileIO()
    peer = StaticTable.from_metadata(locations[2])

    def ours(version: int, filtered: bool) -> int:
        metadata = tables[version]
        return len(
            plan_snapshot_scan(io, metadata, metadata.current_snapshot(), where=where if filtered else None).files
        )

    def theirs() -> int:
        clear_manifest_cache()
        return len(list(peer.scan(row_filter=where).plan_files()))

    load_compiled()
    for version in TARGETS:
        ours(version, True)

    def own_cost(version: int) -> tuple[float, object]:
        runs = [cpu_of(lambda: ours(version, True)) for _ in range(RUNS[version])]
        return median(cpu for cpu, _ in runs), runs[0][1]

    rounds = [({version: own_cost(version) for version in TARGETS}, cpu_of(theirs)) for _ in range(ROUNDS)]
    every = {v: median(cpu_of(lambda v=v: ours(v, False))[0] for _ in range(ROUNDS)) for v in TARGETS}
    seconds, found = median(peers for _, (peers, _) in rounds), rounds[0][1][1]
    assert {n for neve_append, _ in rounds for _, n in neve_append.values()} == {found}, (
        "all must select the same files"
    )
    print(f"plan {FILES} files of 3 specs, {found} selected           CPU s   ratio        without a filter")
    print(f"  PyIceberg plan_files, v2                     {seconds:9.2f}")
    results = True
    for version, target in TARGETS.items():
        own = median(neve_append[version][0] for neve_append, _ in rounds)
        results &= seconds / own >= target
        ratio = f"{seconds / own:5.0f}x (target {target}x) {verdict(seconds / own >= target)}"
        print(f"  Névé, v{version}                                     {own:9.2f}  {ratio} {every[version]:12.2f}")
    held = _bytes_held(io, tables[2])
    print(f"  held by v2 {held:.0f} bytes a file (target under 200) {verdict(held < 200)}")
    return results and held < 200


def _bytes_held(io: PyArrowFileIO, metadata) -> float:
    entries = read_entries(io, manifests_of(io, metadata, metadata.current_snapshot()), Specs.of(metadata))
    return entries.columns.get_total_buffer_size() / len(entries)


def old_table(folder: Path, manifests: int = 1000, snapshots: int = 1000) -> str:
    """Create a table with many manifests and snapshots; only the newest manifest list has to exist."""
    location, io = folder.as_uri(), PyArrowFileIO()
    rows = [snapshot(n, f"{location}/metadata/snap-{n}.avro") for n in range(1, snapshots + 1)]
    text = json.dumps(document(location, rows, {"commit.manifest-merge.enabled": "false"}))
    metadata = parse_metadata(text.encode(), "bench")
    numbers = iter(range(10**9))
    context = ManifestContext(
        metadata, Specs.of(metadata), snapshots, lambda: f"{location}/metadata/{next(numbers)}-m0.avro"
    )
    rng = np.random.default_rng(3)
    written = [
        m
        for n in range(manifests)
        for m in write_manifests(io, random_entries(context.specs, n % 3, n, 1, rng, location), context)
    ]
    header = ManifestListHeader(snapshots, None, 1)
    write_manifest_list(io, f"{location}/metadata/snap-{snapshots}.avro", written, header, 2)
    path = folder / "metadata" / "00000-bench.metadata.json"
    path.write_text(text)
    return path.as_uri()


def new_file(name: str) -> DataFile:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file:///bench/{name}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(5),
        record_count=10,
        file_size_in_bytes=1000,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = 2
    return file


def bench_append(folder: Path) -> bool:
    stock = SqlCatalog("stock", uri=f"sqlite:///{folder}/stock.db", warehouse=folder.as_uri())
    stock.create_namespace("b")
    theirs = stock.register_table("b.t", old_table(folder / "theirs"))
    lake = open_catalog(folder / "ours")
    lake.create_namespace("b")
    lake.register_table("b.t", old_table(folder / "ours" / "t"))

    def peer(n: int) -> None:
        with theirs.transaction() as tx, tx.update_snapshot().fast_append() as append:
            append.append_data_file(new_file(f"p{n}"))

    def neve_append(n: int) -> None:
        table = lake.load_table("b.t")
        commit(lake, table, Append(entries_from_pyiceberg([new_file(f"n{n}")], Specs.of(table.metadata)), fast=True))

    neve_append(-1)
    peer(-1)
    times = [(cpu_of(lambda n=n: neve_append(n))[0], cpu_of(lambda n=n: peer(n))[0]) for n in range(7)]
    ours, peers = median(t[0] for t in times), median(t[1] for t in times)
    print("append one file to a table with 1000 manifests and 1000 snapshots")
    print(f"  PyIceberg fast_append  {peers * 1000:8.0f} CPU ms")
    print(f"  Névé                   {ours * 1000:8.0f} CPU ms")
    print(f"  ratio {peers / ours:.1f}x (target 14x) {verdict(peers / ours >= 14)}")
    return peers / ours >= 14


def verdict(results: bool) -> str:
    return "ok" if results else "MISSED"


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="neve-bench-"))
    try:
        locations = {bench: folder / bench.__name__ for bench in (bench_append, bench_planning)}
        for folder_of_bench in locations.values():
            folder_of_bench.mkdir()
        results = [bench(folder_of_bench) for bench, folder_of_bench in locations.items()]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
