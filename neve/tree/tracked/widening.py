"""Bounds made wider so that they take fewer bytes: round numbers, short strings.

A range grows by a 16th of itself at most on either side, so what it rules out is almost the same. Ranges that are not
understood stay as they are.
"""

from __future__ import annotations

import math

import pyarrow as pa

__all__ = ["widened"]

_STEPS = 16
_EXACT = 1 << 52  # whole numbers that a float holds exactly
_MORE = 4  # characters beyond those that both ends share
_LAST = 0xD7FF  # before the surrogates, which are no characters


_CALENDARS = (
    (pa.types.is_date32, (-719_162, 2_932_896)),
    (pa.types.is_time64, (0, 86_399_999_999)),
    (
        lambda kind: pa.types.is_timestamp(kind) and kind.unit == "us",
        (-62_135_596_800_000_000, 253_402_300_799_999_999),
    ),
)
"""The first and the last day, microsecond of a day, and microsecond between the years 1 and 9999."""


def widened(lower: pa.Scalar, upper: pa.Scalar) -> tuple[pa.Scalar, pa.Scalar]:
    """A range around another one, of the same type."""
    kind = lower.type
    if pa.types.is_integer(kind):
        return _whole(lower, upper, kind)
    if pa.types.is_temporal(kind):
        return _through(lower, upper, pa.int32() if pa.types.is_date32(kind) else pa.int64())
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return _floating(lower, upper, kind)
    return _text(lower, upper) if pa.types.is_string(kind) else (lower, upper)


def _through(lower: pa.Scalar, upper: pa.Scalar, storage: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    """Dates and times as the numbers they are stored as; a bound stays where a rounder one would leave the calendar."""
    low, high = _whole(lower.cast(storage), upper.cast(storage), storage)
    first, last = next((span for is_one, span in _CALENDARS if is_one(lower.type)), (None, None))
    is_before = first is not None and low.as_py() < first
    is_behind = last is not None and high.as_py() > last
    return (lower if is_before else low.cast(lower.type)), (upper if is_behind else high.cast(upper.type))


def _whole(lower: pa.Scalar, upper: pa.Scalar, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    low, high = lower.as_py(), upper.as_py()
    step = 1 << max(0, ((high - low) // _STEPS).bit_length() - 1)
    limit = 1 << (kind.bit_width - 1)
    low, high = low // step * step, -(-high // step) * step
    return (lower if low < -limit else pa.scalar(low, kind)), (upper if high >= limit else pa.scalar(high, kind))


def _floating(lower: pa.Scalar, upper: pa.Scalar, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    low, high = lower.as_py(), upper.as_py()
    width = high - low
    if not math.isfinite(width) or width <= 0:
        return lower, upper
    step = math.ldexp(1.0, math.frexp(width / _STEPS)[1] - 1)
    if step == 0 or abs(low / step) > _EXACT or abs(high / step) > _EXACT:
        return lower, upper
    ends = pa.scalar(math.floor(low / step) * step, kind), pa.scalar(math.ceil(high / step) * step, kind)
    is_around = ends[0].as_py() <= low and high <= ends[1].as_py() and math.isfinite(ends[1].as_py() - ends[0].as_py())
    return ends if is_around else (lower, upper)


def _text(lower: pa.Scalar, upper: pa.Scalar) -> tuple[pa.Scalar, pa.Scalar]:
    low, high = lower.as_py(), upper.as_py()
    shared = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    end = shared + _MORE
    short = high[:end]
    if len(high) > end:
        if not ord(short[-1]) < _LAST:
            return pa.scalar(low[:end]), upper
        short = short[:-1] + chr(ord(short[-1]) + 1)
    return pa.scalar(low[:end]), pa.scalar(short)
