"""Times beyond what nanoseconds can say are before or after every value of such a column."""

from __future__ import annotations

from datetime import datetime

import pytest
from pyiceberg.expressions import AlwaysFalse, EqualTo, GreaterThan, LessThan, NotNull
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, TimestampNanoType

from neve.predicate import normalize_expression, parse

SCHEMA = Schema(NestedField(1, "n", TimestampNanoType()))
LATE, EARLY = "TIMESTAMP_NTZ '9999-12-31 00:00:00'", "TIMESTAMP_NTZ '0001-01-01 00:00:00'"


@pytest.mark.parametrize("operator", ["<", "<=", "<>"])
def test_every_value_is_before_a_late_time(operator: str):
    assert parse(f"n {operator} {LATE}", SCHEMA).expression == NotNull("n")
    assert parse(f"NOT (n {operator} {LATE})", SCHEMA).expression is AlwaysFalse()


@pytest.mark.parametrize("operator", [">", ">=", "<>"])
def test_every_value_is_after_an_early_time(operator: str):
    assert parse(f"n {operator} {EARLY}", SCHEMA).expression == NotNull("n")


def test_expressions_of_pyiceberg_say_the_same():
    assert normalize_expression(LessThan("n", datetime(9999, 12, 31)), SCHEMA) == NotNull("n")
    assert normalize_expression(GreaterThan("n", datetime(9999, 12, 31)), SCHEMA) is AlwaysFalse()
    assert normalize_expression(EqualTo("n", datetime(1, 1, 1)), SCHEMA) is AlwaysFalse()
