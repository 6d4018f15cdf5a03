"""What small commits cost on large trees: versions 2, 3 and 4, the adaptive tree of version 4, and PyIceberg.

Part of `make bench-metadata`; NEVE_BENCH_LEAVES=1000 leaves the largest tree out. Each leaf holds a hundred files; all
were written by one commit. The append adds a file, the delete takes a row from a file of some leaf, which the statement
has found before: what is measured is the commit. CPU milliseconds are of all threads; bytes are those of new metadata
files, the table's own JSON left out.
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

from bench import metadata as b
from neve.catalog import open_catalog
from neve.commit.actions import Append, Removed, RowDelta
from neve.commit.outcome import require
from neve.commit.protocol import commit
from neve.model.partition import Specs
from neve.ops.planning import plan
from neve.tree.entries import Content, EntryTable
from neve.tree.files import entries_of

LEAVES = tuple(n for n in (1, 100, 1_000, 10_000) if n <= int(os.environ.get("NEVE_BENCH_LEAVES", "10000")))
FILES = 100  # in each leaf: fewer than an adaptive tree moves out of its root at once
ROUNDS = 9
ADAPTIVE = {"neve.root.inline-files": "100", "neve.manifest-vectors.enabled": "true"}
WAYS: dict[str, tuple[int, dict[str, str]]] = {
    "v2": (2, {}),
    "v3": (3, {}),
    "v4": (4, {}),
    "v4 adaptive": (4, ADAPTIVE),
}
FLAT = 2  # times what a commit on a tree of one leaf takes

Cost = tuple[float, float]  # CPU milliseconds, kilobytes


def bench_small_commits(folder: Path) -> bool:
    """A one-file append and a one-row delete on trees of one leaf to many."""
    print("a one-file append, then a one-row delete: CPU ms / kB of metadata written")
    print("  leaves " + "".join(f"{name:>26}" for name in (*WAYS, "PyIceberg append")))
    found: dict[str, list[tuple[Cost, Cost]]] = {name: [] for name in WAYS}
    for leaves in LEAVES:
        places = {v: b.many_files(folder / f"{leaves}-v{v}", v, leaves, FILES) for v in (2, 3, 4)}
        for name, (version, properties) in WAYS.items():
            found[name].append(_commits(folder / f"{leaves}-{name}", places[version], properties))
        cells = [", ".join(f"{ms:.0f} / {kb:.0f}" for ms, kb in found[name][-1]) for name in WAYS]
        ms, kb = _peer(folder / f"{leaves}-peer", places[2])
        print(f"  {leaves:<7}" + "".join(f"{cell:>26}" for cell in (*cells, f"{ms:.0f} / {kb:.0f}")), flush=True)
    return _is_flat(found["v4 adaptive"])


def _is_flat(costs: list[tuple[Cost, Cost]]) -> bool:
    """Whether small commits cost on 1,000 leaves what they cost on one, and write as many bytes."""
    measured = [n for n in LEAVES if n <= 1_000]
    good = True
    for kind, word in enumerate(("append", "delete")):
        cpu, size = ([costs[at][kind][unit] for at in range(len(measured))] for unit in (0, 1))
        growth, bytes_growth = max(cpu) / cpu[0], max(size) / size[0]
        each = (size[-1] - size[0]) * 1000 / max(measured[-1] - 1, 1)
        good &= growth <= FLAT and bytes_growth <= FLAT
        print(
            f"  adaptive {word} on 1 to {measured[-1]} leaves: CPU {growth:.1f}x {b.verdict(growth <= FLAT)}, "
            f"bytes {bytes_growth:.1f}x {b.verdict(bytes_growth <= FLAT)} ({each:.0f} bytes a leaf; target {FLAT}x)"
        )
    return good


def _commits(folder: Path, place: str, properties: dict[str, str]) -> tuple[Cost, Cost]:
    """What an append and a delete cost on a tree, which stays as it is."""
    lake = open_catalog(folder)
    lake.create_namespace("b")
    source = Path(place.removeprefix("file://"))
    own = source.with_name(f"00000-{folder.name.replace(' ', '-')}.metadata.json")
    document = json.loads(source.read_text())
    own.write_text(json.dumps(document | {"properties": document["properties"] | properties}))
    lake.register_table("b.t", own.as_uri())

    def append(n: int) -> None:
        state = lake.load_table("b.t")
        require(commit(lake, state, Append(entries_of([b.new_file(f"n{n}")], Specs.of(state.metadata)), fast=True)))

    def delete(n: int) -> None:
        state, (homes, deltas) = lake.load_table("b.t"), found[n]
        start = state.metadata.current_snapshot_id
        require(commit(lake, state, RowDelta(added_deletes=deltas, homes=homes, start_snapshot_id=start)))

    cost = _measured(append, source.parent)
    state = lake.load_table("b.t")
    read = plan(state.io, state.metadata, state.metadata.current_snapshot())
    chosen = np.random.default_rng(11).choice(len(read.files), ROUNDS + 1, replace=len(read.files) <= ROUNDS)
    files = [read.files.take([int(at)]) for at in chosen]
    found = [(Removed(f, manifests=read.manifests), delete_of(state, f, n)) for n, f in enumerate(files)]
    return cost, _measured(delete, source.parent)


def delete_of(state: Any, file: EntryTable, n: int) -> EntryTable:
    """A delete of a row of a file in the form of the version; nobody looks at its bytes."""
    columns: dict[str, Any] = {"content": int(Content.POSITION_DELETES), "record_count": 1}
    columns |= {"referenced_data_file": file["file_path"], "file_path": f"file:///bench/d{n}.parquet"}
    if state.metadata.format_version > 2:
        columns |= {"file_path": f"file:///bench/v{n}.puffin", "file_format": "PUFFIN"}
        columns |= {"content_offset": 4, "content_size_in_bytes": 40}
    return file.with_columns(**columns)


def _measured(step: Callable[[int], None], home: Path) -> Cost:
    """The median of some commits, after one to warm up."""
    step(0)
    seconds, sizes = [], []
    for n in range(1, ROUNDS + 1):
        before = {e.name for e in os.scandir(home)}
        seconds.append(b.cpu_of(lambda n=n: step(n))[0])
        new = (e for e in os.scandir(home) if e.name not in before and not e.name.endswith(".json"))
        sizes.append(sum(e.stat().st_size for e in new))
    return median(seconds) * 1000, median(sizes) / 1000


def _peer(folder: Path, place: str) -> Cost:
    folder.mkdir(parents=True)
    stock = SqlCatalog("stock", uri=f"sqlite:///{folder}/stock.db", warehouse=folder.as_uri())
    stock.create_namespace("b")
    state = stock.register_table("b.t", place)

    def append(n: int) -> None:
        with state.transaction() as tx, tx.update_snapshot().fast_append() as update:
            update.append_data_file(b.new_file(f"p{n}"))

    return _measured(append, Path(place.removeprefix("file://")).parent)


def in_a_folder(bench: Callable[[Path], bool]) -> None:
    """Run a bench in a folder of its own and end with 1 when it missed a target."""
    folder = Path(tempfile.mkdtemp(prefix="neve-bench-"))
    try:
        good = bench(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    in_a_folder(bench_small_commits)
