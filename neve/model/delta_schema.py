"""The columns of a Delta table as an Iceberg schema.

Where Delta maps columns (`delta.columnMapping.mode`), their names in data files never change, and each has a number,
which its files store as the field id. The Iceberg schema then has the same ids, and a second one has the stored names.

>>> text = '{"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": false, "metadata": {}}]}'
>>> parse_delta_schema(text, is_mapped=False).schema.fields
(NestedField(field_id=1, name='n', field_type=LongType(), required=True),)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from pyiceberg import types as ice
from pyiceberg.schema import Schema

from neve.errors import UnsupportedFeature

_ID, _STORED_NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_NESTED_IDS = "delta.columnMapping.nested.ids"
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_TYPES: Mapping[str, ice.IcebergType] = {
    "boolean": ice.BooleanType(),
    "byte": ice.IntegerType(),
    "short": ice.IntegerType(),
    "integer": ice.IntegerType(),
    "long": ice.LongType(),
    "float": ice.FloatType(),
    "double": ice.DoubleType(),
    "string": ice.StringType(),
    "binary": ice.BinaryType(),
    "date": ice.DateType(),
    "timestamp": ice.TimestamptzType(),
    "timestamp_ntz": ice.TimestampType(),
}


@dataclass(frozen=True)
class DeltaColumns:
    """The columns of a Delta table under their names, and under those that its data files have."""

    schema: Schema
    stored_schema: Schema


def parse_delta_schema(text: str, *, is_mapped: bool) -> DeltaColumns:
    """Return the columns of the schema in a Delta log; raises UnsupportedFeature for types that Iceberg lacks."""
    root = json.loads(text)
    last = max((ids for ids in _ids_in(root)), default=0) if is_mapped else 0
    schemas = []
    for is_stored in (False, True):
        converter = _Converter(is_mapped, is_stored and is_mapped, count(last + 1))
        schemas.append(Schema(*converter.fields(root["fields"])))
    return DeltaColumns(*schemas)


def _ids_in(node: Any) -> list[int]:
    """Return the numbers of all columns, nested ones too."""
    if isinstance(node, list):
        return [found for each in node for found in _ids_in(each)]
    if not isinstance(node, dict):
        return []
    own = [node[_ID]] if _ID in node else []
    return [*own, *node.get(_NESTED_IDS, {}).values(), *(found for each in node.values() for found in _ids_in(each))]


@dataclass(frozen=True)
class _Converter:
    is_mapped: bool
    takes_stored_names: bool
    new_ids: count[int]  # for columns that Delta does not number

    def fields(self, nodes: list[dict[str, Any]]) -> list[ice.NestedField]:
        return [self.field(node) for node in nodes]

    def field(self, node: dict[str, Any]) -> ice.NestedField:
        about = node.get("metadata") or {}
        stored = about.get(_STORED_NAME, node["name"])
        return ice.NestedField(
            field_id=about[_ID] if self.is_mapped and _ID in about else next(self.new_ids),
            name=stored if self.takes_stored_names else node["name"],
            field_type=self.type(node["type"], node["name"], about.get(_NESTED_IDS) or {}, stored),
            required=not node.get("nullable", True),
            doc=about.get("comment"),
        )

    def type(self, node: Any, column: str, ids: Mapping[str, int], path: str) -> ice.IcebergType:
        """Return a type; `ids` has the ids of elements, keys and values below a column, by their path."""
        if isinstance(node, str):
            return _primitive(node, column)

        def inner(name: str, kind: Any) -> tuple[int, ice.IcebergType]:
            below = f"{path}.{name}"
            return ids[below] if self.is_mapped and below in ids else next(self.new_ids), self.type(
                kind, column, ids, below
            )

        if node["type"] == "struct":
            return ice.StructType(*self.fields(node["fields"]))
        if node["type"] == "array":
            element_id, element = inner("element", node["elementType"])
            return ice.ListType(element_id, element, not node["containsNull"])
        if node["type"] == "map":
            (key_id, key), (value_id, value) = inner("key", node["keyType"]), inner("value", node["valueType"])
            return ice.MapType(key_id, key, value_id, value, not node["valueContainsNull"])
        return _primitive(str(node["type"]), column)


def _primitive(name: str, column: str) -> ice.IcebergType:
    if (found := _TYPES.get(name)) is not None:
        return found
    if decimal := _DECIMAL.fullmatch(name):
        return ice.DecimalType(int(decimal[1]), int(decimal[2]))
    raise UnsupportedFeature(f"Column {column!r} has Delta's type {name}, which tables here cannot have.")
