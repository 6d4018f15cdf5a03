"""Values of tables as Python has them, for people to read; what Python has no value for is text.

>>> import pyarrow as pa
>>> readable(pa.array([20_000, 2_932_897], pa.date32()))
[datetime.date(2024, 10, 4), '10000-01-01']
>>> readable(pa.array([[((1, 2), "a")]], pa.map_(pa.list_(pa.int32()), pa.string())))
[[{'key': [1, 2], 'value': 'a'}]]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["readable"]


def readable(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column: maps by key, or as pairs when a dict cannot have the keys; far times as text."""
    try:
        found: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, TypeError, ValueError):
        return [_value(scalar) for scalar in column]
    return found


def _value(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    match scalar:
        case pa.MapScalar():
            return [{"key": _value(pair["key"]), "value": _value(pair["value"])} for pair in scalar.values]
        case pa.ListScalar():
            return [_value(one) for one in scalar.values]
        case pa.StructScalar():
            return {name: _value(one) for name, one in scalar.items()}
        case pa.Date32Scalar() | pa.TimestampScalar():
            return _time(scalar)
    return scalar.as_py()


def _time(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        found = np.int64(scalar.value).astype(f"datetime64[{getattr(scalar.type, 'unit', 'D')}]")
        return f"{found}{'+00:00' if getattr(scalar.type, 'tz', None) else ''}"
