"""The version 4 tree against versions 2 and 3 and PyIceberg: planning, and what small commits cost on large trees.

Part of `make bench-metadata`; NEVE_BENCH_FILES and NEVE_BENCH_LEAVES make it smaller. CPU seconds of all threads; bytes
are those of new metadata files.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import StaticTable

from bench import metadata as b
from neve.catalog import open_catalog
from neve.commit.actions import Append, RowDelta
from neve.commit.protocol import commit
from neve.model.metadata import parse
from neve.model.partition import Specs
from neve.ops.planning import plan
from neve.tree.entries import Content, EntryTable, Manifest, Status
from neve.tree.files import entries_of
from neve.tree.shape import Listing, shape_of
from neve.tree.write import ManifestContext

LEAVES = tuple(n for n in (1, 100, 1_000, 10_000) if n <= int(os.environ.get("NEVE_BENCH_LEAVES", "10000")))
ROUNDS = 5
ADAPTIVE = {"neve.root.inline-files": "100", "neve.manifest-vectors.enabled": "true"}


def table(folder: Path, version: int, chunks: int, rows: int, properties: dict[str, str] | None = None) -> str:
    """Write a table of `chunks` manifests with `rows` files each, and return the place of its metadata."""
    location, io = folder.as_uri(), PyArrowFileIO()
    (folder / "metadata").mkdir(parents=True)
    suffix = "parquet" if version > 3 else "avro"
    key = "root-manifest" if version > 3 else "manifest-list"
    row = b.snapshot(1, f"{location}/metadata/snap-1.{suffix}")
    row[key] = row.pop("manifest-list")
    whole = b.document(location, [row], {"commit.manifest-merge.enabled": "false", **(properties or {})})
    whole |= {"format-version": version, **({"next-row-id": 1 << 50} if version > 2 else {})}
    metadata = parse(json.dumps(whole).encode(), "bench")
    numbers = iter(range(10**9))
    new_path = lambda: f"{location}/metadata/{next(numbers)}-m0.{suffix}"  # noqa: E731
    context = ManifestContext(metadata, Specs.of(metadata), 1, new_path, target_bytes=1 << 30)
    shape, rng = shape_of(metadata), np.random.default_rng(7)
    manifests: list[Manifest] = []
    for at in range(chunks):
        entries = b._random_entries(context.specs, at % 3, at * rows, rows, rng, location)
        manifests += shape.write_added(io, entries, context)
    if version > 2:
        manifests, _ = shape.assign_row_ids(manifests, 0)
    shape.write_listing(io, row[key], manifests, Listing(1, None, 1, 0 if version > 2 else None), context)
    path = folder / "metadata" / "00000-bench.metadata.json"
    path.write_text(json.dumps(whole))
    return path.as_uri()


def bench_planning_v4(folder: Path, theirs: float | None = None) -> bool:
    """Plan the million files of the other bench from a version 4 tree."""
    place = table(folder / "t", 4, max(b.FILES // b.PER_MANIFEST, 1), min(b.PER_MANIFEST, b.FILES))
    metadata = parse(Path(place.removeprefix("file://")).read_bytes(), place)
    io, where = PyArrowFileIO(), b.predicate(b.WHERE, metadata.schema()).expression

    def ours() -> int:
        return len(plan(io, metadata, metadata.current_snapshot(), where=where).files)

    def everything() -> int:
        return len(plan(io, metadata, metadata.current_snapshot()).files)

    ours()
    taken = [b.cpu_of(ours) for _ in range(3)]
    all_of = [b.cpu_of(everything) for _ in range(3)]
    mine, whole = (median(s for s, _ in times) for times in (taken, all_of))
    print(f"plan {b.FILES} files from a version 4 tree, {taken[0][1]} selected; {whole:.2f} CPU s without a filter")
    print(f"  Névé                   {mine:8.2f} CPU s")
    if theirs is None:
        return True
    ratio = theirs / mine
    print(f"  ratio to PyIceberg on the same files as v2 {ratio:.0f}x (target 100x) {b._verdict(ratio >= 100)}")
    return ratio >= 100


def bench_small_commits(folder: Path) -> bool:
    """A one-file append and a one-row delete on trees of 1 to 10,000 leaves."""
    ways: dict[str, tuple[int, dict[str, str]]] = {
        "v2": (2, {}),
        "v3": (3, {}),
        "v4": (4, {}),
        "v4 adaptive": (4, ADAPTIVE),
    }
    print("one-file append, and one-row delete (a vector): CPU ms / kB of metadata written")
    print("  leaves     " + "".join(f"{name:>34}" for name in (*ways, "PyIceberg append")))
    found: dict[str, list[float]] = {}
    for leaves in LEAVES:
        cells = []
        for name, (version, properties) in ways.items():
            append, delete = _commits(folder / f"{name.replace(' ', '-')}-{leaves}", version, leaves, properties)
            cells.append(
                f"{append[0]:.0f} / {append[1]:.0f}, {delete[0]:.0f} / {delete[1]:.0f}"
                if delete
                else f"{append[0]:.0f} / {append[1]:.0f}"
            )
            found.setdefault(name, []).append(append[0])
            found.setdefault(f"{name} delete", []).append(delete[0] if delete else 0)
        peer = _peer(folder / f"peer-{leaves}", leaves) if leaves <= 1_000 else None
        cells.append("-" if peer is None else f"{peer[0]:.0f} / {peer[1]:.0f}")
        print(f"  {leaves:<10} " + "".join(f"{cell:>34}" for cell in cells), flush=True)
    growth = {kind: max(times[:3]) / times[0] for kind, times in found.items() if kind.startswith("v4 adaptive")}
    flat = all(g <= 2 for g in growth.values())
    shown = ", ".join(f"{kind} {g:.1f}x" for kind, g in growth.items())
    print(f"  growth of CPU from 1 to 1,000 leaves: {shown} (target 2x) {b._verdict(flat)}")
    return flat


def _commits(folder: Path, version: int, leaves: int, properties: dict[str, str]) -> tuple[Any, Any]:
    lake = open_catalog(folder)
    lake.create_namespace("b")
    lake.register_table("b.t", table(folder / "b" / "t", version, leaves, 1, properties))
    home = folder / "b" / "t" / "metadata"

    def append(n: int) -> None:
        state = lake.load_table("b.t")
        commit(lake, state, Append(entries_of([b.new_file(f"n{n}")], Specs.of(state.metadata)), fast=True))

    def delete(n: int) -> None:
        state = lake.load_table("b.t")
        commit(lake, state, RowDelta(added_deletes=_vector(state, f"n{n}", n)))

    appended = _measured(append, home)
    return appended, _measured(delete, home) if version > 2 else None


def _vector(state: Any, name: str, n: int) -> EntryTable:
    """A vector of a file that an append of the bench added; its bytes are looked at by nobody here."""
    file = entries_of([b.new_file(name)], Specs.of(state.metadata))
    return file.with_columns(
        content=int(Content.POSITION_DELETES),
        status=int(Status.ADDED),
        file_path=f"file:///bench/v{n}.puffin",
        file_format="PUFFIN",
        referenced_data_file=file["file_path"],
        content_offset=4,
        content_size_in_bytes=40,
        record_count=1,
    )


def _measured(step: Callable[[int], None], home: Path) -> tuple[float, float]:
    """CPU milliseconds and kilobytes of new metadata, the table's own JSON left out."""
    step(0)
    seconds, sizes = [], []
    for n in range(1, ROUNDS + 1):
        before = {e.name for e in os.scandir(home)}
        seconds.append(b.cpu_of(lambda n=n: step(n))[0])
        new = (e for e in os.scandir(home) if e.name not in before and not e.name.endswith(".json"))
        sizes.append(sum(e.stat().st_size for e in new))
    return median(seconds) * 1000, median(sizes) / 1000


def _peer(folder: Path, leaves: int) -> tuple[float, float]:
    folder.mkdir(parents=True)
    stock = SqlCatalog("stock", uri=f"sqlite:///{folder}/stock.db", warehouse=folder.as_uri())
    stock.create_namespace("b")
    state = stock.register_table("b.t", table(folder / "t", 2, leaves, 1))

    def append(n: int) -> None:
        with state.transaction() as tx, tx.update_snapshot().fast_append() as update:
            update.append_data_file(b.new_file(f"p{n}"))

    return _measured(append, folder / "t" / "metadata")


def _pyiceberg(folder: Path) -> float:
    """CPU seconds of PyIceberg planning the same number of files, spelled as version 2."""
    peer = StaticTable.from_metadata(b.many_files(folder, b.FILES))
    where = b.predicate(b.WHERE, peer.metadata.schema()).expression
    return b.cpu_of(lambda: len(list(peer.scan(row_filter=where).plan_files())))[0]


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="neve-bench-"))
    try:
        good = [bench_small_commits(folder / "commits")]
        (folder / "peer").mkdir()
        good.append(bench_planning_v4(folder / "planning", _pyiceberg(folder / "peer")))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
