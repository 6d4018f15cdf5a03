"""Statistics filters, judged twice: by the rows a file really has, and by PyIceberg's evaluators."""

from __future__ import annotations

import math
import struct
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    _StrictMetricsEvaluator,
    bind,
    expression_evaluator,
    rewrite_not,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimeType,
    UUIDType,
)

from neve.plan.metrics_filter import STATISTICS, FileRanges, may_match, must_match, values_of_field
from neve.tree.pyiceberg_files import entries_from_pyiceberg
from tests.support.entry_tables import entries, spec, specs_of

SMALL = st.integers(-4, 4)

# few distinct values, so that rows, bounds and literals meet
VALUES: dict[IcebergType, st.SearchStrategy[Any]] = {
    BooleanType(): st.booleans(),
    IntegerType(): SMALL,
    LongType(): SMALL,
    FloatType(): SMALL.map(float) | st.sampled_from([math.nan, -0.0, math.inf]),
    DoubleType(): SMALL.map(lambda n: n / 2) | st.sampled_from([math.nan, -0.0, -math.inf]),
    DateType(): SMALL,
    TimeType(): st.integers(0, 4),
    TimestampType(): SMALL,
    StringType(): st.text("aé\U0001f600z", max_size=4),
    UUIDType(): st.sampled_from([bytes([b]) + bytes(14) + bytes([b]) for b in (0, 1, 127, 128, 255)]),
    FixedType(2): st.binary(min_size=2, max_size=2).map(lambda b: bytes([b[0] % 3, b[1] % 3])),
    BinaryType(): st.binary(max_size=3).map(lambda b: bytes(x % 3 for x in b)),
    DecimalType(9, 2): SMALL.map(lambda n: Decimal(n) / 4).map(lambda d: d.quantize(Decimal("0.01"))),
}
# how the same value is given as a literal of an expression
LITERAL: dict[type, Any] = {
    DateType: lambda n: date.fromordinal(date(1970, 1, 1).toordinal() + n),
    TimestampType: lambda n: datetime(1970, 1, 1) + timedelta(microseconds=n),
    UUIDType: lambda b: UUID(bytes=b),
}


def _is_ordinary(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


@st.composite
def predicates(draw: st.DrawFn, kind: IcebergType) -> BooleanExpression:
    literal = VALUES[kind].filter(_is_ordinary).map(LITERAL.get(type(kind), lambda v: v))
    if isinstance(kind, TimeType):
        literal = literal.map(lambda n: datetime(1970, 1, 1, 0, 0, 0, n).time())
    makers: list[Any] = [LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual, EqualTo, NotEqualTo]
    if isinstance(kind, StringType):
        makers += [StartsWith, NotStartsWith]
    compare = st.builds(lambda make, v: make("x", v), st.sampled_from(makers), literal)
    among = st.builds(
        lambda make, vs: make("x", vs), st.sampled_from([In, NotIn]), st.lists(literal, min_size=1, max_size=4)
    )
    unary = st.sampled_from([IsNull("x"), NotNull("x"), IsNaN("x"), NotNaN("x"), AlwaysTrue(), AlwaysFalse()])
    leaf = compare | among | unary
    return draw(leaf | st.builds(And, leaf, leaf) | st.builds(Or, leaf, leaf) | leaf.map(Not))


@st.composite
def files(draw: st.DrawFn, kind: IcebergType) -> tuple[list[Any], DataFile]:
    """Rows, and a data file whose statistics are true of them but may be missing or wide."""
    rows = draw(st.lists(st.none() | VALUES[kind], max_size=5))
    plain = [v for v in rows if _is_ordinary(v)]
    order = (lambda v: v.encode()) if isinstance(kind, StringType) else (lambda v: v)
    lower, upper = (min(plain, key=order), max(plain, key=order)) if plain else (None, None)
    if isinstance(kind, StringType) and lower is not None and draw(st.booleans()):
        lower, upper = lower[:1], upper + "~"  # cut short, made longer
    floating = isinstance(kind, FloatType | DoubleType)
    known = draw(st.fixed_dictionaries({name: st.integers(0, 3) for name in STATISTICS}))
    given_ = {
        "value_counts": len(rows),
        "null_value_counts": rows.count(None),
        "nan_value_counts": len(rows) - rows.count(None) - len(plain) if floating else None,
        "lower_bounds": None if lower is None else to_bytes(kind, lower),
        "upper_bounds": None if upper is None else to_bytes(kind, upper),
    }
    stats = {
        name: None if not known[name] else {} if given_[name] is None else {1: given_[name]} for name in STATISTICS
    }
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="f",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(rows),
        file_size_in_bytes=1,
        **stats,
    )
    file.spec_id = 0
    return rows, file


