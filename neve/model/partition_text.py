"""Partition values as people read them.

>>> from pyiceberg.transforms import DayTransform, IdentityTransform
>>> partition_text(DayTransform(), DateType(), 20_000), partition_text(IdentityTransform(), DateType(), 2_932_897)
('2024-10-04', '10000-01-01')
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote_plus
from uuid import UUID

import numpy as np
from pyiceberg.transforms import Transform
from pyiceberg.types import DateType, IcebergType, TimestampNanoType, TimestamptzNanoType, UUIDType

from neve.model.partition import Specs

__all__ = ["partition_folders", "partition_text"]

_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_NANOSECONDS = (TimestampNanoType, TimestamptzNanoType)


def partition_text(transform: Transform[Any, Any], kind: IcebergType, value: Any) -> str:
    """A partition value as Iceberg writes it, also when Python's calendar does not reach it."""
    if isinstance(kind, UUIDType) and isinstance(value, bytes):
        value = UUID(bytes=value)
    try:
        return transform.to_human_string(kind, value)
    except (OverflowError, ValueError):
        of_type = "D" if isinstance(kind, DateType) else "ns" if isinstance(kind, _NANOSECONDS) else "us"
        text = str(np.int64(value).astype(f"datetime64[{_UNITS.get(str(transform), of_type)}]"))
        return text.replace("T", "-") if str(transform) == "hour" else text


def partition_folders(specs: Specs, spec_id: int, values: Sequence[object]) -> Iterator[str]:
    """The values of a partition as Iceberg spells them in paths and summaries: `day=2024-01-01`, then `region=eu`.

    Dates and times are given as counts. Names and values are escaped as in a query string.
    """
    for field, value in zip(specs[spec_id].fields, values, strict=True):
        text = partition_text(field.transform, specs.result_type(field), value)
        yield f"{quote_plus(field.name)}={quote_plus(text)}"
