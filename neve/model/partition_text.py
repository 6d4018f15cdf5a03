"""Partition values as people read them.

>>> from pyiceberg.transforms import DayTransform, IdentityTransform
>>> partition_text(DayTransform(), DateType(), 20_000), partition_text(IdentityTransform(), DateType(), 2_932_897)
('2024-10-04', '10000-01-01')
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyiceberg.transforms import Transform
from pyiceberg.types import DateType, IcebergType, TimestampNanoType, TimestamptzNanoType

__all__ = ["partition_text"]

_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_NANOSECONDS = (TimestampNanoType, TimestamptzNanoType)


def partition_text(transform: Transform[Any, Any], kind: IcebergType, value: Any) -> str:
    """A partition value as Iceberg writes it, also when Python's calendar does not reach it."""
    try:
        return transform.to_human_string(kind, value)
    except (OverflowError, ValueError):
        of_type = "D" if isinstance(kind, DateType) else "ns" if isinstance(kind, _NANOSECONDS) else "us"
        return str(np.int64(value).astype(f"datetime64[{_UNITS.get(str(transform), of_type)}]"))