@st.composite
def cases(draw: st.DrawFn) -> tuple[IcebergType, BooleanExpression, list[tuple[list[Any], DataFile]]]:
    kind = draw(st.sampled_from(list(VALUES)))
    return kind, draw(predicates(kind)), draw(st.lists(files(kind), min_size=1, max_size=5))


def _schema(kind: IcebergType) -> Schema:
    return Schema(NestedField(1, "x", kind, required=False))


def _judged(kind: IcebergType, expression: BooleanExpression, made: list[DataFile]) -> tuple[Any, Any]:
    table = entries_from_pyiceberg(made, specs_of(_schema(kind), spec(0)))
    bound = bind(_schema(kind), rewrite_not(expression), True)
    return may_match(table, bound), must_match(table, bound)


@given(cases())
@settings(max_examples=150, deadline=None)
def test_no_file_with_a_matching_row_is_dropped_and_no_file_with_another_is_claimed(case: Any) -> None:
    kind, expression, made = case
    row_matches = expression_evaluator(_schema(kind), rewrite_not(expression), True)
    may, must = _judged(kind, expression, [f for _, f in made])
    for at, (rows, _) in enumerate(made):
        matches = [row_matches(Record(v)) for v in rows]
        assert may[at] or not any(matches), (expression, rows)
        assert not must[at] or all(matches), (expression, rows)


@given(cases())
@settings(max_examples=150, deadline=None)
def test_at_least_as_many_files_are_dropped_as_by_the_reference(case: Any) -> None:
    kind, expression, made = case
    if isinstance(kind, UUIDType):
        return  # bounds of UUID columns are believed less, see below
    may, must = _judged(kind, expression, [f for _, f in made])
    inclusive = _InclusiveMetricsEvaluator(_schema(kind), expression)
    strict = _StrictMetricsEvaluator(_schema(kind), expression)
    for at, (_, file) in enumerate(made):
        assert inclusive.eval(file) or not may[at]
        # the reference takes a missing count of nulls or NaNs for a count of none, and deletes with it
        counted = file.null_value_counts and (file.nan_value_counts or not isinstance(kind, FloatType | DoubleType))
        if counted and not isinstance(kind, StringType):
            assert must[at] or not strict.eval(file), (expression, file)


def _one(kind: IcebergType, expression: BooleanExpression, **stats: Any) -> tuple[bool, bool]:
    table = entries(specs_of(_schema(kind), spec(0)), [{"record_count": 3, **stats}], STATISTICS)
    bound = bind(_schema(kind), rewrite_not(expression), True)
    return bool(may_match(table, bound)[0]), bool(must_match(table, bound)[0])


def test_a_missing_null_count_never_proves_that_every_row_matches() -> None:
    bounds = {"lower_bounds": {1: struct.pack("<i", 5)}, "upper_bounds": {1: struct.pack("<i", 9)}}
    assert _one(IntegerType(), GreaterThan("x", 1), **bounds) == (True, False)
    assert _one(IntegerType(), GreaterThan("x", 1), null_value_counts={1: 0}, **bounds) == (True, True)


