"""The partition filter over several specs, judged by the rows partitions are made of and by PyIceberg."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    AlwaysFalse,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection, manifest_evaluator
from pyiceberg.manifest import ManifestFile, PartitionFieldSummary
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)

from neve.errors import TableError, UnknownName, UserError
from neve.model.partition import Specs
from neve.plan import ranges
from neve.plan.partition_filter import FilterStats, PartitionFilter
from neve.predicate import normalize_expression
from neve.tree.entries import EntryTable, FieldSummary, Manifest
from tests.support.entry_tables import ALL_DETAIL, entries, spec, specs_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "ts", TimestampType(), required=False),
    NestedField(3, "region", StringType(), required=False),
)
UNPARTITIONED = spec(0)
BY_DAY = spec(1, (1000, 2, "day", "ts_day"))
BY_DAY_REGION = spec(2, (1000, 2, "day", "ts_day"), (1001, 3, "identity", "region"))
BY_MYSTERY = spec(3, (1002, 3, "mystery", "region_mystery"))
EVOLVED = specs_of(SCHEMA, UNPARTITIONED, BY_DAY, BY_DAY_REGION)


def _day(text: str) -> date:
    return date.fromisoformat(text)


def _files() -> EntryTable:
    return entries(
        EVOLVED,
        [
            {"spec_id": 0},
            {"spec_id": 1, "partition": (_day("2024-01-01"),)},
            {"spec_id": 1, "partition": (_day("2024-01-02"),)},
            {"spec_id": 2, "partition": (_day("2024-01-01"), "eu")},
            {"spec_id": 2, "partition": (_day("2024-01-01"), "us")},
            {"spec_id": 2, "partition": (_day("2024-01-02"), None)},
        ],
    )


def _kept(expression: BooleanExpression | None, specs: Specs = EVOLVED, files: EntryTable | None = None) -> list[int]:
    verdict = PartitionFilter.of(expression, specs, specs.schemas[0]).judge(_files() if files is None else files)
    return [int(i) for i in verdict.keep.nonzero()[0]]


def test_one_predicate_is_evaluated_under_the_spec_of_each_file() -> None:
    assert _kept(And(EqualTo("region", "eu"), EqualTo("ts", datetime(2024, 1, 1, 5)))) == [0, 1, 3]
    assert _kept(EqualTo("region", "eu")) == [0, 1, 2, 3]
    assert _kept(IsNull("region")) == [0, 1, 2, 5]
    assert _kept(LessThan("ts", datetime(2024, 1, 1))) == [0]
    assert _kept(None) == [0, 1, 2, 3, 4, 5]
    assert _kept(AlwaysFalse()) == []


def test_a_null_partition_is_not_different_from_anything() -> None:
    assert _kept(NotEqualTo("region", "eu")) == [0, 1, 2, 4]
    assert _kept(NotIn("region", ["eu", "us"])) == [0, 1, 2]
    assert _kept(Or(NotEqualTo("region", "eu"), IsNull("region"))) == [0, 1, 2, 4, 5]


def test_names_match_without_case_only_when_asked() -> None:
    with pytest.raises(UnknownName, match=r"'Region'.*'region'"):
        PartitionFilter.of(EqualTo("Region", "eu"), EVOLVED, SCHEMA)
    lenient = PartitionFilter.of(EqualTo("Region", "eu"), EVOLVED, SCHEMA, case_sensitive=False)
    assert lenient.judge(_files()).keep.tolist() == [True, True, True, True, False, False]


def test_a_predicate_of_the_wrong_type_is_an_error() -> None:
    with pytest.raises(UserError, match="does not fit the table"):
        PartitionFilter.of(EqualTo("id", "seven"), EVOLVED, SCHEMA)


def test_a_spec_that_cannot_express_the_predicate_is_kept_and_counted() -> None:
    specs = specs_of(SCHEMA, BY_DAY_REGION, BY_MYSTERY)
    files = entries(
        specs,
        [
            {"spec_id": 3, "partition": ("x",)},
            {"spec_id": 3, "partition": ("x",)},
            {"spec_id": 3, "partition": ("y",)},
            {"spec_id": 2, "partition": (None, "us")},
            {"spec_id": 2, "partition": (None, "eu")},
        ],
    )
    made = PartitionFilter.of(EqualTo("region", "eu"), specs, SCHEMA)
    verdict = made.judge(files)
    assert verdict.keep.tolist() == [True, True, True, False, True]
    assert verdict.stats == FilterStats(unevaluable_specs=1, fail_open_partitions=2, fail_open_files=3)
    assert verdict.stats_for(pa.array([True, False, False, True, True]).to_numpy(False)).fail_open_files == 1
    with pytest.raises(UserError, match=r"(?s)spec 3.*strict"):
        made.strict().judge(files)
    assert len(made.strict().judge(files.filter(pa.array([False, False, False, True, True]))).keep) == 2


def test_a_spec_with_an_unknown_transform_of_another_column_is_evaluated() -> None:
    both = spec(3, (1002, 3, "mystery", "m"), (1000, 2, "day", "ts_day"))
    specs = specs_of(SCHEMA, both)
    files = entries(specs, [{"partition": ("x", _day("2024-01-01"))}, {"partition": ("x", _day("2024-01-02"))}])
    verdict = PartitionFilter.of(LessThan("ts", datetime(2024, 1, 2)), specs, SCHEMA).judge(files)
    assert verdict.keep.tolist() == [True, False]
    assert verdict.stats == FilterStats()


def test_a_partition_that_cannot_be_compared_is_kept_and_counted_once() -> None:
    specs = specs_of(SCHEMA, spec(0, (1000, 1, "identity", "id")))
    good = entries(specs, [{"partition": (v,)} for v in (1, 2, 2, 3)])
    damaged = good.columns.set_column(
        good.columns.schema.get_field_index("p1000"), "p1000", pa.array(["1", "broken", "broken", "3"])
    )
    made = PartitionFilter.of(EqualTo("id", 1), specs, SCHEMA)
    verdict = made.judge(EntryTable(damaged, specs))
    assert verdict.keep.tolist() == [True, True, True, False]
    assert verdict.stats == FilterStats(eval_errors=1, fail_open_partitions=1, fail_open_files=2)
    with pytest.raises(UserError, match=r"partition \('broken',\) of spec 0"):
        made.strict().judge(EntryTable(damaged, specs))


def test_a_spec_the_table_does_not_know_is_an_error_that_names_the_file() -> None:
    files = _files().with_columns(spec_id=pa.array([0, 1, 1, 2, 9, 2], pa.int32()))
    with pytest.raises(TableError, match=r"spec 9 in file f4: the table has \[0, 1, 2\]"):
        PartitionFilter.of(EqualTo("region", "eu"), EVOLVED, SCHEMA).judge(files)
    manifest = _manifest(9, ())
    with pytest.raises(TableError, match="spec 9 in m"):
        PartitionFilter.of(EqualTo("region", "eu"), EVOLVED, SCHEMA).may_match(manifest)


def test_each_partition_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    real = ranges.may_match
    monkeypatch.setattr(ranges, "may_match", lambda r, e: (judged.append(len(r)), real(r, e))[1])
    files = _files()
    many = files.take([i % len(files) for i in range(6000)])
    verdict = PartitionFilter.of(EqualTo("region", "eu"), EVOLVED, SCHEMA).judge(many)
    assert sum(judged) == 6
    assert int(verdict.keep.sum()) == 4000


def test_a_spec_whose_source_column_was_dropped_still_prunes() -> None:
    now = Schema(NestedField(1, "id", LongType(), required=False), NestedField(3, "region", StringType()), schema_id=1)
    specs = specs_of((now, SCHEMA), BY_DAY_REGION)
    files = entries(specs, [{"partition": (_day("2024-01-01"), "eu")}, {"partition": (_day("2024-01-01"), "us")}])
    verdict = PartitionFilter.of(EqualTo("region", "eu"), specs, now).judge(files)
    assert verdict.keep.tolist() == [True, False]
    assert verdict.stats == FilterStats()
    with pytest.raises(UnknownName, match="'ts'"):
        PartitionFilter.of(EqualTo("ts", datetime(2024, 1, 1)), specs, now)
    day = to_bytes(DateType(), _day("2024-01-01"))
    summaries = (FieldSummary(False, None, day, day), FieldSummary(False, None, b"us", b"us"))
    assert not PartitionFilter.of(EqualTo("region", "eu"), specs, now).may_match(_manifest(2, summaries))


def test_a_renamed_source_column_prunes_under_its_new_name() -> None:
    now = Schema(NestedField(3, "area", StringType(), required=False), schema_id=1)
    specs = specs_of((now, SCHEMA), spec(0, (1001, 3, "identity", "region")))
    files = entries(specs, [{"partition": ("eu",)}, {"partition": ("us",)}])
    assert PartitionFilter.of(EqualTo("area", "us"), specs, now).judge(files).keep.tolist() == [False, True]


def test_summaries_of_a_promoted_column_are_read_by_their_length() -> None:
    specs = specs_of(SCHEMA, spec(0, (1000, 1, "identity", "id")))
    old = (FieldSummary(False, None, struct.pack("<i", 5), struct.pack("<i", 9)),)
    made = PartitionFilter.of(GreaterThan("id", 9), specs, SCHEMA)
    assert not made.may_match(_manifest(0, old))
    assert PartitionFilter.of(GreaterThan("id", 8), specs, SCHEMA).may_match(_manifest(0, old))
    torn = (FieldSummary(False, None, b"abc", b"abc"),)
    assert made.may_match(_manifest(0, torn))


def test_manifests_without_usable_summaries_are_never_pruned() -> None:
    made = PartitionFilter.of(EqualTo("region", "eu"), EVOLVED, SCHEMA)
    assert made.may_match(_manifest(2, None))
    assert made.may_match(_manifest(2, (FieldSummary(False, None, b"us", b"us"),)))
    unknown = PartitionFilter.of(EqualTo("region", "eu"), specs_of(SCHEMA, BY_MYSTERY), SCHEMA)
    assert unknown.may_match(_manifest(3, (FieldSummary(False, None, b"us", b"us"),)))


def test_a_void_field_of_a_v1_table_separates_nothing() -> None:
    specs = specs_of(SCHEMA, spec(0, (1000, 3, "void", "region"), (1001, 1, "identity", "id")))
    files = entries(specs, [{"partition": (None, 1)}, {"partition": (None, 2)}])
    made = PartitionFilter.of(And(EqualTo("region", "eu"), EqualTo("id", 2)), specs, SCHEMA)
    assert made.judge(files).keep.tolist() == [False, True]


def test_times_before_1970_are_found_where_old_writers_put_them() -> None:
    specs = specs_of(SCHEMA, BY_DAY)
    files = entries(
        specs, [{"partition": (_day(d),)} for d in ("1969-12-30", "1969-12-31", "1970-01-01", "1970-01-02")]
    )
    moment = datetime(1969, 12, 31, 12)  # written as 1970-01-01 by writers that rounded towards it
    assert _kept(EqualTo("ts", moment), specs, files) == [1, 2]
    assert _kept(LessThan("ts", moment), specs, files) == [0, 1, 2]
    assert _kept(GreaterThan("ts", datetime(1970, 1, 1, 12)), specs, files) == [2, 3]
    covering = PartitionFilter.of(GreaterThanOrEqual("ts", datetime(1969, 12, 31)), specs, SCHEMA)
    assert covering.covers(files).tolist() == [False, False, True, True]


def test_a_filter_covers_the_files_whose_partition_proves_it() -> None:
    files = _files()
    made = PartitionFilter.of(
        And(EqualTo("region", "eu"), GreaterThanOrEqual("ts", datetime(2024, 1, 1))), EVOLVED, SCHEMA
    )
    assert made.covers(files).tolist() == [False, False, False, True, False, False]
    day = And(GreaterThanOrEqual("ts", datetime(2024, 1, 2)), LessThan("ts", datetime(2024, 1, 3)))
    assert PartitionFilter.of(day, EVOLVED, SCHEMA).covers(files).tolist() == [False, False, True, False, False, True]


@dataclass
class _Statistics:
    """Statistics over all files of manifests, as a tree keeps them."""

    rows: EntryTable

    def read(self) -> EntryTable:
        return self.rows


def test_statistics_of_deletes_leave_out_no_manifest() -> None:
    """They are about the deletes: keys, or paths and positions; not about the rows these apply to."""
    bounds = {"lower_bounds": {1: struct.pack("<q", 5)}, "upper_bounds": {1: struct.pack("<q", 9)}}
    source = _Statistics(entries(EVOLVED, [bounds | {"partition": None}], ALL_DETAIL))
    data = replace(_manifest(EVOLVED.default_id, None), statistics=(source, 0))
    made = PartitionFilter.of(EqualTo("id", 77), EVOLVED, SCHEMA)
    assert made.may_match_each([data, replace(data, is_deletes=True)]).tolist() == [False, True]


def _manifest(spec_id: int, partitions: tuple[FieldSummary, ...] | None) -> Manifest:
    return Manifest("m", 1, spec_id, False, 1, 1, 1, 1, 0, 0, 1, 0, 0, partitions)


# rows against partitions -----------------------------------------------------------------------------------------

KINDS: dict[tuple[IcebergType, str], st.SearchStrategy[Any]] = {
    (LongType(), "identity"): st.integers(-30, 30),
    (LongType(), "truncate[10]"): st.integers(-30, 30),
    (IntegerType(), "bucket[4]"): st.integers(-30, 30),
    (TimestampType(), "hour"): st.integers(-3, 3).map(lambda h: datetime(1970, 1, 1) + timedelta(hours=h, minutes=20)),
    (TimestampType(), "day"): st.integers(-60, 60).map(lambda h: datetime(1970, 1, 1) + timedelta(hours=h)),
    (DateType(), "month"): st.integers(-60, 60).map(lambda d: date(1970, 1, 1) + timedelta(days=d)),
    (DateType(), "year"): st.integers(-500, 500).map(lambda d: date(1970, 1, 1) + timedelta(days=d)),
    (StringType(), "truncate[2]"): st.text("ab", max_size=4),
    (BinaryType(), "identity"): st.binary(max_size=2).map(lambda b: bytes(x % 2 for x in b)),
    (DecimalType(9, 1), "truncate[10]"): st.integers(-30, 30).map(lambda n: Decimal(n).scaleb(-1)),
    (DoubleType(), "identity"): st.sampled_from([-1.0, -0.0, 0.0, 2.5]),
}
WIDENED = {"hour", "day", "month", "year"}  # for old writers, see above
COMPARISONS: list[Any] = [LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual, EqualTo, NotEqualTo]


@st.composite
def partitioned_rows(draw: st.DrawFn) -> tuple[IcebergType, str, list[Any], BooleanExpression]:
    kind, transform = draw(st.sampled_from(list(KINDS)))
    values = KINDS[kind, transform]
    makers = [*COMPARISONS, *([StartsWith, NotStartsWith] if isinstance(kind, StringType) else [])]
    compare = st.builds(lambda make, v: make("x", v), st.sampled_from(makers), values)
    among = st.builds(
        lambda make, vs: make("x", vs), st.sampled_from([In, NotIn]), st.lists(values, min_size=1, max_size=3)
    )
    leaf = compare | among | st.sampled_from([IsNull("x"), NotNull("x")])
    expression = draw(leaf | st.builds(And, leaf, leaf) | st.builds(Or, leaf, leaf) | leaf.map(Not))
    return kind, transform, draw(st.lists(st.none() | values, min_size=1, max_size=8)), expression


def _stored(value: Any, kind: IcebergType) -> Any:
    """A value as PyIceberg's evaluators hold it."""
    if isinstance(value, datetime):
        return round((value - datetime(1970, 1, 1)) / timedelta(microseconds=1))
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


