"""Files chosen while leaves are read: the same that a filter keeps of all of them, with the same counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    IsNull,
    LessThan,
    NotEqualTo,
    NotNull,
    Or,
)

from neve.commit.actions import Append, DeleteFiles, RowDelta
from neve.errors import CorruptFile
from neve.ops.plan_scan import plan_snapshot_scan
from neve.plan.scan import ScanPlan, plan_scan
from neve.tree.entries import Content, EntryTable
from tests.support import v4_trees as v4
from tests.support.metadata_tables import Kit, name_of, plus, removed
from tests.tree.test_v4_bad_input import changed, put, shrink_stated_length

FILTERS: dict[str, BooleanExpression] = {
    "by partition": EqualTo("region", "eu"),
    "by statistics": LessThan("id", 5),
    "by both": And(EqualTo("region", "us"), GreaterThan("id", 20)),
    "by a bucket": EqualTo("id", 3),
    "by nulls": IsNull("region"),
    "by no nulls": NotNull("id"),
    "by either": Or(EqualTo("region", "asia"), LessThan("id", 2)),
    "by what is not": NotEqualTo("id", 5),
    "by nothing that is there": GreaterThan("id", 1_000_000),
}
WAYS = {
    "leaves": {},
    "adaptive": {"neve__root__inline_files": "1", "neve__manifest_vectors__enabled": "true"},
}


def lived(folder: Path, version: int, **properties: str) -> Kit:
    """Files of all specs with and without statistics in many leaves; some deleted, some with vectors."""
    t = Kit.create(folder, version, **properties)
    files = [
        t.data(f"f{n}", region=(None, "eu", "us", "asia")[n % 4], spec=n % 4, bucket=n % 4, **_ids(n))
        for n in range(40)
    ]
    for start in range(0, 40, 10):
        t.ok(Append(plus(*files[start : start + 10]), fast=True))
    t.ok(DeleteFiles(removed(files[4], files[11])))
    t.ok(RowDelta(added_deletes=plus(t.deletes("v1", files[6]), t.deletes("v2", files[7]))))
    return t


def _ids(n: int) -> dict[str, tuple[int, int]]:
    return {} if n % 5 == 4 else {"ids": (n, n + 200 if n % 7 == 0 else n)}


def by_all(t: Kit, where: BooleanExpression) -> ScanPlan:
    """The plan over everything that is read at once."""
    every = t.entries(all_details=True)
    deletes = every.of_content(Content.POSITION_DELETES, Content.EQUALITY_DELETES)
    return plan_scan(every.of_content(Content.DATA), deletes, t.metadata, predicate=where)


@pytest.mark.parametrize("way", WAYS)
def test_a_filter_chooses_the_same_files_as_from_everything_at_once(tmp_path: Path, way: str):
    t = lived(tmp_path, 4, **WAYS[way])
    for name, where in FILTERS.items():
        found, expected = plan_snapshot_scan(t.io, t.metadata, t.head(), where=where), by_all(t, where)
        columns = [c for c in EntryTable.schema(t.specs).names if c != "manifest"]
        rows, others = (
            sorted(p.files.columns.select([*columns]).to_pylist(), key=lambda r: r["file_path"])
            for p in (found, expected)
        )
        if way == "leaves":
            assert rows == others, name
        assert [r["file_path"] for r in rows] == [r["file_path"] for r in others], name
        assert found.stats.files == len(rows) and found.stats.rows == expected.stats.rows, name
        assert len(found.deletes) == len(expected.deletes), name


def test_files_come_in_the_order_of_the_tree_though_leaves_are_read_spec_by_spec(tmp_path: Path):
    t = lived(tmp_path, 4)
    assert [m.spec_id for m in t.manifests()] != sorted(m.spec_id for m in t.manifests())
    for name, where in FILTERS.items():
        files = plan_snapshot_scan(t.io, t.metadata, t.head(), where=where).files
        places = list(zip(files["manifest"].to_pylist(), files["row"].to_pylist(), strict=True))
        assert places == sorted(places), name


def test_what_is_left_out_is_counted_as_in_an_older_version(tmp_path: Path):
    """Trees prune leaves in different ways; of the leaves that are opened every file is accounted for."""
    tables = [lived(tmp_path / f"v{version}", version) for version in (3, 4)]
    for name, where in FILTERS.items():
        before, after = (plan_snapshot_scan(t.io, t.metadata, t.head(), where=where).stats for t in tables)
        assert (before.files, before.rows, before.bytes) == (after.files, after.rows, after.bytes), name
        for stats in (before, after):
            kept = stats.files_considered - stats.pruned_by_partition - stats.pruned_by_statistics
            assert kept == stats.files, name


def test_statistics_of_the_compared_columns_come_with_the_files(tmp_path: Path):
    """Whoever asks whether a file matches entirely needs them."""
    t = Kit.create(tmp_path, 4)
    t.ok(Append(t.data("a", ids=(1, 9))))
    found = plan_snapshot_scan(t.io, t.metadata, t.head(), where=LessThan("id", 100)).files.columns.to_pylist()
    assert [len(found[0][name]) for name in ("lower_bounds", "upper_bounds", "null_value_counts")] == [1, 1, 1]


def test_a_damaged_row_is_named_with_its_leaf_among_many(tmp_path: Path):
    t = lived(tmp_path, 4)
    leaf = t.manifests(deletes=False)[3]
    changed(leaf.file, put(0, tracking__status=9))
    shrink_stated_length(t)
    with pytest.raises(CorruptFile, match=rf"{v4.local(leaf.file).name}.*status 9 in row 0"):
        plan_snapshot_scan(t.io, t.metadata, t.head())


def test_a_path_out_of_the_table_is_named_with_its_leaf_among_many(tmp_path: Path):
    t = lived(tmp_path, 4)
    leaf = t.manifests(deletes=False)[2]
    changed(leaf.file, put(0, location="../x.parquet"))
    shrink_stated_length(t)
    with pytest.raises(CorruptFile, match=rf"{v4.local(leaf.file).name}.*\.\./x"):
        plan_snapshot_scan(t.io, t.metadata, t.head())


def test_names_of_the_plan_are_live_ones(tmp_path: Path):
    t = lived(tmp_path, 4)
    names = {name_of(p) for p in plan_snapshot_scan(t.io, t.metadata, t.head()).files["file_path"].to_pylist()}
    assert names == {f"f{n}" for n in range(40)} - {"f4", "f11"}
