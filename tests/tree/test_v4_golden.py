"""Golden trees: small histories, and the rows of the root and its leaves that they must lead to, by field id.

The expected rows lie in `tests/cases/v4`, one file a history. They were derived by hand from the format's description
and the decision page alone, by somebody who had not seen what the writer makes of them; what both leave open (numbers
in names, ranges of our own struct) was settled afterwards. Snapshots are called S1, S2 … and the commits that wrote
a leaf c1, c2 …; lengths of manifests are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from neve.commit.actions import Append, DeleteFiles, RewriteFiles, RowDelta
from neve.plan.delete_index import match_deletes
from neve.tree.entries import Content
from tests.support import v4_trees as v4
from tests.support.metadata_tables import Kit, plus, removed

CASES = Path(__file__).parents[1] / "cases" / "v4"
HISTORIES: dict[str, Callable[[Path], Kit]] = {}


def history(make: Callable[[Path], Kit]) -> Callable[[Path], Kit]:
    HISTORIES[make.__name__] = make
    return make


@history
def append(folder: Path) -> Kit:
    t = Kit.create(folder, 4)
    t.ok(Append(t.data("a", "b", ids=(1, 9))))
    t.ok(Append(t.data("c", region=None)))
    return t


@history
def evolve(folder: Path) -> Kit:
    t = Kit.create(folder, 4)
    t.ok(Append(t.data("a")))
    t.default_spec(1)
    t.ok(Append(t.new("b", bucket=3)))
    return t


@history
def row_delta(folder: Path) -> Kit:
    t = Kit.create(folder, 4)
    files = t.data("a", "b", ids=(1, 9))
    t.ok(Append(files))
    t.ok(RowDelta(t.new("c"), t.vector("v1", files.take([0]), [1, 2])))
    return t


@history
def second_vector(folder: Path) -> Kit:
    t = Kit.create(folder, 4)
    file = t.data("a")
    t.ok(Append(file))
    first = t.vector("v1", file, [1])
    t.ok(RowDelta(added_deletes=first))
    second = t.vector("v2", file, [1, 5])
    t.ok(RowDelta(added_deletes=second, removed_deletes=removed(first), start_snapshot_id=t.head_id))
    return t


@history
def born_with_vector(folder: Path) -> Kit:
    t = Kit.create(folder, 4)
    file = t.data("a")
    t.ok(RowDelta(file, t.vector("v1", file, [0, 7])))
    return t


@history
def delete(folder: Path) -> Kit:
    t = Kit.create(folder, 4)
    files = t.data("a", "b")
    t.ok(Append(files))
    t.ok(RowDelta(added_deletes=t.vector("v1", files.take([0]), [3])))
    t.ok(DeleteFiles(removed(files.take([0]))))
    return t


@history
def compaction(folder: Path) -> Kit:
    t = Kit.create(folder, 4)
    files = t.data("a", "b")
    t.ok(Append(files))
    vector = t.vector("v1", files.take([1]), [3])
    t.ok(RowDelta(added_deletes=vector))
    start = t.head()
    t.ok(
        RewriteFiles(
            removed_data=removed(files),
            removed_deletes=removed(vector),
            added_data=t.new("ab", rows=19),
            data_sequence_number=start.sequence_number,
            start_snapshot_id=start.snapshot_id,
        )
    )
    return t


@history
def upgrade(folder: Path) -> Kit:
    """A version 2 table with position deletes, upgraded; then a vector for one of its files, which says all of it."""
    t = Kit.create(folder, 2)
    files = t.data("a", "b")
    t.ok(Append(files))
    deletes = t.positions("d", of=files.take([0]))
    t.ok(RowDelta(added_deletes=deletes))
    t.upgrade(4)
    vector = t.vector("v1", files.take([0]), [0, 4])
    t.ok(RowDelta(added_deletes=vector, removed_deletes=removed(deletes), start_snapshot_id=t.head_id))
    return t


@history
def unpartitioned(folder: Path) -> Kit:
    t = Kit.create(folder, 4, default_spec=2)
    t.ok(Append(t.new("a")))
    return t


@history
def four_specs(folder: Path) -> Kit:
    """Files of four specs in the root itself: one manifest, one tuple, four meanings."""
    t = Kit.create(folder, 4, neve__root__inline_files="10")
    t.ok(Append(plus(*(t.data(f"s{spec}", spec=spec, bucket=2) for spec in range(4)))))
    return t


def tree_of(t: Kit) -> list[str]:
    """The rows of the root of the head and of its leaves, as text."""
    root = t.head().root_manifest
    names = {f"{t.location}/": "<table>/"}
    for n, snapshot in enumerate(t.metadata.snapshots, 1):
        names[snapshot.snapshot_id] = f"S{n}"
        names[f"/{snapshot.snapshot_id}-m"] = f"/c{n}-m"
        names[re.search(r"-1-(.*)\.(?:parquet|avro)$", snapshot.tree_root_location)[1]] = f"c{n}"
    lines = ["root", *_shown(root, names)]
    for row in v4.rows_of(root):
        if row[v4.CONTENT] == 3 and row[v4.VERSION] == 4:
            name = v4.shown([{"100": row["100"]}], names)[0]
            lines += [f"leaf {name}", *_shown(f"{t.location}/{row['100']}", names)]
    return lines


def _shown(path: str, names: dict) -> list[str]:
    rows = v4.rows_of(path)
    for row in rows:
        if row[v4.CONTENT] > 2:
            row.pop("104")
    return v4.shown(rows, names)


def expected(name: str) -> list[str]:
    lines = (CASES / f"{name}.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", HISTORIES)
def test_the_rows_of_a_tree_are_those_written_down(name: str, tmp_path: Path):
    assert tree_of(HISTORIES[name](tmp_path)) == expected(name)


@pytest.mark.parametrize("name", HISTORIES)
def test_a_reader_that_goes_row_by_row_finds_the_same_files_and_vectors(name: str, tmp_path: Path):
    t = HISTORIES[name](tmp_path)
    older = {m.path for m in t.manifests() if m.leaf is not None and not m.leaf.is_tracked}
    entries = t.entries(all_details=True)
    tracked = [m.path not in older for m in t.manifests()]
    own = entries.filter([tracked[m] for m in entries["manifest"].to_pylist()]).live()
    data, deletes = own.of_content(Content.DATA), own.of_content(Content.POSITION_DELETES)
    pairs = {p["file"]: p["delete"] for p in match_deletes(data, deletes).to_pylist()}
    ours = sorted(
        (
            row["file_path"],
            row["spec_id"],
            tuple((c[1:], row[c]) for c in sorted(u.column for u in t.specs.union) if row[c] is not None),
            row["sequence_number"],
            row["file_sequence_number"],
            row["snapshot_id"],
            row["first_row_id"],
            _vector(deletes, pairs.get(at)),
        )
        for at, row in enumerate(data.columns.to_pylist())
    )
    theirs = sorted(
        (f.location, f.spec_id, f.partition, f.number, f.file_number, f.snapshot_id, f.first_row_id, f.vector)
        for f in v4.live_files(t.head().root_manifest, t.location)
    )
    assert ours == theirs


def _vector(deletes, at: int | None):
    if at is None:
        return None
    row = deletes.columns.slice(at, 1).to_pylist()[0]
    return (row["file_path"], row["content_offset"], row["content_size_in_bytes"], row["record_count"])


def test_leaves_are_named_by_the_snapshot_that_wrote_them(tmp_path: Path):
    t = append(tmp_path)
    names = [m.path.rsplit("/", 1)[1] for m in t.manifests()]
    assert sorted(names) == sorted(f"{s.snapshot_id}-m0.parquet" for s in t.metadata.snapshots)