@given(partitioned_rows())
@settings(max_examples=200, deadline=None)
def test_every_matching_row_is_in_a_kept_partition_and_covered_ones_hold_no_other(case: Any) -> None:
    kind, transform, rows, expression = case
    schema = Schema(NestedField(1, "x", kind, required=False))
    made = spec(0, (1000, 1, transform, "p"))
    specs = specs_of(schema, made)
    apply = made.fields[0].transform.transform(kind)
    tuples = [(None if r is None else _arrow(apply(_stored(r, kind)), specs),) for r in rows]
    files = entries(specs, [{"partition": t} for t in tuples])
    found = PartitionFilter.of(expression, specs, schema)
    kept, covered = found.judge(files), found.covers(files)
    assert kept.stats == FilterStats()
    matches = expression_evaluator(schema, normalize_expression(expression, schema), True)
    for at, row in enumerate(rows):
        assert kept.keep[at] or not matches(Record(_stored(row, kind)))
        assert not covered[at] or matches(Record(_stored(row, kind)))


def _arrow(value: Any, specs: Specs) -> Any:
    return pa.scalar(value, specs.union[0].arrow_type).as_py()


@given(partitioned_rows(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_manifests_are_pruned_as_by_the_reference(case: Any, has_null: bool) -> None:
    kind, transform, rows, expression = case
    schema = Schema(NestedField(1, "x", kind, required=False))
    made = spec(0, (1000, 1, transform, "p"))
    specs = specs_of(schema, made)
    apply = made.fields[0].transform.transform(kind)
    values = sorted(apply(_stored(r, kind)) for r in rows if r is not None)
    type_ = specs.partition_type(0).fields[0].field_type
    lower, upper = (to_bytes(type_, values[0]), to_bytes(type_, values[-1])) if values else (None, None)
    null = has_null or None in rows or not values
    ours = PartitionFilter.of(expression, specs, schema).may_match(
        _manifest(0, (FieldSummary(null, False, lower, upper),))
    )
    theirs = ManifestFile.from_args(
        manifest_path="m", partitions=[PartitionFieldSummary(null, False, lower, upper)], partition_spec_id=0
    )
    projected = inclusive_projection(schema, made)(expression)
    if transform not in WIDENED:
        assert manifest_evaluator(made, schema, projected)(theirs) or not ours
    matches = expression_evaluator(schema, normalize_expression(expression, schema), True)
    assert ours or not any(matches(Record(_stored(r, kind))) for r in rows)
