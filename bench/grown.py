"""What small commits cost on an adaptive tree that grew commit by commit: names and numbers of all leaves differ.

Part of `make bench-metadata`. Each leaf came with a commit of its own, of days of its own, under the spec of its time.
Then a turn of the root is measured: one-file appends until the files it lists have filled it and moved to a leaf, and
as many one-row deletes of files anywhere. A figure is the mean over a turn. History is expired before: what the table's
own JSON costs is no matter of leaves.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench import metadata as b
from bench.tree import ADAPTIVE, FLAT, Cost, delete_of
from neve.catalog import NeveCatalog, open_catalog
from neve.commit.actions import Append, Removed, RowDelta
from neve.commit.outcome import require
from neve.commit.protocol import commit
from neve.model.partition import Specs
from neve.ops.planning import plan

TREES = (1, 1_000)
ROWS = 250  # files that a root lists at most: neve.root.inline-rows
YEAR = 365


def bench_turns(folder: Path) -> bool:
    """A turn of appends and one of deletes on a tree of one leaf and on one of a thousand."""
    print(f"a turn of the root, {ROWS} commits, on adaptive trees that grew: CPU ms / kB of metadata a commit")
    found = {leaves: _turns(folder / str(leaves), leaves) for leaves in TREES}
    for leaves, costs in found.items():
        print(f"  {leaves:<7}" + "".join(f"{name:>12} {ms:.0f} / {kb:.0f}" for name, (ms, kb) in costs.items()))
    few, many = found[TREES[0]], found[TREES[-1]]
    verdicts = [_is_flat(name, few[name], many[name]) for name in few]  # each is to be printed
    return all(verdicts)


def _is_flat(name: str, few: Cost, many: Cost) -> bool:
    cpu, size = many[0] / few[0], many[1] / few[1]
    verdicts = f"CPU {cpu:.1f}x {b.verdict(cpu <= FLAT)}, bytes {size:.1f}x {b.verdict(size <= FLAT)}"
    print(f"  {name}s on 1 to {TREES[-1]} leaves: {verdicts} (target {FLAT}x)")
    return cpu <= FLAT and size <= FLAT


def _turns(folder: Path, leaves: int) -> dict[str, Cost]:
    lake, home = _grown(folder, leaves)
    rng = np.random.default_rng(3)

    def append(n: int) -> None:
        state = lake.load_table("b.t")
        place = (leaves * ROWS + n, 1, rng, state.metadata.location, (YEAR, YEAR + 1))
        require(commit(lake, state, Append(b.random_entries(Specs.of(state.metadata), 2, *place), fast=True)))

    def delete(n: int) -> None:
        state, (homes, deltas) = lake.load_table("b.t"), chosen[n]
        start = state.metadata.current_snapshot_id
        require(commit(lake, state, RowDelta(added_deletes=deltas, homes=homes, start_snapshot_id=start)))

    costs = {"append": _turn(append, home)}
    chosen = _chosen(lake)
    return costs | {"delete": _turn(delete, home)}


def _grown(folder: Path, leaves: int) -> tuple[NeveCatalog, Path]:
    """A table of as many commits as leaves, of which it has forgotten all but the last."""
    home = Path(b.many_files(folder / "t", 4, 1, ROWS, ADAPTIVE).removeprefix("file://")).parent
    lake, rng = open_catalog(folder / "lake"), np.random.default_rng(5)
    lake.create_namespace("b")
    lake.register_table("b.t", (home / "00000-bench.metadata.json").as_uri())
    with b.no_fsync():
        for n in range(1, leaves):
            state = lake.load_table("b.t")
            specs, spec_id, day = Specs.of(state.metadata), 3 * n // leaves, n * YEAR // leaves
            place = (n * ROWS, ROWS, rng, state.metadata.location, (day, day + 1))
            require(commit(lake, state, Append(b.random_entries(specs, spec_id, *place), fast=True)))
    return _forgetful(lake, folder, home), home


def _forgetful(lake: NeveCatalog, folder: Path, home: Path) -> NeveCatalog:
    document = json.loads(Path(lake.load_table("b.t").metadata_location.removeprefix("file://")).read_text())
    last = document["current-snapshot-id"]
    kept = [{k: v for k, v in s.items() if k != "parent-snapshot-id"} for s in document["snapshots"]]
    document |= {"snapshots": [s for s in kept if s["snapshot-id"] == last], "metadata-log": []}
    document |= {"snapshot-log": [s for s in document["snapshot-log"] if s["snapshot-id"] == last]}
    own = home / "00000-young.metadata.json"
    own.write_text(json.dumps(document))
    young = open_catalog(folder / "young")
    young.create_namespace("b")
    young.register_table("b.t", own.as_uri())
    return young


def _chosen(lake: NeveCatalog) -> list[tuple[Removed, object]]:
    """Files of leaves everywhere, each with a delete of a row of it."""
    state = lake.load_table("b.t")
    read = plan(state.io, state.metadata, state.metadata.current_snapshot())
    places = np.random.default_rng(11).choice(len(read.files), ROWS + 1, replace=False)
    files = [read.files.take([int(at)]) for at in places]
    return [(Removed(f, manifests=read.manifests), delete_of(state, f, n)) for n, f in enumerate(files)]


def _turn(step: Callable[[int], None], home: Path) -> Cost:
    before = {e.name for e in os.scandir(home)}
    seconds, _ = b.cpu_of(lambda: [step(n) for n in range(ROWS + 1)])
    new = (e for e in os.scandir(home) if e.name not in before and not e.name.endswith(".json"))
    return seconds * 1000 / (ROWS + 1), sum(e.stat().st_size for e in new) / 1000 / (ROWS + 1)


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="neve-bench-"))
    try:
        good = bench_turns(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
