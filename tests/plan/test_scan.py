"""The plan of a scan: what is read, what is left out, and in which order that is found out."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThan, GreaterThanOrEqual
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.types import DateType, LongType, NestedField, StringType, StructType, TimestampType

from neve.errors import TableError, UnknownName
from neve.model.partition import Specs
from neve.plan.delete_index import match_deletes
from neve.plan.metrics_filter import STATISTICS
from neve.plan.partition_filter import PartitionFilter
from neve.plan.scan import (
    ScanPlan,
    filter_partitions,
    needs_statistics,
    plan_scan,
    project_schema,
    prune_manifests,
    with_manifests,
)
from neve.tree.entries import Content, EntryTable, FieldSummary, Manifest, Status
from tests.support.entry_tables import entries, spec

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "ts", TimestampType(), required=False),
    NestedField(3, "region", StringType(), required=False),
    NestedField(4, "who", StructType(NestedField(5, "name", StringType()), NestedField(6, "city", StringType()))),
)
BY_DAY = spec(0, (1000, 2, "day", "ts_day"))
BY_REGION = spec(1, (1001, 3, "identity", "region"))


def _metadata(*specs: PartitionSpec, schema: Schema = SCHEMA) -> TableMetadataV2:
    return TableMetadataV2(
        location="here",
        last_column_id=6,
        schemas=[schema],
        current_schema_id=schema.schema_id,
        partition_specs=list(specs),
        default_spec_id=specs[-1].spec_id,
        last_partition_id=1001,
        sort_orders=[],
    )


METADATA = _metadata(BY_DAY, BY_REGION)
SPECS = Specs.of(METADATA)


def _range(lower: int, upper: int) -> dict[str, Any]:
    bounds = {"lower_bounds": {1: to_bytes(LongType(), lower)}, "upper_bounds": {1: to_bytes(LongType(), upper)}}
    return {"value_counts": {1: 10}, "null_value_counts": {1: 0}} | bounds


FILES = [
    {"spec_id": 0, "partition": (date(2024, 1, 1),)} | _range(0, 9),
    {"spec_id": 0, "partition": (date(2024, 1, 2),)} | _range(10, 19),
    {"spec_id": 1, "partition": ("eu",)} | _range(0, 9),
    {"spec_id": 1, "partition": ("eu",)} | _range(10, 19),
    {"spec_id": 1, "partition": ("us",)} | _range(0, 19),
    {"spec_id": 1, "partition": ("eu",), "status": Status.DELETED} | _range(0, 19),
]
DELETES = [
    {"spec_id": 1, "partition": ("eu",), "content": Content.POSITION_DELETES, "file_path": "d0"},
    {"spec_id": 1, "partition": ("us",), "content": Content.POSITION_DELETES, "file_path": "d1"},
    {"spec_id": 0, "partition": (date(2024, 1, 1),), "content": Content.POSITION_DELETES, "file_path": "d2"},
]


def _plan(**options: Any) -> ScanPlan:
    return plan_scan(entries(SPECS, FILES, STATISTICS), entries(SPECS, DELETES, STATISTICS), METADATA, **options)


def test_without_a_predicate_every_live_file_is_read_with_its_deletes() -> None:
    plan = _plan()
    assert plan.files["file_path"].to_pylist() == ["f0", "f1", "f2", "f3", "f4"]
    assert plan.attached.to_pylist() == [{"file": f, "delete": d} for f, d in ((0, 2), (2, 0), (3, 0), (4, 1))]
    assert plan.schema == SCHEMA
    assert plan.predicate is AlwaysTrue()
    assert (plan.stats.files, plan.stats.rows, plan.stats.bytes) == (5, 50, 5000)


def test_files_are_left_out_by_partition_and_by_statistics() -> None:
    plan = _plan(predicate=And(EqualTo("region", "eu"), GreaterThan("id", 9)))
    assert plan.files["file_path"].to_pylist() == ["f1", "f3"]
    assert plan.deletes["file_path"].to_pylist() == ["d0"]
    assert plan.attached.to_pylist() == [{"file": 1, "delete": 0}]
    stats = plan.stats
    assert (stats.files_considered, stats.pruned_by_partition, stats.pruned_by_statistics, stats.files) == (5, 1, 2, 2)
    assert (stats.delete_files_considered, stats.delete_files) == (3, 1)


def test_statistics_matter_to_conditions_and_to_equality_deletes() -> None:
    def matter(predicate: BooleanExpression | None, contents: list[int]) -> bool:
        deletes = EntryTable.from_columns({"content": contents, "status": 1}, SPECS, len(contents))
        return needs_statistics(PartitionFilter.of(predicate, SPECS, SCHEMA), deletes)

    assert not matter(None, [])
    assert not matter(None, [1])
    assert matter(None, [1, 2])
    assert matter(GreaterThan("id", 9), [])


def test_manifests_are_pruned_by_summaries_of_their_own_spec() -> None:
    def manifest(path: str, spec_id: int, value: bytes | None, live: int = 1, deletes: bool = False) -> Manifest:
        summary = None if value is None else (FieldSummary(False, None, value, value),)
        return Manifest(path, 1, spec_id, deletes, 1, 1, 1, live, 0, 0, live, 0, 0, summary)

    day = to_bytes(DateType(), date(2024, 1, 1))
    listed = [
        manifest("day", 0, day),
        manifest("eu", 1, b"eu"),
        manifest("us", 1, b"us"),
        manifest("us-deletes", 1, b"us", deletes=True),
        manifest("untold", 1, None),
        manifest("empty", 1, b"eu", live=0),
    ]
    chosen = PartitionFilter.of(EqualTo("region", "eu"), SPECS, SCHEMA)
    assert [m.path for m in prune_manifests(listed, chosen)] == ["day", "eu", "untold"]
    later = PartitionFilter.of(GreaterThanOrEqual("ts", datetime(2024, 1, 2)), SPECS, SCHEMA)
    assert [m.path for m in prune_manifests(listed, later)] == ["eu", "us", "us-deletes", "untold"]


def test_an_old_schema_binds_the_predicate_of_an_old_snapshot() -> None:
    old = Schema(NestedField(3, "area", StringType(), required=False), schema_id=7)
    plan = _plan(predicate=EqualTo("area", "eu"), schema=old, snapshot_id=42)
    assert plan.files["file_path"].to_pylist() == ["f0", "f1", "f2", "f3"]
    assert plan.schema == old


def test_columns_come_in_the_order_asked_for_with_metadata_columns_apart() -> None:
    wanted, extra = project_schema(SCHEMA, ["who.city", "_pos", "id", "_file", "_pos"])
    assert [f.name for f in wanted.fields] == ["who", "id"]
    assert set(wanted.column_names) == {"who", "who.city", "id"}
    assert extra == ("_pos", "_file")
    assert project_schema(SCHEMA, None) == (SCHEMA, ())
    assert project_schema(SCHEMA, ["ID"], case_sensitive=False)[0].fields[0].name == "id"
    own = Schema(NestedField(1, "_pos", LongType()))
    assert project_schema(own, ["_pos"]) == (own, ())


def test_an_unknown_column_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"'regoin'\. Did you mean 'region'"):
        _plan(columns=["id", "regoin"])
    with pytest.raises(UnknownName, match="'_file'"):
        _plan(columns=["_fil"])


def test_a_plan_explains_itself() -> None:
    every = [Manifest(f"m{n}", 1, 0, False, 1, 1, 1, 1, 0, 0, 1, 0, 0) for n in range(7)]
    plan = _plan(predicate=GreaterThan("id", 9), columns=["id", "_file"], snapshot_id=42)
    plan = with_manifests(plan, every, every[:4])
    assert plan.manifests == ("m0", "m1", "m2", "m3")
    assert plan.explain().splitlines() == [
        "Scan of snapshot 42: id, _file",
        "  where      GreaterThan(term=Reference(name='id'), literal=LongLiteral(9))",
        "  manifests  4 of 7, 3 pruned",
        "  files      3 of 5, 0 pruned by partition, 2 by statistics",
        "  size       30 rows, 3,000 bytes",
        "  deletes    2 of 3, attached 2 times",
        "  spec 0     1 file by ts_day (day)",
        "  spec 1     2 files by region (identity)",
    ]


def test_an_empty_table_has_an_empty_plan() -> None:
    nothing = EntryTable.empty(SPECS)
    plan = plan_scan(nothing, nothing, METADATA, predicate=EqualTo("id", 1))
    assert (len(plan.files), len(plan.deletes), plan.attached.num_rows, plan.snapshot_id) == (0, 0, 0, None)


# every pair of files, one at a time --------------------------------------------------------------------------------

TUPLES: dict[int, list[tuple[Any, ...] | None]] = {
    0: [(date(2024, 1, 1),), (None,)],
    1: [("eu",), ("us",), (None,)],
    2: [None],
}
WIDE = Specs({**SPECS.by_id, 2: spec(2)}, 2, (SCHEMA,))

located = st.sampled_from([(s, t) for s, tuples in TUPLES.items() for t in tuples])


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    data = [
        {"spec_id": s, "partition": t, "sequence_number": n, "file_path": f"f{i}"}
        for i, ((s, t), n) in enumerate(draw(st.lists(st.tuples(located, st.integers(1, 4)), max_size=6)))
    ]
    deletes = []
    for i in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["vector", "named", "positions", "equality"]))
        spec_id, values = draw(located)
        made: dict[str, Any] = {
            "file_path": f"d{i}",
            "spec_id": spec_id,
            "partition": values,
            "sequence_number": draw(st.integers(1, 4)),
        }
        made["content"] = Content.EQUALITY_DELETES if kind == "equality" else Content.POSITION_DELETES
        made["equality_ids"] = [1] if kind == "equality" else None
        if kind in {"vector", "named"}:
            made["file_format"] = "PUFFIN" if kind == "vector" else "PARQUET"
            target = draw(st.sampled_from(data)) if data and draw(st.integers(0, 9)) else {"file_path": "gone"}
            made |= {"referenced_data_file": target["file_path"]}
            if "spec_id" in target and draw(st.integers(0, 9)):
                made |= {"spec_id": target["spec_id"], "partition": target["partition"]}
        deletes.append(made)
    return data, deletes


def _expected(data: list[dict[str, Any]], deletes: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The rules, one pair at a time."""
    found = []
    for f, file in enumerate(data):
        place = (file["spec_id"], file["partition"])
        naming = [(d, x) for d, x in enumerate(deletes) if x.get("referenced_data_file") == file["file_path"]]
        if any((x["spec_id"], x["partition"]) != place for _, x in naming):
            raise TableError("another partition")
        vectors = [d for d, x in naming if x.get("file_format") == "PUFFIN"]
        if len(vectors) > 1 or any(deletes[d]["sequence_number"] < file["sequence_number"] for d in vectors):
            raise TableError("two vectors, or an old one")
        for d, x in enumerate(deletes):
            age = x["sequence_number"] - file["sequence_number"]
            same = (x["spec_id"], x["partition"]) == place
            if x["content"] == Content.EQUALITY_DELETES:
                applies = age > 0 and (same or x["spec_id"] == 2)
            elif x.get("file_format") == "PUFFIN":
                applies = d in vectors
            elif x.get("referenced_data_file") is not None:
                applies = x["referenced_data_file"] == file["file_path"] and age >= 0 and not vectors
            else:
                applies = same and age >= 0 and not vectors
            found += [(f, d)] if applies else []
    return found


