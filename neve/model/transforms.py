"""Transforms this engine does not know: they keep the name another engine gave them.

PyIceberg reads any such transform as `unknown` and writes that. A commit would then take its name away for everyone.

>>> str(NamedTransform("geohash[5]")), NamedTransform("geohash[5]") == NamedTransform("geohash[6]")
('geohash[5]', False)
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field
from pyiceberg.exceptions import ValidationError
from pyiceberg.transforms import UnknownTransform, parse_transform

__all__ = ["NamedTransform", "with_named_transforms"]


_BEGINNING = re.compile(r"(bucket|truncate)\W")


class NamedTransform(UnknownTransform[Any, Any]):
    """An unknown transform that is written as it was read, and equal only to one of the same name."""

    root: str = Field(default="unknown")  # type: ignore[assignment]

    def __init__(self, transform: str, **data: Any) -> None:
        super().__init__(transform, **{"root": transform, **data})


def with_named_transforms(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fields of a spec or a sort order as JSON has them, with transforms nobody here knows made into values."""
    return [
        {**field, "transform": _named(field.get("transform"))} if "transform" in field else field for field in fields
    ]


def _named(transform: Any) -> Any:
    try:
        is_unknown = isinstance(transform, str) and isinstance(parse_transform(transform), UnknownTransform)
    except (ValueError, ValidationError):  # of a known name and unreadable, which the model says; or it only begins so
        is_unknown = _BEGINNING.match(str(transform)) is None
    return NamedTransform(transform) if is_unknown else transform
