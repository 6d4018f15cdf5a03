"""Which delete files apply to which data files, one scenario each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from neve.commit.actions import Append, RowDelta
from neve.errors import TableError
from neve.ops.plan_scan import plan_snapshot_scan as scan_plan
from neve.plan.delete_index import match_deletes
from neve.plan.metrics_filter import STATISTICS
from neve.tree.entries import MIXED_SPECS, Content, Status
from tests.support.entry_tables import entries, spec, specs_of
from tests.support.metadata_tables import Kit, name_of, plus
from tests.support.tables import local

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "region", StringType(), required=False)
)
EVERYTHING, BY_REGION, BY_BUCKET = 0, 1, 2
SPECS = specs_of(
    SCHEMA,
    spec(0),
    spec(1, (1000, 2, "identity", "region")),
    spec(2, (1000, 2, "identity", "region"), (1001, 1, "bucket[4]", "b")),
)
EU: dict[str, Any] = {"spec_id": BY_REGION, "partition": ("eu",)}
US: dict[str, Any] = {"spec_id": BY_REGION, "partition": ("us",)}


POSITIONS = {"content": Content.POSITION_DELETES}
VECTOR = {"content": Content.POSITION_DELETES, "file_format": "PUFFIN"}
EQUALITY = {"content": Content.EQUALITY_DELETES, "equality_ids": [1]}


def pairs(data: list[dict[str, Any]], deletes: list[dict[str, Any]], detail: Any = ()) -> list[tuple[int, int]]:
    named = [{"file_path": f"d{i}"} | d for i, d in enumerate(deletes)]
    found = match_deletes(entries(SPECS, data, detail), entries(SPECS, named, detail))
    return list(zip(found["file"].to_pylist(), found["delete"].to_pylist(), strict=True))


def test_scan_position_seq_ge() -> None:
    data = [EU | {"sequence_number": n} for n in (4, 5, 6)]
    assert pairs(data, [EU | POSITIONS | {"sequence_number": 5}]) == [(0, 0), (1, 0)]
    named = [EU | POSITIONS | {"sequence_number": 5, "referenced_data_file": f"f{i}"} for i in range(3)]
    assert pairs(data, named) == [(0, 0), (1, 1)]


def test_scan_equality_seq_gt() -> None:
    data = [EU | {"sequence_number": n} for n in (4, 5, 6)]
    assert pairs(data, [EU | EQUALITY | {"sequence_number": 5}]) == [(0, 0)]


def test_scan_global_equality() -> None:
    data = [
        {"spec_id": EVERYTHING},
        EU,
        US,
        {"spec_id": BY_BUCKET, "partition": ("eu", 3)},
        EU | {"sequence_number": 2},
    ]
    everywhere = {"spec_id": EVERYTHING, "sequence_number": 2} | EQUALITY
    assert pairs(data, [everywhere]) == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_scan_partition_scope() -> None:
    data = [EU, US, {"spec_id": BY_BUCKET, "partition": ("eu", None)}, {"spec_id": EVERYTHING}]
    assert pairs(data, [EU | EQUALITY | {"sequence_number": 2}]) == [(0, 0)]


def test_scan_unrelated_partition() -> None:
    assert pairs([US], [EU | POSITIONS, EU | EQUALITY | {"sequence_number": 9}]) == []
    nowhere = {"spec_id": BY_REGION, "partition": (None,)}
    assert pairs([{"spec_id": BY_BUCKET, "partition": (None, None)}, nowhere], [nowhere | POSITIONS]) == [(1, 0)]


def test_scan_position_deletes_of_an_unpartitioned_spec_stay_in_it() -> None:
    assert pairs([EU, {"spec_id": EVERYTHING}], [{"spec_id": EVERYTHING} | POSITIONS]) == [(1, 0)]


def test_scan_vector_beats_positions() -> None:
    vector = EU | VECTOR | {"referenced_data_file": "f0"}
    scoped = EU | POSITIONS | {"referenced_data_file": "f0"}
    equality = EU | EQUALITY | {"sequence_number": 2}
    assert pairs([EU, EU], [scoped, EU | POSITIONS, vector, equality]) == [(0, 2), (0, 3), (1, 1), (1, 3)]


def test_scan_two_vectors() -> None:
    vector = EU | VECTOR | {"referenced_data_file": "f0"}
    with pytest.raises(TableError, match=r"f0 has 2 deletion vectors \(d0, d1\)"):
        pairs([EU], [vector, vector])


def test_scan_vector_too_old() -> None:
    vector = EU | VECTOR | {"referenced_data_file": "f0", "sequence_number": 3}
    assert pairs([EU | {"sequence_number": 3}], [vector]) == [(0, 0)]
    with pytest.raises(TableError, match=r"d0 is older than its data file f0: sequence number 3 is less than 4"):
        pairs([EU | {"sequence_number": 4}], [vector])


@pytest.mark.parametrize("kind", [VECTOR, POSITIONS])
@pytest.mark.parametrize("elsewhere", [US, {"spec_id": BY_BUCKET, "partition": ("eu", None)}, {"spec_id": EVERYTHING}])
def test_scan_vector_partition_mismatch(kind: dict[str, Any], elsewhere: dict[str, Any]) -> None:
    with pytest.raises(
        TableError, match=r"d0 is of PartitionKey.*f0 is of PartitionKey\(spec_id=1, values=\('eu',\)\)"
    ):
        pairs([EU], [elsewhere | kind | {"referenced_data_file": "f0"}])


def test_scan_vector_without_a_file() -> None:
    with pytest.raises(TableError, match="d0 names no data file"):
        pairs([EU], [EU | VECTOR])


def _range(lower: int | None, upper: int | None, nulls: int | None = 0, values: int = 10) -> dict[str, Any]:
    known = {"value_counts": {1: values}, "null_value_counts": None if nulls is None else {1: nulls}}
    bounds = {"lower_bounds": lower, "upper_bounds": upper}
    return known | {k: None if v is None else {1: to_bytes(LongType(), v)} for k, v in bounds.items()}


def test_scan_eq_stats_prune() -> None:
    delete = EU | EQUALITY | {"sequence_number": 2} | _range(10, 20)
    data = [EU | _range(lo, up) for lo, up in ((0, 9), (0, 10), (20, 30), (21, 30), (None, 9), (None, 12))]
    assert pairs(data, [delete], STATISTICS) == [(1, 0), (2, 0), (5, 0)]
    assert pairs(data, [delete]) == [(i, 0) for i in range(6)], "without statistics every file of the partition"


def test_scan_eq_nulls_prune() -> None:
    only_nulls = EU | EQUALITY | {"sequence_number": 2} | _range(None, None, nulls=10)
    no_nulls = EU | EQUALITY | {"sequence_number": 2} | _range(0, 99)
    data = [
        EU | _range(0, 9),
        EU | _range(0, 9, nulls=1),
        EU | _range(None, None, nulls=10),
        EU | _range(0, 9, nulls=None),
    ]
    assert pairs(data, [only_nulls, no_nulls], STATISTICS) == [(0, 1), (1, 0), (1, 1), (2, 0), (3, 0), (3, 1)]


def test_scan_positions_named_by_equal_bounds() -> None:
    path = {2147483546: b"f1"}
    named = EU | POSITIONS | {"lower_bounds": path, "upper_bounds": path}
    assert pairs([EU, EU], [named], STATISTICS) == [(1, 0)]
    with pytest.raises(TableError, match="d0 is of PartitionKey"):
        pairs([EU, US], [named], STATISTICS)


def test_scan_positions_outside_the_paths_of_the_delete_file() -> None:
    some = {"lower_bounds": {2147483546: b"f1"}, "upper_bounds": {2147483546: b"f2"}}
    assert pairs([EU, EU, EU, EU], [EU | POSITIONS | some], STATISTICS) == [(1, 0), (2, 0)]


def test_scan_equality_without_columns() -> None:
    with pytest.raises(TableError, match="d0 names no columns"):
        pairs([EU], [EU | {"content": Content.EQUALITY_DELETES}])


def test_scan_files_not_committed_yet_are_the_newest() -> None:
    fresh = EU | {"sequence_number": None}
    assert pairs([EU, fresh], [fresh | POSITIONS]) == [(0, 0), (1, 0)]
    assert pairs([EU, fresh], [fresh | EQUALITY]) == [(0, 0)]


# --- the tree of version 4 ---


def _planned(t: Kit) -> dict[str, str | None]:
    """The data files a scan reads, each with the vector that applies to it."""
    plan = scan_plan(t.io, t.metadata, t.head())
    vectors = {p["file"]: plan.deletes["file_path"][p["delete"]].as_py() for p in plan.attached.to_pylist()}
    names = map(name_of, plan.files["file_path"].to_pylist())
    return {name: name_of(vectors[at]) if at in vectors else None for at, name in enumerate(names)}


def test_v4_replaced_modified_pair(tmp_path: Path) -> None:
    t = Kit.create(tmp_path, 4)
    files = t.data("a", "b")
    t.ok(Append(files))
    t.ok(RowDelta(added_deletes=t.vector("v", files.take([0]), [1])))
    statuses = [(name_of(row["file_path"]), Status(row["status"]).name) for row in t.entries().columns.to_pylist()]
    assert sorted(statuses) == [("a", "MODIFIED"), ("a", "REPLACED"), ("b", "EXISTING"), ("v", "ADDED")]
    assert _planned(t) == {"a": "v", "b": None}


def test_v4_born_with_vector(tmp_path: Path) -> None:
    t = Kit.create(tmp_path, 4)
    file = t.data("a")
    t.ok(RowDelta(file, t.vector("v", file, [1])))
    assert t.statuses() == {"a": "ADDED", "v": "ADDED"}
    assert _planned(t) == {"a": "v"}
    assert t.deleted_positions() == {"a": [1]}


def test_v4_union_partition(tmp_path: Path) -> None:
    t = Kit.create(tmp_path, 4, neve__root__inline_files="10")
    files = [t.data(f"s{s}", spec=s, bucket=3) for s in range(4)]
    t.ok(Append(plus(*files)))
    (manifest,) = t.manifests()
    assert manifest.spec_id == MIXED_SPECS
    live = t.live()
    found = {live["spec_id"][i].as_py(): live.partition_key(i).values for i in range(4)}
    assert found == {0: ("eu",), 1: ("eu", 3), 2: None, 3: None}
    plan = scan_plan(t.io, t.metadata, t.head(), where=EqualTo("region", "us"))
    assert {name_of(p) for p in plan.files["file_path"].to_pylist()} == {"s2", "s3"}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_v4_v3_leaf_carried(tmp_path: Path, version: int) -> None:
    t = Kit.create(tmp_path, version)
    files = t.data("a", "b")
    t.ok(Append(files))
    if version > 1:
        t.ok(RowDelta(added_deletes=t.deletes("d", files.take([0]))))
    before = {m.path for m in t.manifests()}
    deletes = {"a": "d", "b": None} if version > 1 else {"a": None, "b": None}
    t.upgrade(4)
    assert _planned(t) == deletes, "nothing was rewritten, and everything is read"
    t.ok(Append(t.data("c"), fast=True))
    assert t.head().root_manifest is not None
    assert t.head().manifest_list is None
    assert before < {m.path for m in t.manifests()}, "manifests of the old version are leaves of the new root"
    assert _planned(t) == {**deletes, "c": None}
    assert len(set(t.by_name("first_row_id", deletes=False).values())) == 3, "every file has row ids of its own"


def test_v4_unpartitioned_parquet(tmp_path: Path) -> None:
    t = Kit.of_specs(tmp_path, 4, PartitionSpec(spec_id=0))
    t.ok(Append(t.plain("a")))
    t.ok(RowDelta(added_deletes=t.vector("v", t.plain("a"), [1])))
    for path in (t.head().root_manifest, *(m.file for m in t.manifests())):
        names = pq.read_schema(local(path)).names
        assert "partition" not in names, "Parquet knows no empty struct"
        assert "content_stats" not in names
    assert _planned(t) == {"a": "v"}
