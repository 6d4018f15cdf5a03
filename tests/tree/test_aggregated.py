"""Bounds of many files as one: a file that does not tell its own tells nothing for all of them."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, NestedField, UUIDType

from neve.tree.v4.statistics import LOWER, NULLS, UPPER, VALUES, aggregate_metrics, metric_column

KEYS = [bytes([first]) * 16 for first in (0x10, 0x20, 0x90)]
BINARY = pa.binary(16)

UNTOLD = {
    "a bound that is NaN": (DoubleType(), pa.float64(), (math.nan, 5.0), (math.nan, 5.0)),
    "one bound that is NaN": (DoubleType(), pa.float64(), (1.0, 5.0), (math.nan, 5.0)),
    "UUIDs compared as signed numbers": (UUIDType(), BINARY, (KEYS[2], KEYS[1]), (KEYS[0], KEYS[1])),
}


def bounds_of(kind: Any, arrow: pa.DataType, lower: Any, upper: Any) -> tuple[Any, Any]:
    counts = {VALUES: pa.array([2, 1], pa.int64()), NULLS: pa.array([0, 0], pa.int64())}
    told = {LOWER: pa.array(lower, arrow), UPPER: pa.array(upper, arrow), **counts}
    found = aggregate_metrics({metric_column(1, m): v for m, v in told.items()}, Schema(NestedField(1, "x", kind)))
    return tuple(found[name].as_py() if (name := metric_column(1, m)) in found else None for m in (LOWER, UPPER))


@pytest.mark.parametrize("case", UNTOLD)
def test_a_bound_that_one_file_does_not_tell_is_not_told(case: str):
    found = bounds_of(*UNTOLD[case])
    assert found[1] is None and (found[0] is None or case == "one bound that is NaN")


def test_the_outermost_bounds_are_those_of_all():
    assert bounds_of(DoubleType(), pa.float64(), (1.0, 5.0), (2.0, 7.0)) == (1.0, 7.0)
    assert bounds_of(UUIDType(), BINARY, (KEYS[0], KEYS[1]), (KEYS[1], KEYS[2])) == (KEYS[0], KEYS[2])
