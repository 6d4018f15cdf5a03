"""What small commits cost on large trees: versions 2, 3 and 4, the adaptive tree of version 4, and PyIceberg.

Part of `make bench-metadata`; NEVE_BENCH_LEAVES=1000 leaves the largest tree out. Each leaf holds a hundred files; all
were written by one commit. The append adds a file, the delete takes a row from a file of some leaf, which the statement
has found before: what is measured is the commit. CPU milliseconds are of all threads; bytes are those of new metadata
files, the table's own JSON left out. Trees of all sizes are measured by turns.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from pyiceberg.catalog.sql import SqlCatalog

from bench import metadata as b
from neve.catalog import NeveCatalog, open_catalog
from neve.commit.actions import Append, RemovedFiles, RowDelta
from neve.commit.outcome import require_committed
from neve.commit.protocol import commit
from neve.model.partition import Specs
from neve.ops.plan_scan import plan_snapshot_scan
from neve.plan.scan import ScanPlan
from neve.tree.entries import Content, EntryTable
from neve.tree.pyiceberg_files import entries_from_pyiceberg

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
Step = Callable[[int], None]


@dataclass
class _Tree:
    """A table with its commits, one of each kind a round."""

    lake: NeveCatalog
    home: Path
    deltas: list[tuple[RemovedFiles, EntryTable]] = field(default_factory=list)

    @classmethod
    def opened(cls, folder: Path, place: str, properties: dict[str, str]) -> _Tree:
        """A table of its own on a tree that others share."""
        lake, source = open_catalog(folder), Path(place.removeprefix("file://"))
        lake.create_namespace("b")
        own = source.with_name(f"00000-{folder.name.replace(' ', '-')}.metadata.json")
        document = json.loads(source.read_text())
        own.write_text(json.dumps(document | {"properties": document["properties"] | properties}))
        lake.register_table("b.t", own.as_uri())
        return cls(lake, source.parent)

    def append(self, n: int) -> None:
        state = self.lake.load_table("b.t")
        added = entries_from_pyiceberg([b.new_file(f"n{n}")], Specs.of(state.metadata))
        require_committed(commit(self.lake, state, Append(added, fast=True)))

    def choose(self) -> None:
        """A delete of a row of some file for each round."""
        state = self.lake.load_table("b.t")
        read = plan_snapshot_scan(state.io, state.metadata, state.metadata.current_snapshot())
        chosen = np.random.default_rng(11).choice(len(read.files), ROUNDS + 1, replace=len(read.files) <= ROUNDS)
        self.deltas = deletes_of(state, read, chosen)

    def delete(self, n: int) -> None:
        delete(self.lake, *self.deltas[n])


def delete(lake: NeveCatalog, homes: RemovedFiles, deletes: EntryTable) -> None:
    """Commit deletes of files that were found before."""
    state = lake.load_table("b.t")
    start = state.metadata.current_snapshot_id
    require_committed(
        commit(lake, state, RowDelta(added_deletes=deletes, vector_targets=homes, start_snapshot_id=start))
    )


def bench_small_commits(folder: Path) -> bool:
    """A one-file append and a one-row delete on trees of one leaf to many, by turns."""
    places = {(n, v): b.many_files(folder / f"{n}-v{v}", v, n, FILES) for n in LEAVES for v in (2, 3, 4)}
    found = {name: _commits(folder, name, places) for name in WAYS}
    peers = [_peer(folder / f"{n}-peer", places[n, 2]) for n in LEAVES]
    peer = [_middle(costs) for costs in in_turn(peers, ROUNDS)]
    print("a one-file append, then a one-row delete: CPU ms / kB of metadata written")
    print("  leaves " + "".join(f"{name:>26}" for name in (*WAYS, "PyIceberg append")))
    for at, leaves in enumerate(LEAVES):
        cells = [", ".join(_cell(_middle(kind[at])) for kind in found[name]) for name in WAYS]
        print(f"  {leaves:<7}" + "".join(f"{cell:>26}" for cell in (*cells, _cell(peer[at]))))
    appends, deletes = found["v4 adaptive"]
    good = _is_flat("append", appends), _is_flat("delete", deletes)
    return all(good)


def _commits(folder: Path, name: str, places: dict[tuple[int, int], str]) -> tuple[list[list[Cost]], list[list[Cost]]]:
    """What appends and deletes cost on each tree, in each round."""
    version, properties = WAYS[name]
    trees = [_Tree.opened(folder / f"{n}-{name}", places[n, version], properties) for n in LEAVES]
    appends = in_turn([(tree.append, tree.home) for tree in trees], ROUNDS)
    for tree in trees:
        tree.choose()
    return appends, in_turn([(tree.delete, tree.home) for tree in trees], ROUNDS)


def in_turn(cases: Sequence[tuple[Step, Path]], rounds: int, warm: int = 1) -> list[list[Cost]]:
    """The costs of each case, a round after the other: what the machine does meanwhile hits all alike."""
    costs = [[_cost(step, n, home) for step, home in cases] for n in range(warm + rounds)]
    return [list(case) for case in zip(*costs[warm:], strict=True)]


def _cost(step: Step, n: int, home: Path) -> Cost:
    before = {e.name for e in os.scandir(home)}
    seconds, _ = b.cpu_of(lambda: step(n))
    new = (e for e in os.scandir(home) if e.name not in before and not e.name.endswith(".json"))
    return seconds * 1000, sum(e.stat().st_size for e in new) / 1000


def _middle(costs: list[Cost]) -> Cost:
    return median(ms for ms, _ in costs), median(kb for _, kb in costs)


def _cell(cost: Cost) -> str:
    return f"{cost[0]:.0f} / {cost[1]:.0f}"


def _is_flat(word: str, costs: list[list[Cost]]) -> bool:
    """Whether small commits cost on 1,000 leaves what they cost on one, and write as many bytes."""
    measured = [n for n in LEAVES if n <= 1_000]
    cpu = max(cpu_growth(costs[0], costs[at]) for at in range(len(measured)))
    sizes = [_middle(costs[at])[1] for at in range(len(measured))]
    bytes_growth, each = max(sizes) / sizes[0], (sizes[-1] - sizes[0]) * 1000 / max(measured[-1] - 1, 1)
    print(
        f"  adaptive {word} on 1 to {measured[-1]} leaves: CPU {cpu:.1f}x {b.verdict(cpu <= FLAT)}, "
        f"bytes {bytes_growth:.1f}x {b.verdict(bytes_growth <= FLAT)} ({each:.0f} bytes a leaf; target {FLAT}x)"
    )
    return cpu <= FLAT and bytes_growth <= FLAT


def cpu_growth(few: list[Cost], many: list[Cost]) -> float:
    """How many times the CPU time: of two commits one after the other, as machines are noisy."""
    return median(more / less for (less, _), (more, _) in zip(few, many, strict=True))


def deletes_of(state: Any, read: ScanPlan, places: Iterable[int]) -> list[tuple[RemovedFiles, EntryTable]]:
    """A delete of a row of each of some files, with where the file was found."""
    files = [read.files.take([int(at)]) for at in places]
    return [(RemovedFiles(f, manifests=read.manifests), _delete_of(state, f, n)) for n, f in enumerate(files)]


def _delete_of(state: Any, file: EntryTable, n: int) -> EntryTable:
    """A delete of a row of a file in the form of the version; nobody looks at its bytes."""
    columns: dict[str, Any] = {"content": int(Content.POSITION_DELETES), "record_count": 1}
    columns |= {"referenced_data_file": file["file_path"], "file_path": f"file:///bench/d{n}.parquet"}
    if state.metadata.format_version > 2:
        columns |= {"file_path": f"file:///bench/v{n}.puffin", "file_format": "PUFFIN"}
        columns |= {"content_offset": 4, "content_size_in_bytes": 40}
    return file.with_columns(**columns)


def _peer(folder: Path, place: str) -> tuple[Step, Path]:
    folder.mkdir(parents=True)
    stock = SqlCatalog("stock", uri=f"sqlite:///{folder}/stock.db", warehouse=folder.as_uri())
    stock.create_namespace("b")
    state = stock.register_table("b.t", place)

    def append(n: int) -> None:
        with state.transaction() as tx, tx.update_snapshot().fast_append() as update:
            update.append_data_file(b.new_file(f"p{n}"))

    return append, Path(place.removeprefix("file://")).parent


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