@given(tables())
@settings(max_examples=150, deadline=None)
def test_delete_files_find_their_data_files_as_one_pair_at_a_time_would(table: Any) -> None:
    data, deletes = table
    try:
        expected = _expected(data, deletes)
    except TableError:
        with pytest.raises(TableError):
            match_deletes(entries(WIDE, data), entries(WIDE, deletes))
        return
    found = match_deletes(entries(WIDE, data), entries(WIDE, deletes))
    assert list(zip(found["file"].to_pylist(), found["delete"].to_pylist(), strict=True)) == expected


def test_many_files_and_deletes_are_brought_together_quickly() -> None:
    count = 100_000
    paths = pa.array([f"f{i}" for i in range(count)])
    regions = pa.array([f"r{i % 1000}" for i in range(count)])
    common = {
        "spec_id": 1,
        "p1001": regions,
        "sequence_number": 1,
        "record_count": 1,
        "status": 0,
        "file_format": "PARQUET",
    }
    data = EntryTable.from_columns(common | {"file_path": paths, "content": 0}, SPECS, count)
    vectors = common | {"content": 1, "file_format": "PUFFIN", "file_path": paths, "referenced_data_file": paths}
    found = match_deletes(data, EntryTable.from_columns(vectors, SPECS, count))
    assert found["file"].to_pylist() == found["delete"].to_pylist() == list(range(count))
    files, verdict = filter_partitions(data, PartitionFilter.of(EqualTo("region", "r7"), SPECS, SCHEMA))
    assert (len(files), int(verdict.keep.sum())) == (100, 100)
