"""Which files a compaction takes and in which groups, one scenario each; no row is read."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, GreaterThan, In, Not, NotEqualTo, NotIn
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.transforms import BucketTransform, TruncateTransform

import neve
from neve.commit.actions import Append, RewriteFiles, RowDelta
from neve.errors import MissingFile, TableError, UnknownName, UserError
from neve.model.partition import PartitionKey, Specs
from neve.ops.maintenance.rewrite_data_files import RewriteDataFiles
from neve.plan import ranges
from neve.plan.partition_filter import FilterStats
from neve.plan.rewrite_options import JOB_ORDERS, OPTIONS, RewriteOptions
from neve.plan.rewrite_plan import RewritePlan, SpecMode
from neve.tree.entries import EntryTable, Status
from tests.support.entry_tables import entries, spec
from tests.support.metadata_tables import Kit, name_of, plus, removed
from tests.support.rewrite_plans import (
    BY_MYSTERY,
    BY_REGION,
    EQUALITY,
    EVERYTHING,
    POSITIONS,
    SCHEMA,
    VECTOR,
    applied,
    bytes_under,
    chosen,
    described,
    groups,
    metadata_of,
    no_spark,
    of_sizes,
    options_of,
    plan,
    reasons,
    result,
    rewrite_of,
)
from tests.support.tables import local

EU: dict[str, Any] = {"spec_id": 1, "partition": ("eu",)}
US: dict[str, Any] = {"spec_id": 1, "partition": ("us",)}


# what is taken -----------------------------------------------------------------------------------------------------


def test_plan_empty_table(tmp_path: Path) -> None:
    table = neve.connect(tmp_path).create_table("db.t", "id bigint")
    rewrite = RewriteDataFiles(replace(table.context, spark=no_spark))
    made = rewrite.option("rewrite-all", True).plan()
    assert made.is_empty and made.groups == () and (made.files, made.bytes, made.snapshot_id) == (0, 0, None)
    location = table.iceberg.metadata_location
    assert rewrite.option("rewrite-all", True).execute().snapshot_ids == ()
    assert table.iceberg.metadata_location == location
    table.append([{"id": 1}])
    assert rewrite.plan().is_empty and rewrite.execute().summary == "nothing to rewrite"
    assert table.iceberg.metadata.current_snapshot().summary.operation.value == "append"


def test_plan_sizes() -> None:
    made = plan(of_sizes(749, 750, 1000, 1800, 1801))
    assert groups(made) == [["f4", "f0"]]
    assert reasons(made) == {
        "f0": "too-small",
        "f1": "well-sized",
        "f2": "well-sized",
        "f3": "well-sized",
        "f4": "too-large",
    }
    narrow = plan(of_sizes(749, 750, 1000, 1800, 1801), min_file_size_bytes=751, max_file_size_bytes=1799)
    assert chosen(narrow) == {"f0", "f1", "f3", "f4"}


def test_plan_enough_files() -> None:
    assert groups(plan(of_sizes(100, 100, 100, 100, 100))) == [["f0", "f1", "f2", "f3", "f4"]]
    few = plan(of_sizes(100, 100, 100, 100))
    assert few.is_empty and set(reasons(few).values()) == {"group-too-small"}
    assert chosen(plan(of_sizes(100, 100, 100), min_input_files=3)) == {"f0", "f1", "f2"}


def test_plan_enough_bytes() -> None:
    assert chosen(plan(of_sizes(500, 501))) == {"f0", "f1"}
    assert plan(of_sizes(500, 500)).is_empty


def test_plan_one_huge_file() -> None:
    (group,) = plan(of_sizes(1801)).groups
    assert (len(group.files), group.bytes, group.output_files) == (1, 1801, 2)
    assert plan(of_sizes(1800)).is_empty
    assert plan(of_sizes(10_000), max_file_size_bytes=9000).groups[0].output_files == 10


def test_plan_one_small_file() -> None:
    assert plan(of_sizes(10)).is_empty
    assert plan(of_sizes(10), min_input_files=1).is_empty
    assert chosen(plan(of_sizes(10), rewrite_all=True)) == {"f0"}


def test_plan_delete_threshold() -> None:
    data = of_sizes(1000, 1000, 10, **EU)
    two_of_f0 = [EU | POSITIONS | {"referenced_data_file": "f0", "record_count": 1}] * 2
    made = plan(data, two_of_f0, delete_file_threshold=2)
    assert groups(made) == [["f0", "f2"]], "a small file, which alone is not worth it, comes along"
    assert reasons(made) == {"f0": "delete-files", "f1": "well-sized", "f2": "too-small"}
    assert plan(data, two_of_f0, delete_file_threshold=3).is_empty
    assert plan(data, two_of_f0).is_empty, "the threshold is off unless it is given"


@pytest.mark.parametrize("kind", [POSITIONS, EQUALITY, VECTOR | {"referenced_data_file": "f0"}])
def test_plan_delete_threshold_counts_every_kind_of_delete_file(kind: dict[str, Any]) -> None:
    made = plan(of_sizes(1000, **EU), [EU | kind | {"record_count": 1}], delete_file_threshold=1)
    assert chosen(made) == {"f0"}
    assert made.groups[0].scan.deletes["file_path"].to_pylist() == ["d0"]


@pytest.mark.parametrize("options", [{"delete_file_threshold": 1}, {"delete_ratio_threshold": 0.1}])
@pytest.mark.parametrize("size", [10, 1000, 1801])
def test_plan_delete_threshold_carries_a_file_of_any_size(size: int, options: dict[str, Any]) -> None:
    one = [EU | POSITIONS | {"referenced_data_file": "f0", "record_count": 1}]
    assert chosen(plan(of_sizes(size, **EU), one, **options)) == {"f0"}
    assert chosen(plan(of_sizes(size, **EU), **options)) == ({"f0"} if size == 1801 else set())


def test_plan_delete_ratio() -> None:
    data = of_sizes(1000, **EU)

    def taken(*deletes: dict[str, Any], **options: Any) -> bool:
        return not plan(data, [EU | d for d in deletes], **options).is_empty

    def of_f0(rows: int, kind: dict[str, Any] = POSITIONS) -> dict[str, Any]:
        return kind | {"referenced_data_file": "f0", "record_count": rows}

    assert taken(of_f0(3)) and taken(of_f0(3, VECTOR)) and taken(of_f0(2), of_f0(1))
    assert not taken(of_f0(2)) and not taken(of_f0(2, VECTOR))
    path = {2147483546: b"f0"}
    assert taken(POSITIONS | {"lower_bounds": path, "upper_bounds": path, "record_count": 3}), "named by its bounds"
    assert not taken(POSITIONS | {"record_count": 9}), "it may be about other files of the partition"
    assert not taken(EQUALITY | {"record_count": 9}), "a row of it may delete none or many"
    assert taken(of_f0(7), of_f0(7), delete_ratio_threshold=1), "more than all rows count as all rows"
    assert not taken(of_f0(9), delete_ratio_threshold=1)
    assert reasons(plan(data, [EU | of_f0(3)])) == {"f0": "deleted-rows"}


def test_plan_delete_ratio_of_files_without_rows_is_none() -> None:
    empty = of_sizes(1000, **EU, record_count=0)
    assert plan(empty, [EU | POSITIONS | {"referenced_data_file": "f0", "record_count": 3}]).is_empty


def test_plan_without_files_that_were_removed() -> None:
    gone = of_sizes(100, 100, 100, 100, 100, status=Status.DELETED, **US)
    made = plan([*gone, *of_sizes(10, **EU)], [EU | POSITIONS | {"status": Status.DELETED}], rewrite_all=True)
    assert [len(g.files) for g in made.groups] == [1] and len(made.groups[0].scan.deletes) == 0


def test_plan_groups_carry_the_deletes_of_their_files() -> None:
    data = [place | {"file_path": f"{name}{n}"} for name, place in (("eu", EU), ("us", US)) for n in range(3)]
    of_eu0, of_us1 = (place | POSITIONS | {"referenced_data_file": path} for place, path in ((EU, "eu0"), (US, "us1")))
    deletes = [of_us1, US | EQUALITY, of_eu0, {"spec_id": 0} | EQUALITY, EU | VECTOR | {"referenced_data_file": "eu2"}]
    made = plan(data, deletes, rewrite_all=True, max_file_group_input_files=2)
    assert groups(made) == [["eu0", "eu1"], ["eu2"], ["us0", "us1"], ["us2"]]
    assert [applied(group) for group in made.groups] == [
        {("eu0", "d2"), ("eu0", "d3"), ("eu1", "d3")},
        {("eu2", "d3"), ("eu2", "d4")},
        {("us0", "d1"), ("us0", "d3"), ("us1", "d0"), ("us1", "d1"), ("us1", "d3")},
        {("us2", "d1"), ("us2", "d3")},
    ]
    assert [len(group.scan.deletes) for group in made.groups] == [2, 2, 3, 2]


# groups ------------------------------------------------------------------------------------------------------------


def test_plan_group_bytes_limit() -> None:
    made = plan(of_sizes(500, 500, 400, 400, 300, 300), max_file_group_size_bytes=1000, min_input_files=2)
    assert groups(made) == [["f0", "f1"], ["f2", "f3"], ["f4", "f5"]]
    assert [group.index_in_partition for group in made.groups] == [0, 1, 2]
    alone = plan(of_sizes(5000, 2000, 10, 10), max_file_group_size_bytes=1900, min_input_files=2)
    assert groups(alone) == [["f0"], ["f1"], ["f2", "f3"]], "a file above the limit has a group of its own"


@pytest.mark.parametrize("limit", [10**9, 2**53 + 1, 2**63 - 1])
def test_plan_group_bytes_limit_may_be_any_number(limit: int) -> None:
    made = plan(of_sizes(*[500] * 9), max_file_group_size_bytes=limit, max_files_to_rewrite=limit)
    assert [len(group) for group in groups(made)] == [9]


def test_plan_group_count_limit() -> None:
    made = plan(of_sizes(5, 4, 3, 2, 1), max_file_group_input_files=2, min_input_files=2)
    assert groups(made) == [["f0", "f1"], ["f2", "f3"]]
    assert reasons(made)["f4"] == "group-too-small"


def test_plan_group_indexes_count_the_groups_of_the_plan() -> None:
    made = plan(of_sizes(700, 10, 9, 8, **EU), max_file_group_size_bytes=705, min_input_files=2, rewrite_all=False)
    assert groups(made) == [["f1", "f2", "f3"]], "the first stretch of the partition is not worth it"
    assert [(g.group_id, g.index_in_partition) for g in made.groups] == [(0, 0)]


def test_plan_max_files() -> None:
    us = [file | {"file_path": f"u{file['file_path']}"} for file in of_sizes(600, 590, **US)]
    files = of_sizes(600, 600, 600, **EU) + us
    made = plan(files, max_files_to_rewrite=4, rewrite_job_order="bytes-asc", min_input_files=2)
    assert groups(made) == [["uf0"], ["f0", "f1", "f2"]], "the cap is applied before the order"
    assert [(g.output_files, g.split_size) for g in made.groups] == [(1, 1400), (2, 1400)]
    assert reasons(made)["uf1"] == "over-max-files"
    whole = plan(files, max_files_to_rewrite=5, min_input_files=2).groups[1]
    assert whole.output_files == 2 and whole.bytes == 1190
    assert chosen(plan(files, max_files_to_rewrite=99, min_input_files=2)) == {f["file_path"] for f in files}
    assert chosen(plan(files, max_files_to_rewrite=3, min_input_files=2)) == {"f0", "f1", "f2"}


def test_plan_max_files_sizes_the_group_by_what_is_left_of_it() -> None:
    files = of_sizes(*[700] * 5)
    assert plan(files).groups[0].output_files == 4
    assert plan(files, max_files_to_rewrite=2).groups[0].output_files == 2


def test_plan_job_order() -> None:
    sizes = {"a": [600, 600], "b": [300, 300, 300, 300, 300], "c": [700, 700, 700]}
    files = [
        {"spec_id": 1, "partition": (region,), "file_path": f"{region}{n}", "file_size_in_bytes": size}
        for region, parts in sizes.items()
        for n, size in enumerate(parts)
    ]
    expected = {"none": "abc", "bytes-asc": "abc", "bytes-desc": "cba", "files-asc": "acb", "files-desc": "bca"}
    assert set(expected) == set(JOB_ORDERS)
    for order, regions in expected.items():
        made = plan(files, rewrite_job_order=order)
        assert "".join(str(g.partition.values[0]) for g in made.groups) == regions, order
        assert [g.group_id for g in made.groups] == [0, 1, 2]
    equal = [f | {"file_size_in_bytes": 600} for f in files if f["file_path"][1] in "01"]
    for order in JOB_ORDERS:
        assert [g.partition.values[0] for g in plan(equal, rewrite_job_order=order).groups] == ["a", "b", "c"]


def test_plan_output_count() -> None:
    sizes = {999: 1, 1000: 1, 1099: 1, 1100: 2, 1750: 2, 1751: 2, 2199: 2, 2200: 3, 10_100: 10, 10_751: 11}
    assert {size: options_of({}).output_files(size) for size in sizes} == sizes
    assert plan(of_sizes(*[505] * 20)).groups[0].output_files == 10


def test_plan_write_limit() -> None:
    assert options_of({}).write_limit == 1400
    assert options_of({"max_file_size_bytes": 2001}).write_limit == 1500
    (group,) = plan(of_sizes(*[700] * 3)).groups
    assert group.split_size == 1400, "never more than a file may hold"


def test_plan_bad_options() -> None:
    for name, value in {"target-file-size-bytes": 0, "delete-ratio-threshold": 1.5, "rewrite-job-order": "up"}.items():
        with pytest.raises(UserError, match=rf"'{name}' is {value!r}; it must be"):
            RewriteOptions.of({name: value}, 1000)
    with pytest.raises(UnknownName, match=r"'min-input-file'. Did you mean 'min-input-files'"):
        RewriteOptions.of({"min-input-file": 3}, 1000)
    with pytest.raises(UserError, match=r"'rewriteall'.*'frobnicate'"):
        RewriteOptions.of({"rewriteall": True, "frobnicate": 1, "min-input-files": 3}, 1000)


def test_plan_bad_options_of_a_table(tmp_path: Path) -> None:
    rewrite = rewrite_of(Kit.create(tmp_path))
    with pytest.raises(UnknownName, match=r"partition spec 9 in table db.t. Known: '0', '1', '2', '3'"):
        rewrite.option("output-spec-id", 9).plan()
    with pytest.raises(UserError, match=r"keep_spec\(\) and output-spec-id"):
        rewrite.option("output-spec-id", 1).keep_spec().plan()
    with pytest.raises(UserError, match=r"keep_spec\(\) and upgrade_spec\(\)"):
        rewrite.upgrade_spec().keep_spec()
    with pytest.raises(UnknownName, match="audit"):
        rewrite.branch("audit").plan()
    assert OPTIONS["output-spec-id"].field == "output_spec_id"


def test_plan_rewrite_all() -> None:
    made = plan([*of_sizes(1000, **EU), US | {"file_path": "u", "file_size_in_bytes": 10}], rewrite_all="true")
    assert groups(made) == [["f0"], ["u"]]
    assert set(reasons(made).values()) == {"rewrite-all"}
    filtered = plan([*of_sizes(1000, **EU), US | {"file_path": "u"}], rewrite_all=True, where="region = 'eu'")
    assert groups(filtered) == [["f0"]]


def test_plan_ids_stable(tmp_path: Path) -> None:
    t = Kit.create(tmp_path)
    for region in ("us", "eu", None):
        t.ok(Append(t.data(*(f"{region}{n}" for n in range(3)), region=region), fast=True))
    t.ok(RowDelta(added_deletes=plus(t.positions("p", region="us"), t.equality("e", region=None))))
    rewrite = rewrite_of(t).option("min-input-files", 2)
    first, second = rewrite.plan(), rewrite.plan()
    assert first == second and described(first) == described(second)
    assert [(g.group_id, g.partition.values) for g in first.groups] == [(0, (None,)), (1, ("eu",)), (2, ("us",))]
    assert first != rewrite.option("min-input-files", 3).plan()


@pytest.mark.parametrize(
    ("source", "values"),
    [
        (1, [None, -3, 2, 9, 10]),
        (3, [None, "", "10", "9", "é"]),
        (4, [None, -9.5, -0.0, 0.0, 2.0, 10.0, float("nan")]),
    ],
)
def test_plan_numeric_partition_order(source: int, values: list[Any]) -> None:
    table = metadata_of(spec(1, (1000, source, "identity", "p")))
    files = [{"spec_id": 1, "partition": (v,), "file_path": f"f{n}"} for n, v in enumerate(values)]
    expected = [[f"f{n}"] for n in range(len(values))]
    assert groups(plan(files, table=table, rewrite_all=True)) == expected
    assert groups(plan(files[::-1], table=table, rewrite_all=True)) == expected


# filters -----------------------------------------------------------------------------------------------------------

EVOLVED = [
    {"spec_id": 0, "file_path": "whole"},
    {"spec_id": 1, "partition": ("eu",), "file_path": "eu"},
    {"spec_id": 1, "partition": ("us",), "file_path": "us"},
    {"spec_id": 1, "partition": (None,), "file_path": "nowhere"},
    {"spec_id": 2, "partition": ("eu", date(2024, 1, 1)), "file_path": "eu1"},
    {"spec_id": 2, "partition": ("eu", date(2024, 1, 2)), "file_path": "eu2"},
    {"spec_id": 2, "partition": ("us", date(2024, 1, 1)), "file_path": "us1"},
]


def taken(where: Any, files: list[dict[str, Any]] = EVOLVED, **options: Any) -> set[str]:
    return chosen(plan(files, where=where, rewrite_all=True, **options))


def test_plan_filter_single_spec() -> None:
    files = [f for f in EVOLVED if f["spec_id"] == 1]
    assert taken("region = 'eu'", files) == {"eu"}
    assert taken("region IS NULL", files) == {"nowhere"}
    assert taken("region >= 'eu'", files) == {"eu", "us"}
    assert taken("region = 'mars'", files) == set()
    assert reasons(plan(files, where="region = 'eu'"))["us"] == "not-matching-partition"


def test_plan_filter_two_specs() -> None:
    assert taken("region = 'eu'") == {"whole", "eu", "eu1", "eu2"}
    assert taken("region = 'eu' AND ts < TIMESTAMP '2024-01-02'") == {"whole", "eu", "eu1"}
    assert taken("ts >= TIMESTAMP '2024-01-02'") == {"whole", "eu", "us", "nowhere", "eu2"}
    assert taken("region = 'eu' OR ts >= TIMESTAMP '2024-01-02'") == {"whole", "eu", "us", "nowhere", "eu1", "eu2"}


EVEN, ODD = range(-20, 20, 4), range(-19, 19, 4)
TEXTS, OTHER_TEXTS = ([f"{a}{b}" for a in "abc" for b in second] for second in ("xz", "y"))


@pytest.mark.parametrize(
    ("column", "transform", "values", "absent"),
    [
        ("id", BucketTransform(4), EVEN, ODD),
        ("id", TruncateTransform(10), EVEN, ODD),
        ("region", BucketTransform(4), TEXTS, OTHER_TEXTS),
        ("region", TruncateTransform(1), TEXTS, OTHER_TEXTS),
    ],
)
def test_plan_filter_lossy_transform(column: str, transform: Any, values: Any, absent: Any) -> None:
    source = SCHEMA.find_field(column)
    partition_of = transform.transform(source.field_type)
    table = metadata_of(spec(1, (1000, source.field_id, str(transform), "p")))
    rows: dict[Any, list[Any]] = {}
    for value in values:
        rows.setdefault(partition_of(value), []).append(value)
    files = [{"spec_id": 1, "partition": (p,), "file_path": str(p)} for p in rows]
    for value in [*values, *absent]:
        found = taken(EqualTo(column, value), files, table=table)
        assert found == ({str(partition_of(value))} if partition_of(value) in rows else set())
        greater = taken(GreaterThan(column, value), files, table=table)
        assert greater >= {str(p) for p, held in rows.items() if any(v > value for v in held)}
    assert any(taken(EqualTo(column, value), files, table=table) for value in absent), "more than needed is taken"


MYSTERY = metadata_of(EVERYTHING, BY_REGION, BY_MYSTERY)
UNKNOWN = [
    {"spec_id": 3, "partition": ("x",), "file_path": "x1"},
    {"spec_id": 3, "partition": ("x",), "file_path": "x2"},
    {"spec_id": 3, "partition": ("y",), "file_path": "y1"},
    {"spec_id": 1, "partition": ("us",), "file_path": "us"},
    {"spec_id": 1, "partition": ("eu",), "file_path": "eu"},
]


def test_plan_filter_unprojectable_spec() -> None:
    made = result(UNKNOWN, where="region = 'eu'", rewrite_all=True, table=MYSTERY)
    assert chosen(made.plan) == {"x1", "x2", "y1", "eu"}
    assert made.filter_stats == FilterStats(unevaluable_specs=1, fail_open_partitions=2, fail_open_files=3)
    assert result(UNKNOWN, where="id = 3", rewrite_all=True, table=MYSTERY).filter_stats == FilterStats()


def damaged(**stated: Any) -> EntryTable:
    """Files by a number, of which two partitions hold texts that are none."""
    specs = Specs.of(BY_ID)
    good = entries(specs, [{"spec_id": 1, "partition": (v,), "file_path": f"f{v}"} | stated for v in (1, 2, 3, 4)])
    columns, texts = good.take([0, 1, 1, 2, 3]).columns, pa.array(["1", "broken", "broken", "3", "torn"])
    return EntryTable(columns.set_column(columns.schema.get_field_index("p1000"), "p1000", texts), specs)


BY_ID = metadata_of(spec(1, (1000, 1, "identity", "id")))


def test_plan_filter_eval_error() -> None:
    made = result(damaged(), where="id = 1", rewrite_all=True, table=BY_ID)
    assert chosen(made.plan) == {"f1", "f2", "f4"}
    assert made.filter_stats == FilterStats(eval_errors=2, fail_open_partitions=2, fail_open_files=3)


def test_plan_filter_unpartitioned_spec() -> None:
    made = result([{"spec_id": 0, "file_path": "whole"}, *UNKNOWN[3:]], where="region = 'eu'", rewrite_all=True)
    assert chosen(made.plan) == {"whole", "eu"}
    assert made.filter_stats == FilterStats()
    void = metadata_of(spec(1, (1000, 3, "void", "region")), BY_REGION_AFTER_VOID)
    files = [{"spec_id": 1, "partition": (None,), "file_path": "v"}, {"spec_id": 2, "partition": ("us",)}]
    made = result(files, where="region = 'eu'", rewrite_all=True, table=void)
    assert chosen(made.plan) == {"v"} and made.filter_stats == FilterStats()
    assert made.plan.groups[0].partition == PartitionKey(1, None)


BY_REGION_AFTER_VOID = spec(2, (1001, 3, "identity", "region"))


def test_plan_filter_unknown_spec() -> None:
    specs = Specs.of(metadata_of(EVERYTHING, BY_REGION))
    lost = entries(specs, [EU, {"spec_id": 1, "partition": ("us",)}]).with_columns(spec_id=pa.array([1, 9], pa.int32()))
    for where in (None, "region = 'eu'"):
        with pytest.raises(TableError, match=r"spec 9 in file f1: the table has \[0, 1\]"):
            result(lost, where=where, table=metadata_of(EVERYTHING, BY_REGION))


def test_plan_filter_bad_column(tmp_path: Path) -> None:
    table = neve.connect(tmp_path).create_table("db.t", "id bigint, region string", partition_by=["region"])
    table.append([{"id": 1, "region": "eu"}])
    for part in (tmp_path / "db" / "t" / "metadata").glob("*.avro"):
        part.unlink()
    with pytest.raises(UnknownName, match=r"'regoin'.*Did you mean 'region'"):
        table.rewrite_data_files().where("regoin = 'eu'").plan()
    with pytest.raises(UserError, match="does not fit"):
        table.rewrite_data_files().where(EqualTo("id", "seven")).plan()
    with pytest.raises(UnknownName, match="'REGION'"):
        table.rewrite_data_files().where("REGION = 'eu'").plan()
    with pytest.raises(MissingFile):
        table.rewrite_data_files().where("REGION = 'eu'").case_sensitive(False).plan()


def test_plan_filter_not_rewritten() -> None:
    same = [
        ("NOT region = 'eu'", "region <> 'eu'"),
        ("region NOT IN ('eu', 'us')", "NOT (region = 'eu' OR region = 'us')"),
        ("NOT (region <> 'eu' OR ts < TIMESTAMP '2024-01-02')", "region = 'eu' AND ts >= TIMESTAMP '2024-01-02'"),
        ("NOT NOT region = 'eu'", "region = 'eu'"),
        ("NOT region IS NULL", "region IS NOT NULL"),
        (Not(EqualTo("region", "eu")), NotEqualTo("region", "eu")),
        (Not(In("region", {"eu", "us"})), NotIn("region", {"eu", "us"})),
    ]
    for one, other in same:
        assert taken(one) == taken(other), one
    assert taken("NOT region = 'eu'") == {"whole", "us", "us1"}, "a comparison with null is not true, nor is its NOT"
    assert taken("region NOT IN ('eu', NULL)") == set()
    assert taken("region <> 'eu' OR region IS NULL") == {"whole", "us", "us1", "nowhere"}


def test_plan_filter_memo(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    real = ranges.may_match

    def counting(found: ranges.Ranges, predicate: Any) -> ranges.Mask:
        if type(found).__name__ == "_TupleRanges":
            judged.append(len(found))
        return real(found, predicate)

    monkeypatch.setattr(ranges, "may_match", counting)
    many = [file | {"file_path": f"{file['file_path']}-{n}"} for n in range(50) for file in EVOLVED]
    assert len(taken("region = 'eu'", many)) == 200
    assert sum(judged) == len(EVOLVED)


def test_plan_fail_open_files_after_candidates() -> None:
    sizes = (100, 1000, 100, 100, 100)
    files = [file | {"file_size_in_bytes": size} for file, size in zip(UNKNOWN, sizes, strict=True)]
    made = result(files, where="region = 'eu'", min_input_files=2, table=MYSTERY)
    assert made.filter_stats == FilterStats(unevaluable_specs=1, fail_open_partitions=2, fail_open_files=2)
    assert made.plan.is_empty, "candidates are counted before their groups are judged"
    assert reasons(made.plan)["x2"] == "well-sized"
    every = result(files, where="region = 'eu'", rewrite_all=True, table=MYSTERY)
    assert every.filter_stats.fail_open_files == 3


def test_plan_strict_mode(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"spec 3 .*unknown transform.*Without strict mode"):
        result(UNKNOWN, where="region = 'eu'", table=MYSTERY, strict=True)
    with pytest.raises(UserError, match=r"partition \('broken',\) of spec 1: .*Without strict mode"):
        result(damaged(), where="id = 1", table=BY_ID, strict=True)
    assert chosen(plan(UNKNOWN, where="id = 3", table=MYSTERY, strict=True, rewrite_all=True)) == {
        f["file_path"] for f in UNKNOWN
    }
    t = Kit.create(tmp_path)
    t.ok(Append(t.data("a")))
    strict = rewrite_of(t).strict()
    assert strict.where("region = 'us'").plan().is_empty
    with pytest.raises(UserError, match=r"upper\(region\).*cannot be evaluated in full"):
        strict.where("upper(region) = 'US' AND id > 3").plan()


def test_plan_mixed_unpartitioned() -> None:
    files = [
        {"spec_id": 0, "file_path": "w1"},
        {"spec_id": 0, "file_path": "w2"},
        {"spec_id": 1, "partition": (None,), "file_path": "n1"},
        {"spec_id": 1, "partition": (None,), "file_path": "n2"},
        {"spec_id": 2, "partition": (None, None), "file_path": "d1"},
    ]
    made = plan(files, rewrite_all=True)
    assert groups(made) == [["w1", "w2"], ["n1", "n2"], ["d1"]]
    assert [g.partition for g in made.groups] == [
        PartitionKey(0, None),
        PartitionKey(1, (None,)),
        PartitionKey(2, (None, None)),
    ]


def test_plan_manifest_pruning(tmp_path: Path) -> None:
    t = Kit.create(tmp_path)
    for region in ("eu", "us"):
        t.ok(Append(t.data(*(f"{region}{n}" for n in range(5)), region=region), fast=True))
    t.ok(Append(t.data("whole", spec=2), fast=True))
    (us,) = [m for m in t.manifests() if m.spec_id == 0 and m.partitions and m.partitions[0].lower_bound == b"us"]
    kept = local(us.path)
    content = kept.read_bytes()
    kept.unlink()
    made = rewrite_of(t).where("region = 'eu'").plan()
    assert {name_of(p) for p in chosen(made)} == {f"eu{n}" for n in range(5)}
    assert "5 files of 1 manifest that need not be opened" in made.explain()
    with pytest.raises(MissingFile, match="Missing file"):
        rewrite_of(t).where("id = 1").plan()
    kept.write_bytes(content)
    assert {name_of(p): r for p, r in reasons(made).items()}["us3"] == "not-matching-partition"
    assert len(made.reasons()) == 11


def test_plan_manifest_pruning_opens_specs_that_cannot_be_judged(tmp_path: Path) -> None:
    t = Kit.create(tmp_path)
    t.update(AddPartitionSpecUpdate(spec=spec(4, (1002, 2, "mystery", "region_mystery"))))
    t.ok(Append(t.data("a", region="us"), fast=True))
    t.ok(Append(t.data("m").with_columns(spec_id=4, p1000=None, p1002="us"), fast=True))
    made = rewrite_of(t).where("region = 'eu'").option("rewrite-all", True).plan_with_stats()
    assert {name_of(p) for p in chosen(made.plan)} == {"m"}
    assert made.filter_stats == FilterStats(unevaluable_specs=1, fail_open_partitions=1, fail_open_files=1)
    (undecided,) = made.plan.diagnostics.undecided
    assert (undecided.spec_id, undecided.partition, undecided.files) == (4, None, 1)
    with pytest.raises(UserError, match="spec 4"):
        rewrite_of(t).where("region = 'eu'").strict().plan()


def test_plan_filter_by_statistics(tmp_path: Path) -> None:
    t = Kit.create(tmp_path, default_spec=2)
    for n in range(3):
        t.ok(Append(t.data(f"f{n}", spec=2, ids=(10 * n, 10 * n + 9)), fast=True))
        t.ok(Append(t.data(f"eu{n}", ids=(10 * n, 10 * n + 9)), fast=True))
    rewrite = rewrite_of(t).option("rewrite-all", True)
    made = rewrite.where("id = 15").plan()
    assert {name_of(path) for path in chosen(made)} == {"f1", "eu1"}
    assert set(reasons(made).values()) == {"rewrite-all", "not-matching-statistics"}
    both = rewrite.where("id >= 15 AND region = 'us'").plan()
    assert {name_of(path) for path in chosen(both)} == {"f1", "f2"}


def test_plan_of_a_branch(tmp_path: Path) -> None:
    t = Kit.create(tmp_path)
    t.ok(Append(t.data("a"), fast=True))
    t.branch("audit")
    t.ok(Append(t.data("b"), fast=True), branch="audit")
    rewrite = rewrite_of(t).option("rewrite-all", True)
    assert {name_of(path) for path in chosen(rewrite.plan())} == {"a"}
    made = rewrite.branch("audit").plan()
    assert {name_of(path) for path in chosen(made)} == {"a", "b"} and made.snapshot_id == t.head("audit").snapshot_id


# specs -------------------------------------------------------------------------------------------------------------


def test_plan_upgrade_only_old() -> None:
    good = [file | {"file_size_in_bytes": 1000} for file in EVOLVED]
    assert plan(good).is_empty
    made = plan(good, mode=SpecMode.UPGRADE)
    assert chosen(made) == {"whole", "eu", "us", "nowhere"}
    assert {g.output_spec_id for g in made.groups} == {2}
    assert reasons(made)["eu1"] == "in-target-spec" and reasons(made)["whole"] == "other-spec"
    other = plan(good, mode=SpecMode.UPGRADE, output_spec_id=1)
    assert chosen(other) == {"whole", "eu1", "eu2", "us1"} and {g.output_spec_id for g in other.groups} == {1}
    assert chosen(plan(good, mode=SpecMode.UPGRADE, where="region = 'eu'")) == {"whole", "eu"}


def test_plan_upgrade_takes_no_file_of_the_target_spec_whatever_its_size() -> None:
    tiny = [file | {"file_size_in_bytes": 1} for file in EVOLVED * 9]
    named = [file | {"file_path": f"{file['file_path']}.{n}"} for n, file in enumerate(tiny)]
    assert {p.split(".")[0] for p in chosen(plan(named, mode=SpecMode.UPGRADE))} == {"whole", "eu", "us", "nowhere"}


def test_plan_keep_spec_and_current_spec() -> None:
    def specs(mode: SpecMode, **options: Any) -> list[tuple[int, int]]:
        made = plan(EVOLVED, rewrite_all=True, mode=mode, **options)
        return [(g.partition.spec_id, g.output_spec_id) for g in made.groups]

    assert {a == b for a, b in specs(SpecMode.KEEP)} == {True}
    assert {b for _, b in specs(SpecMode.CURRENT)} == {2}
    assert {b for _, b in specs(SpecMode.CURRENT, output_spec_id=0)} == {0}


def test_plan_upgrade_resume(tmp_path: Path) -> None:
    t = Kit.create(tmp_path, default_spec=1)
    for region in ("ap", "eu", "us"):
        t.ok(Append(t.data(region, region=region, file_size_in_bytes=512 << 20), fast=True))
    rewrite = rewrite_of(t).upgrade_spec()

    def left() -> set[str]:
        return {name_of(p) for p in chosen(rewrite.plan())}

    assert left() == {"ap", "eu", "us"}
    start, group = t.head_id, rewrite.plan().groups[0]  # the first batch lands, then the run is stopped
    t.ok(RewriteFiles(removed(group.files), t.data("new", region="ap", spec=1), start_snapshot_id=start))
    assert left() == {"eu", "us"}
    for group in rewrite.plan().groups:
        name = f"new-{group.partition.values}"
        t.ok(RewriteFiles(removed(group.files), t.data(name, spec=1), start_snapshot_id=t.head_id))
    assert left() == set() and rewrite.plan().is_empty
    assert rewrite.execute().snapshot_ids == ()


def test_plan_dry_run(tmp_path: Path) -> None:
    table = neve.connect(tmp_path).create_table("db.t", "id bigint, region string", partition_by=["region"])
    for n in range(3):
        table.append([{"id": n, "region": region} for region in ("eu", "us")])
    before, location = bytes_under(tmp_path), table.iceberg.metadata_location
    rewrite = table.rewrite_data_files().option("min-input-files", 2)
    made: RewritePlan = rewrite.plan()
    assert made.files == 6 and len(made.groups) == 2 and made.bytes == sum(g.bytes for g in made.groups)
    assert rewrite.explain() == str(made) and rewrite.explain().startswith("Rewrite 6 files")
    assert rewrite.plan_with_stats().plan == made
    rewrite.where("region = 'eu'").upgrade_spec().plan().reasons()
    assert bytes_under(tmp_path) == before and table.iceberg.metadata_location == location
