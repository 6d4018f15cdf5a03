"""Format numbers, sizes, times and values of tables for people.

>>> plural(1204, "file"), plural(1, "file"), format_size(1536), format_percent(0.0314), format_percent(0.0001)
('1,204 files', '1 file', '1.5 KiB', '3.1 %', 'under 0.1 %')
>>> format_day(0), format_time(1_700_000_000_000)
('1970-01-01', '2023-11-14 22:13')
>>> readable_values(pa.array([20_000, 2_932_897], pa.date32()))
[datetime.date(2024, 10, 4), '10000-01-01']
>>> readable_values(pa.array([[((1, 2), "a")]], pa.map_(pa.list_(pa.int32()), pa.string())))
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
    """Return a number with a noun in singular or plural."""
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"


def format_size(number: float) -> str:
    """Return a size in a suitable unit, with two or three significant digits."""
    value, unit = float(number), 0
    while abs(value) >= 1023.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    digits = 0 if unit == 0 or abs(value) >= 99.5 else 1
    text = f"{value:,.{digits}f}".removesuffix(".0")
    return f"{text} {_UNITS[unit]}"


def format_percent(part: float) -> str:
    """Return a share in percent; it is rounded neither down to 0 % nor up to 100 %."""
    if 0 < part < 0.001:
        return "under 0.1 %"
    text = f"{part * 100:.1f}".removesuffix(".0")
    return "over 99.9 %" if text == "100" and part < 1 else f"{text} %"


def format_time(milliseconds: int) -> str:
    """Return a UTC time to the minute."""
    return _strftime(milliseconds, "%Y-%m-%d %H:%M")


def format_day(milliseconds: int) -> str:
    """Return a UTC day."""
    return _strftime(milliseconds, "%Y-%m-%d")


def join_with_and(parts: list[str]) -> str:
    """Join words for a sentence: a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def _strftime(milliseconds: int, pattern: str) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).strftime(pattern)
    except OverflowError:  # beyond Python's calendar
        return str(milliseconds)


def readable_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python has them.

    A map becomes a dict, or a list of pairs if its keys are not hashable. Times beyond Python's calendar become text.
    """
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, TypeError, ValueError):
        return [_python_value(scalar) for scalar in column]
    return values


def _python_value(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    match scalar:
        case pa.MapScalar():
            return [
                {"key": _python_value(pair["key"]), "value": _python_value(pair["value"])} for pair in scalar.values
            ]
        case pa.ListScalar():
            return [_python_value(element) for element in scalar.values]
        case pa.StructScalar():
            return {name: _python_value(value) for name, value in scalar.items()}
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if not isinstance(scalar, pa.Date32Scalar | pa.TimestampScalar):
            raise
        time = np.int64(scalar.value).astype(f"datetime64[{getattr(scalar.type, 'unit', 'D')}]")  # beyond the calendar
        return f"{time}{'+00:00' if getattr(scalar.type, 'tz', None) else ''}"