def test_bounds_of_a_promoted_column_are_read_by_their_length() -> None:
    bounds = {"lower_bounds": {1: struct.pack("<i", 5)}, "upper_bounds": {1: struct.pack("<i", 9)}}
    assert _one(LongType(), GreaterThan("x", 9), **bounds)[0] is False
    assert _one(LongType(), GreaterThan("x", 8), **bounds)[0] is True
    floats = {"lower_bounds": {1: struct.pack("<f", 5)}, "upper_bounds": {1: struct.pack("<f", 9)}}
    assert _one(DoubleType(), LessThan("x", 5.0), **floats)[0] is False


def test_a_corrupt_bound_is_not_known() -> None:
    assert _one(LongType(), GreaterThan("x", 9), upper_bounds={1: b"abc"}) == (True, False)
    assert _one(DoubleType(), GreaterThan("x", 9.0), upper_bounds={1: struct.pack("<d", math.nan)}) == (True, False)


def test_an_unknown_row_count_is_not_an_empty_file() -> None:
    only_nulls = {"value_counts": {1: 3}, "null_value_counts": {1: 3}}
    assert _one(LongType(), EqualTo("x", 1), record_count=-1, **only_nulls) == (True, False)
    assert _one(LongType(), EqualTo("x", 1), record_count=0) == (False, True)


def test_uuid_bounds_of_writers_that_compared_signed_numbers_drop_nothing() -> None:
    negative, positive = UUID(int=0xF0 << 120), UUID(int=0x10 << 120)
    signed = {"lower_bounds": {1: negative.bytes}, "upper_bounds": {1: positive.bytes}}
    assert _one(UUIDType(), EqualTo("x", UUID(int=0)), **signed)[0] is True
    alike = {"lower_bounds": {1: UUID(int=0x10 << 120).bytes}, "upper_bounds": {1: UUID(int=0x20 << 120).bytes}}
    assert _one(UUIDType(), EqualTo("x", UUID(int=0x30 << 120)), **alike)[0] is False


def test_a_list_of_values_with_a_gap_around_the_bounds_drops_the_file() -> None:
    bounds = {"lower_bounds": {1: struct.pack("<q", 40)}, "upper_bounds": {1: struct.pack("<q", 60)}}
    apart = [*range(40), *range(61, 1000)]
    assert _one(LongType(), In("x", apart), **bounds)[0] is False
    assert _one(LongType(), In("x", [*apart, 50]), **bounds)[0] is True


def test_statistics_of_one_field_are_found_in_sliced_and_chunked_columns() -> None:
    kind = pa.list_(pa.struct([("key", pa.int32()), ("value", pa.int64())]))
    rows = [[(1, 10), (2, 20)], None, [], [(2, 21)], [(1, 11), (1, 12)]]
    made = pa.array([r if r is None else [{"key": k, "value": v} for k, v in r] for r in rows], kind)
    assert values_of_field(made, 1).to_pylist() == [10, None, None, None, 12]
    assert values_of_field(made.slice(3), 2).to_pylist() == [21, None]
    assert values_of_field(pa.chunked_array([made.slice(0, 1), made.slice(3)]), 2).to_pylist() == [20, 21, None]
    assert values_of_field(pa.chunked_array([], kind), 2).to_pylist() == []


def test_statistics_that_were_not_read_are_not_known() -> None:
    table = entries(specs_of(_schema(LongType()), spec(0)), [{}, {}])
    bound = bind(_schema(LongType()), And(EqualTo("x", 1), NotNull("x")), True)
    assert may_match(table, bound).all()
    assert not must_match(table, bound).any()


@pytest.mark.parametrize("kind", list(VALUES), ids=str)
def test_columns_without_files_are_judged(kind: IcebergType) -> None:
    table = entries(specs_of(_schema(kind), spec(0)), [], STATISTICS)
    assert len(FileRanges(table).of(NestedField(1, "x", kind, required=False)).may_hold_null) == 0
    assert may_match(table, bind(_schema(kind), NotNull("x"), True)).dtype == np.bool_
