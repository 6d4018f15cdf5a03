"""Numbers, sizes and times in words.

>>> several(1204, "file"), several(1, "file"), size(1536), share(0.0314), share(0.0001)
('1,204 files', '1 file', '1.5 KiB', '3.1 %', 'under 0.1 %')
>>> day(0), moment(1_700_000_000_000)
('1970-01-01', '2023-11-14 22:13')

Values of tables as Python has them, for people to read; what Python has no value for is text.

>>> import pyarrow as pa
>>> readable(pa.array([20_000, 2_932_897], pa.date32()))
[datetime.date(2024, 10, 4), '10000-01-01']
>>> readable(pa.array([[((1, 2), "a")]], pa.map_(pa.list_(pa.int32()), pa.string())))
[[{'key': [1, 2], 'value': 'a'}]]
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plural(number: int, name: str) -> str:
    """A number of things."""
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"


def format_size(number: float) -> str:
    """Bytes in the unit that suits them, with two or three digits that count."""
    value, unit = float(number), 0
    while abs(value) >= 1023.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    digits = 0 if unit == 0 or abs(value) >= 99.5 else 1
    text = f"{value:,.{digits}f}".removesuffix(".0")
    return f"{text} {_UNITS[unit]}"


def format_percent(part: float) -> str:
    """A share in percent; what is not nothing is not said to be."""
    if 0 < part < 0.001:
        return "under 0.1 %"
    text = f"{part * 100:.1f}".removesuffix(".0")
    return "over 99.9 %" if text == "100" and part < 1 else f"{text} %"


def format_time(milliseconds: int) -> str:
    """A time to the minute, in UTC."""
    at = _utc_time(milliseconds)
    return str(milliseconds) if at is None else at.strftime("%Y-%m-%d %H:%M")


def format_day(milliseconds: int) -> str:
    """A day, in UTC."""
    at = _utc_time(milliseconds)
    return str(milliseconds) if at is None else at.strftime("%Y-%m-%d")


def join_with_and(parts: list[str]) -> str:
    """Several things in a sentence: a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def _utc_time(milliseconds: int) -> datetime | None:
    """A time, unless it is one no calendar has."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def readable_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column: maps by key, or as pairs when a dict cannot have the keys; far times as text."""
    try:
        found: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, TypeError, ValueError):
        return [_python_value(scalar) for scalar in column]
    return found


def _python_value(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    match scalar:
        case pa.MapScalar():
            return [
                {"key": _python_value(pair["key"]), "value": _python_value(pair["value"])} for pair in scalar.values
            ]
        case pa.ListScalar():
            return [_python_value(one) for one in scalar.values]
        case pa.StructScalar():
            return {name: _python_value(one) for name, one in scalar.items()}
        case pa.Date32Scalar() | pa.TimestampScalar():
            return _readable_time(scalar)
    return scalar.as_py()


def _readable_time(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        found = np.int64(scalar.value).astype(f"datetime64[{getattr(scalar.type, 'unit', 'D')}]")
        return f"{found}{'+00:00' if getattr(scalar.type, 'tz', None) else ''}"
