"""Cost of small commits on large trees: versions 2, 3 and 4, the adaptive tree of version 4, and PyIceberg.

Part of `make bench-metadata`; NEVE_BENCH_LEAVES=1000 skips the largest tree. Each leaf holds a hundred files; all
were written by one commit. The append adds a file; the delete removes a row from a file of some leaf that was planned
before, so only the commit is measured. CPU milliseconds are of all threads; bytes are those of new metadata files
without the table metadata JSON. Measurements alternate between trees of all sizes.
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
    """A table and its commits, one of each kind per round."""

    lake: NeveCatalog
    home: Path
    deltas: list[tuple[RemovedFiles, EntryTable]] = field(default_factory=list)

    @classmethod
    def register(cls, folder: Path, location: str, properties: dict[str, str]) -> _Tree:
        """Register a separate table on a shared tree."""
        lake, source = open_catalog(folder), Path(location.removeprefix("file://"))
        lake.create_namespace("b")
        metadata_file = source.with_name(f"00000-{folder.name.replace(' ', '-')}.metadata.json")
        document = json.loads(source.read_text())
        metadata_file.write_text(json.dumps(document | {"properties": document["properties"] | properties}))
        lake.register_table("b.t", metadata_file.as_uri())
        return cls(lake, source.parent)

    def append(self, n: int) -> None:
        state = self.lake.load_table("b.t")
        added = entries_from_pyiceberg([b.new_file(f"n{n}")], Specs.of(state.metadata))
        require_committed(commit(self.lake, state, Append(added, fast=True)))

    def choose_deletes(self) -> None:
        """Choose a delete of one row for each round."""
        state = self.lake.load_table("b.t")
        read = plan_snapshot_scan(state.io, state.metadata, state.metadata.current_snapshot())
        chosen = np.random.default_rng(11).choice(len(read.files), ROUNDS + 1, replace=len(read.files) <= ROUNDS)
        self.deltas = delete_entries(state, read, chosen)

    def delete(self, n: int) -> None:
        commit_delete(self.lake, *self.deltas[n])


def commit_delete(lake: NeveCatalog, homes: RemovedFiles, deletes: EntryTable) -> None:
    """Commit deletes for files that were planned before."""
    state = lake.load_table("b.t")
    start = state.metadata.current_snapshot_id
    require_committed(
        commit(lake, state, RowDelta(added_deletes=deletes, vector_targets=homes, start_snapshot_id=start))
    )


def bench_small_commits(folder: Path) -> bool:
    """Measure a one-file append and a one-row delete, alternating between trees of one leaf to many."""
    positions = {(n, v): b.many_files(folder / f"{n}-v{v}", v, n, FILES) for n in LEAVES for v in (2, 3, 4)}
    found = {name: _commits(folder, name, positions) for name in WAYS}
    peers = [_pyiceberg_append(folder / f"{n}-peer", positions[n, 2]) for n in LEAVES]
    peer = [_middle(costs) for costs in costs_by_round(peers, ROUNDS)]
    print("a one-file append, then a one-row delete: CPU ms / kB of metadata written")
    print("  leaves " + "".join(f"{name:>26}" for name in (*WAYS, "PyIceberg append")))
    for at, leaves in enumerate(LEAVES):
        cells = [", ".join(_cell(_middle(kind[at])) for kind in found[name]) for name in WAYS]
        print(f"  {leaves:<7}" + "".join(f"{cell:>26}" for cell in (*cells, _cell(peer[at]))))
    appends, deletes = found["v4 adaptive"]
    good = _is_flat("append", appends), _is_flat("delete", deletes)
    return all(good)


def _commits(
    folder: Path, name: str, positions: dict[tuple[int, int], str]
) -> tuple[list[list[Cost]], list[list[Cost]]]:
    """Return the cost of appends and deletes on each tree, in each round."""
    version, properties = WAYS[name]
    trees = [_Tree.register(folder / f"{n}-{name}", positions[n, version], properties) for n in LEAVES]
    appends = costs_by_round([(tree.append, tree.home) for tree in trees], ROUNDS)
    for tree in trees:
        tree.choose_deletes()
    return appends, costs_by_round([(tree.delete, tree.home) for tree in trees], ROUNDS)


def costs_by_round(cases: Sequence[tuple[Step, Path]], rounds: int, warm: int = 1) -> list[list[Cost]]:
    """Return the costs of each case, round by round, so that other load of the machine affects all cases alike."""
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
    """Return whether small commits on 1,000 leaves cost as much and write as many bytes as on one leaf."""
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
    """Return the growth of CPU time, as the median over pairs of consecutive commits because machines are noisy."""
    return median(more / less for (less, _), (more, _) in zip(few, many, strict=True))


def delete_entries(state: Any, read: ScanPlan, positions: Iterable[int]) -> list[tuple[RemovedFiles, EntryTable]]:
    """Return a delete of one row for each of the files, and the manifest that lists the file."""
    files = [read.files.take([int(at)]) for at in positions]
    return [(RemovedFiles(f, manifests=read.manifests), _delete_entry(state, f, n)) for n, f in enumerate(files)]


def _delete_entry(state: Any, file: EntryTable, n: int) -> EntryTable:
    """Return a delete of one row of a file in the form of the format version; its bytes are never read."""
    columns: dict[str, Any] = {"content": int(Content.POSITION_DELETES), "record_count": 1}
    columns |= {"referenced_data_file": file["file_path"], "file_path": f"file:///bench/d{n}.parquet"}
    if state.metadata.format_version > 2:
        columns |= {"file_path": f"file:///bench/v{n}.puffin", "file_format": "PUFFIN"}
        columns |= {"content_offset": 4, "content_size_in_bytes": 40}
    return file.with_columns(**columns)


def _pyiceberg_append(folder: Path, location: str) -> tuple[Step, Path]:
    folder.mkdir(parents=True)
    stock = SqlCatalog("stock", uri=f"sqlite:///{folder}/stock.db", warehouse=folder.as_uri())
    stock.create_namespace("b")
    state = stock.register_table("b.t", location)

    def append(n: int) -> None:
        with state.transaction() as tx, tx.update_snapshot().fast_append() as update:
            update.append_data_file(b.new_file(f"p{n}"))

    return append, Path(location.removeprefix("file://")).parent


def run_bench(bench: Callable[[Path], bool]) -> None:
    """Run a benchmark in its own folder; exit with 1 if it misses a target."""
    folder = Path(tempfile.mkdtemp(prefix="neve-bench-"))
    try:
        good = bench(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    run_bench(bench_small_commits)
