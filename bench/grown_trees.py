"""Cost of small commits on an adaptive tree that grew commit by commit: names and numbers of all leaves differ.

Part of `make bench-metadata`. Each leaf has its own commit and its own days, under the spec at that time. Then a turn
of the root is measured: one-file appends until the files it lists have filled it and moved to a leaf, and as many
one-row deletes of files anywhere. A figure is the mean over a turn; the ratio of CPU time is the median of pairs of
commits, one on each tree. History is expired before, because the cost of the table metadata does not depend on leaves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import numpy as np

from bench import metadata as b
from bench.tree import ADAPTIVE, FLAT, Step, commit_delete, costs_by_round, cpu_growth, delete_entries, run_bench
from neve.catalog import NeveCatalog, open_catalog
from neve.commit.actions import Append, RemovedFiles
from neve.commit.outcome import require_committed
from neve.commit.protocol import commit
from neve.model.partition import Specs
from neve.ops.plan_scan import plan_snapshot_scan
from neve.tree.entries import EntryTable

FEW, MANY = 1, 1_000  # leaves
ROWS = 250  # files that a root lists at most: neve.root.inline-rows
YEAR = 365


def bench_turns(folder: Path) -> bool:
    """Measure a turn of appends and one of deletes, alternating between a tree of one leaf and one of a thousand."""
    trees = [_Tree.create(folder / str(leaves), leaves) for leaves in (FEW, MANY)]
    print(f"a turn of the root, {ROWS + 1} commits, on adaptive trees that grew: CPU ms / kB of metadata a commit")
    appends = _is_flat("append", [(tree.append, tree.home) for tree in trees])
    for tree in trees:
        tree.choose_deletes()
    deletes = _is_flat("delete", [(tree.delete, tree.home) for tree in trees])
    return appends and deletes


def _is_flat(name: str, cases: list[tuple[Step, Path]]) -> bool:
    costs = costs_by_round(cases, ROWS + 1, warm=0)
    (few, less), (many, more) = ([mean(c[unit] for c in case) for unit in (0, 1)] for case in costs)
    cpu, size = cpu_growth(*costs), more / less
    verdicts = f"CPU {cpu:.1f}x {b.verdict(cpu <= FLAT)}, bytes {size:.1f}x {b.verdict(size <= FLAT)}"
    print(f"  {name}s on {FEW} leaf {few:.0f} / {less:.0f}, on {MANY} leaves {many:.0f} / {more:.0f}: {verdicts}")
    return cpu <= FLAT and size <= FLAT


@dataclass
class _Tree:
    """A table that has grown by commits, and the commits to measure."""

    lake: NeveCatalog
    home: Path
    leaves: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))
    deletes: list[tuple[RemovedFiles, EntryTable]] = field(default_factory=list)

    @classmethod
    def create(cls, folder: Path, leaves: int) -> _Tree:
        return cls(*_create_grown_table(folder, leaves), leaves)

    def append(self, n: int) -> None:
        state = self.lake.load_table("b.t")
        arguments = (self.leaves * ROWS + n, 1, self.rng, state.metadata.location, (YEAR, YEAR + 1))
        files = b.random_entries(Specs.of(state.metadata), 2, *arguments)
        require_committed(commit(self.lake, state, Append(files, fast=True)))

    def choose_deletes(self) -> None:
        """Choose files for deletes of one row each, from different leaves as long as there are any.

        A statement plans on the current snapshot, so its commit knows the leaves; here one plan serves all deletes.
        """
        state = self.lake.load_table("b.t")
        read = plan_snapshot_scan(state.io, state.metadata, state.metadata.current_snapshot())
        order = np.random.default_rng(11).permutation(len(read.files))
        firsts = np.sort(np.unique(read.files.numpy("manifest")[order], return_index=True)[1])
        positions = np.r_[order[firsts], np.delete(order, firsts)][: ROWS + 1]
        self.deletes = delete_entries(state, read, positions)

    def delete(self, n: int) -> None:
        commit_delete(self.lake, *self.deletes[n])


def _create_grown_table(folder: Path, leaves: int) -> tuple[NeveCatalog, Path]:
    """Create a table with one commit per leaf and a history of only the last commit."""
    home = Path(b.many_files(folder / "t", 4, 1, ROWS, ADAPTIVE).removeprefix("file://")).parent
    lake, rng = open_catalog(folder / "lake"), np.random.default_rng(5)
    lake.create_namespace("b")
    lake.register_table("b.t", (home / "00000-bench.metadata.json").as_uri())
    with b.no_fsync():
        for n in range(1, leaves):
            state = lake.load_table("b.t")
            specs, spec_id, day = Specs.of(state.metadata), 3 * n // leaves, n * YEAR // leaves
            arguments = (n * ROWS, ROWS, rng, state.metadata.location, (day, day + 1))
            require_committed(commit(lake, state, Append(b.random_entries(specs, spec_id, *arguments), fast=True)))
    return _without_history(lake, folder, home), home


def _without_history(lake: NeveCatalog, folder: Path, home: Path) -> NeveCatalog:
    document = json.loads(Path(lake.load_table("b.t").metadata_location.removeprefix("file://")).read_text())
    last = document["current-snapshot-id"]
    snapshots = [{k: v for k, v in s.items() if k != "parent-snapshot-id"} for s in document["snapshots"]]
    document |= {"snapshots": [s for s in snapshots if s["snapshot-id"] == last], "metadata-log": []}
    document |= {"snapshot-log": [s for s in document["snapshot-log"] if s["snapshot-id"] == last]}
    metadata_file = home / "00000-young.metadata.json"
    metadata_file.write_text(json.dumps(document))
    new_lake = open_catalog(folder / "young")
    new_lake.create_namespace("b")
    new_lake.register_table("b.t", metadata_file.as_uri())
    return new_lake


if __name__ == "__main__":
    run_bench(bench_turns)
