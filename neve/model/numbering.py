"""Field ids of a new table or column: counted upwards, the columns before what is inside them.

PyIceberg's own numbering drops the default values of columns on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

__all__ = ["with_fresh_ids", "with_next_ids"]


def with_fresh_ids(schema: Schema) -> Schema:
    """The same columns, numbered anew; schema id 0."""
    ids = count(1)
    numbering = _Numbering(lambda: next(ids))
    fields = numbering.fields(schema.fields)
    identifiers = [numbering.given[i] for i in schema.identifier_field_ids]
    return Schema(*fields, schema_id=0, identifier_field_ids=identifiers)


def with_next_ids(kind: IcebergType, next_id: Callable[[], int]) -> IcebergType:
    """The same type, the fields inside it numbered anew."""
    return _Numbering(next_id).type(kind)


class _Numbering:
    def __init__(self, next_id: Callable[[], int]) -> None:
        self._next_id = next_id
        self.given: dict[int, int] = {}  # from the old id of each field to the new one

    def fields(self, fields: Iterable[NestedField]) -> list[NestedField]:
        numbered = [(self._next(f.field_id), f) for f in fields]
        return [f.model_copy(update={"field_id": i, "field_type": self.type(f.field_type)}) for i, f in numbered]

    def _next(self, old: int) -> int:
        self.given[old] = self._next_id()
        return self.given[old]

    def type(self, kind: IcebergType) -> IcebergType:
        match kind:
            case StructType():
                return StructType(*self.fields(kind.fields))
            case ListType():
                element = self._next(kind.element_id)
                return ListType(element, self.type(kind.element_type), kind.element_required)
            case MapType():
                key, value = self._next(kind.key_id), self._next(kind.value_id)
                return MapType(key, self.type(kind.key_type), value, self.type(kind.value_type), kind.value_required)
        return kind
