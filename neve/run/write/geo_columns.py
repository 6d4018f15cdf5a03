"""Columns of geometry in data files: Parquet's own types for them, and bounds from its statistics.

Up to the file, such values are plain binary. Arrow writes Parquet's type for an extension type of the name that
GeoArrow gave it. The type is not registered, so that files that are read have plain binary again.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema, index_by_id

from neve.model.v3_types import GEO_TYPES

_FIELD_ID = b"PARQUET:field_id"
_DEFAULT_SYSTEM, _SPHERICAL = "OGC:CRS84", "spherical"


class WellKnownBinary(pa.ExtensionType):
    """Shapes in a coordinate system; `about` is what GeoArrow writes of them."""

    def __init__(self, about: str) -> None:
        self.about = about
        super().__init__(pa.binary(), "geoarrow.wkb")

    def __arrow_ext_serialize__(self) -> bytes:
        return self.about.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> WellKnownBinary:
        return cls(serialized.decode())


def file_types_of_shapes(schema: Schema) -> dict[int, WellKnownBinary]:
    """Return the types of the columns of shapes, by field id; Arrow cannot write every kind of geography."""
    found = {i: _file_type(field.field_type) for i, field in index_by_id(schema).items()}
    return {i: kind for i, kind in found.items() if kind is not None}


def _file_type(kind: ice.IcebergType) -> WellKnownBinary | None:
    if not isinstance(kind, GEO_TYPES):
        return None
    about = {} if kind.crs == _DEFAULT_SYSTEM else {"crs": kind.crs}
    if isinstance(kind, ice.GeographyType):
        if kind.algorithm != _SPHERICAL:
            return None
        about["edges"] = _SPHERICAL
    return WellKnownBinary(json.dumps(about))


def with_file_types(schema: pa.Schema, kinds: Mapping[int, WellKnownBinary]) -> pa.Schema:
    """Return the schema of data files with other types for columns, by field id."""
    return pa.schema([_with_file_types(each, kinds) for each in schema])


def _with_file_types(field: pa.Field, kinds: Mapping[int, WellKnownBinary]) -> pa.Field:
    own = int((field.metadata or {}).get(_FIELD_ID, b"-1"))
    if own in kinds:
        return field.with_type(kinds[own])
    kind = field.type
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_with_file_types(each, kinds) for each in kind]))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_with_file_types(kind.value_field, kinds)))
    if pa.types.is_map(kind):
        parts = (_with_file_types(each, kinds) for each in (kind.key_field, kind.item_field))
        return field.with_type(pa.map_(*parts))
    return field


def shape_bounds(chunks: Sequence[Any]) -> tuple[bytes, bytes] | None:
    """Return the corners of the box around all shapes of a file, as the format stores points; None if it is unknown."""
    boxes = [chunk.geo_statistics for chunk in chunks]
    x, y, z, m = (
        _range_of_axis([(getattr(b, f"{axis}min", None), getattr(b, f"{axis}max", None)) for b in boxes])
        for axis in "xyzm"
    )
    if x is None or y is None:
        return None
    axes = [x, y, z or (nan, nan), m] if m else [x, y, z] if z else [x, y]
    low, high = (struct.pack(f"<{len(axes)}d", *(axis[end] for axis in axes if axis)) for end in (0, 1))
    return low, high


def _range_of_axis(ends: Sequence[tuple[float | None, float | None]]) -> tuple[float, float] | None:
    lows, highs = ([pair[end] for pair in ends] for end in (0, 1))
    known = [low for low in lows if low is not None], [high for high in highs if high is not None]
    return (min(known[0]), max(known[1])) if ends and len(known[0]) == len(known[1]) == len(ends) else None
