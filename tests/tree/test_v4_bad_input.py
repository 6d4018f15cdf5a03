"""Damaged and hostile version 4 trees: errors that name file and row, never a wrong row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.commit.actions import Append, RowDelta
from neve.errors import CorruptFile, TableError, UnsupportedFeature
from neve.ops.plan_scan import plan_snapshot_scan
from tests.support import v4_trees as v4
from tests.support.metadata_tables import Kit, plus

ID = b"PARQUET:field_id"


@pytest.fixture
def t(tmp_path: Path) -> Kit:
    """A table of three files in one leaf; one of them has a vector."""
    t = Kit.create(tmp_path, 4)
    files = t.data("a", "b", "c")
    t.ok(Append(files))
    t.ok(RowDelta(added_deletes=t.vector("v1", files.take([1]), [3])))
    return t


def leaf_of(t: Kit) -> str:
    (row,) = v4.rows_of(t.head().root_manifest)
    return f"{t.location}/{row['100']}"


def changed(path: str, change: Callable[[list[dict]], None]) -> None:
    """Write a manifest anew with other values."""
    file = v4.local(path)
    rows, schema = pq.read_table(file).to_pylist(), pq.read_schema(file)
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, with_vectors(schema)), file, store_schema=False)


def with_vectors(schema: pa.Schema) -> pa.Schema:
    """The schema of a manifest with the field of manifest vectors, which a root without any leaves out."""
    at = schema.get_field_index("manifest_info")
    if at < 0:
        return schema
    info, own = schema.field(at), pa.field("dv", pa.binary(), metadata={ID: b"522"})
    fields = [*(f for f in info.type if f.name != own.name), own]
    return schema.set(at, info.with_type(pa.struct(fields)))


def put(row: int, **values: object) -> Callable[[list[dict]], None]:
    def change(rows: list[dict]) -> None:
        for name, value in values.items():
            at = rows[row]
            *outer, last = name.split("__")
            for step in outer:
                at = at[step]
            at[last] = value

    return change


BAD_ROWS = {
    "an unknown status": (put(2, tracking__status=7), CorruptFile, "status 7 in row 2"),
    "a position delete file": (put(0, content_type=1), CorruptFile, "content type 1 in row 0"),
    "an unknown content": (put(3, content_type=9), CorruptFile, "content type 9 in row 3"),
    "a newer version": (put(1, format_version=5), UnsupportedFeature, "Row 1 of .* format version 5"),
    "a leaf in a leaf": (put(0, content_type=3), CorruptFile, "manifest .*row 0"),
    "a path out of the table": (put(3, location="../other/x.parquet"), CorruptFile, r"row 3 with '\.\./other"),
    "an existing row without a number": (put(3, tracking__sequence_number=None), CorruptFile, "none in row 3"),
    "two live rows for one file": (put(3, location="data/a.parquet"), CorruptFile, "row 0 .* row 3"),
    "the replaced state alive again": (put(1, tracking__status=0), CorruptFile, "row 1 .* row 2"),
    "an unknown spec": (put(0, spec_id=99), TableError, "spec 99"),
}


@pytest.mark.parametrize("what", BAD_ROWS)
def test_a_bad_row_of_a_leaf_is_named(t: Kit, what: str):
    change, error, message = BAD_ROWS[what]
    leaf = leaf_of(t)
    changed(leaf, change)
    shrink_stated_length(t)
    with pytest.raises(error, match=message) as raised:
        t.entries()
    assert Path(leaf).name in str(raised.value)


def shrink_stated_length(t: Kit) -> None:
    """Let the root state a length that any file has: damage is to be found in the rows."""

    def shrink(rows: list[dict]) -> None:
        for row in rows:
            row["file_size_in_bytes"] = 1

    changed(t.head().root_manifest, shrink)


BAD_ROOTS = {
    "an unknown status": (put(0, tracking__status=5), "status 5 in row 0"),
    "no number": (put(0, tracking__sequence_number=None), "sequence_number .* row 0"),
    "two numbers": (put(0, tracking__file_sequence_number=1), "2 and 1 in row 0"),
    "no counts": (put(0, manifest_info=None), "manifest_info .* row 0"),
    "a vector that does not decode": (put(0, manifest_info__dv=b"\7nonsense"), "manifest vector"),
    "a vector longer than the leaf": (put(0, manifest_info__dv=bytes.fromhex("01010000010000000109")), "position"),
}


@pytest.mark.parametrize("what", BAD_ROOTS)
def test_a_bad_row_of_a_root_is_named(t: Kit, what: str):
    change, message = BAD_ROOTS[what]
    changed(t.head().root_manifest, change)
    with pytest.raises(CorruptFile, match=message):
        t.entries()


def test_a_leaf_that_is_listed_twice_is_refused(t: Kit):
    changed(t.head().root_manifest, lambda rows: rows.append(dict(rows[0])))
    with pytest.raises(CorruptFile, match="row 0 and row 1"):
        t.manifests()


def test_one_file_in_two_leaves_is_refused_with_both_places(t: Kit):
    t.ok(Append(t.data("a"), fast=True))
    with pytest.raises(CorruptFile, match=r"a\.parquet in row 0 of .* and in row 0 of"):
        plan_snapshot_scan(t.io, t.metadata, t.head())


def test_rows_with_column_files_are_refused(t: Kit):
    path = v4.local(leaf_of(t))
    table = pq.read_table(path)
    schema = pq.read_schema(path)
    column_file = pa.struct(
        [
            pa.field("format_version", pa.int32(), metadata={ID: b"161"}),
            pa.field("location", pa.string(), metadata={ID: b"164"}),
        ]
    )
    element = pa.field("element", column_file, metadata={ID: b"170"})
    lists = pa.array([None, [], [{"format_version": 4, "location": "x"}], None], pa.list_(element))
    field = pa.field("column_files", lists.type, metadata={ID: b"160"})
    whole = pa.table([*table.columns, lists], schema=pa.schema([*schema, field]))
    pq.write_table(whole, path, store_schema=False)
    shrink_stated_length(t)
    with pytest.raises(UnsupportedFeature, match=f"Row 2 of .*{path.name} has column files"):
        t.entries()


def test_a_leaf_cut_short_is_refused_by_name(t: Kit):
    path = v4.local(leaf_of(t))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptFile, match=path.name):
        t.entries()


def test_random_damage_is_an_error_or_changes_nothing(t: Kit):
    """Bytes of the leaf are changed at random: a reader raises what it raises on purpose, or the damage was idle."""
    path = v4.local(leaf_of(t))
    whole, before = path.read_bytes(), t.live()["file_path"].to_pylist()
    for seed in range(60):
        random = np.random.default_rng(seed)
        data = bytearray(whole)
        for at in random.integers(0, len(data), 3):
            data[at] = random.integers(0, 256)
        path.write_bytes(bytes(data))
        try:
            found = t.live()["file_path"].to_pylist()
        except (TableError, UnsupportedFeature):
            continue
        assert len(found) == len(before)
    path.write_bytes(whole)


def test_columns_are_found_by_id_whatever_their_names_and_order(t: Kit):
    before = t.entries().columns.to_pylist()
    path = v4.local(leaf_of(t))
    table, schema = pq.read_table(path), pq.read_schema(path)
    order = list(reversed(range(len(schema))))
    renamed = pa.schema([schema.field(i).with_name(f"x{i}") for i in order])
    pq.write_table(pa.table([table.column(i) for i in order], schema=renamed), path, store_schema=False)
    shrink_stated_length(t)
    assert t.entries().columns.to_pylist() == before


def test_unknown_columns_are_passed_over(t: Kit):
    before = t.entries().columns.to_pylist()
    path = v4.local(leaf_of(t))
    table, schema = pq.read_table(path), pq.read_schema(path)
    extra = pa.field("later", pa.int64(), metadata={ID: b"9999"})
    pq.write_table(
        pa.table([*table.columns, pa.array([1] * 4)], schema=pa.schema([*schema, extra])), path, store_schema=False
    )
    shrink_stated_length(t)
    assert t.entries().columns.to_pylist() == before


def test_a_file_of_a_foreign_spec_keeps_the_fields_of_its_own_spec_only(tmp_path: Path):
    t = Kit.create(tmp_path, 4)
    t.ok(Append(plus(t.data("a", spec=0), t.data("b", spec=1, bucket=3))))
    leaves = {row["141"]: f"{t.location}/{row['100']}" for row in v4.rows_of(t.head().root_manifest)}
    changed(leaves[0], put(0, partition={"region": "eu", "id_bucket": 2}))
    shrink_stated_length(t)
    found = {row["spec_id"]: row["p1001"] for row in t.live().columns.to_pylist()}
    assert found == {0: None, 1: 3}
