"""Field ids of a new table: counted from 1, the columns before what is inside them.

PyIceberg's own numbering drops the default values of columns on the way.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

__all__ = ["with_fresh_ids"]


def with_fresh_ids(schema: Schema) -> Schema:
    """The same columns, numbered anew; schema id 0."""
    numbering = _Numbering()
    fields = numbering.fields(schema.fields)
    identifiers = [numbering.given[i] for i in schema.identifier_field_ids]
    return Schema(*fields, schema_id=0, identifier_field_ids=identifiers)


class _Numbering:
    def __init__(self) -> None:
        self._ids = count(1)
        self.given: dict[int, int] = {}  # from the old id of each field to the new one

    def fields(self, fields: Iterable[NestedField]) -> list[NestedField]:
        numbered = [(self._next(f.field_id), f) for f in fields]
        return [f.model_copy(update={"field_id": i, "field_type": self._type(f.field_type)}) for i, f in numbered]

    def _next(self, old: int) -> int:
        self.given[old] = next(self._ids)
        return self.given[old]

    def _type(self, kind: IcebergType) -> IcebergType:
        match kind:
            case StructType():
                return StructType(*self.fields(kind.fields))
            case ListType():
                element = self._next(kind.element_id)
                return ListType(element, self._type(kind.element_type), kind.element_required)
            case MapType():
                key, value = self._next(kind.key_id), self._next(kind.value_id)
                return MapType(key, self._type(kind.key_type), value, self._type(kind.value_type), kind.value_required)
        return kind
