"""The names columns are read from Parquet under, chosen so that Spark cannot confuse two of them.

Spark finds columns by field id but pushes filters, and picks types, by name. A filter on `a` then looks at whatever the
file calls `a`: after `a` was dropped and added again, or two columns swapped names, that is another column and rows are
lost. So a column keeps its name only if no other field ever bore it in any schema of the table; otherwise it is read as
`__f<id>`, a name no file has. It keeps it where it can because a filter on a name the file does not know skips no row
groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

__all__ = ["ReadNames", "synthetic"]

_ROOT = -1
_RESERVED = ("_metadata",)  # the hidden column Spark adds to every file source


def synthetic(field: NestedField) -> str:
    """A name that no file has."""
    return f"__f{field.field_id}"


@dataclass(frozen=True)
class ReadNames:
    """Which names of a table's columns are safe, over all the schemas it ever had."""

    schemas: tuple[Schema, ...]

    def top(self, field: NestedField) -> str:
        """The name to read a column under."""
        return field.name if self._is_safe(_ROOT, field) else synthetic(field)

    def are_inner_names_safe(self, field: NestedField) -> bool:
        """Whether everything inside a column can keep its name; if not, all of it is read under synthetic ones."""
        return all(self._is_safe(parent, inner) for parent, inner in _inner(field))

    def _is_safe(self, parent: int, field: NestedField) -> bool:
        folded = field.name.lower()
        if folded.startswith("__") or folded in _RESERVED:
            return False
        return self._bearers[parent, folded] <= {field.field_id}

    @cached_property
    def _bearers(self) -> Mapping[tuple[int, str], set[int]]:
        """Who ever bore a name inside a parent; Spark may ignore case, and writers replace odd characters."""
        bearers: dict[tuple[int, str], set[int]] = defaultdict(set)
        for schema in self.schemas:
            for parent, field in _fields(schema.fields, _ROOT):
                for name in (field.name, make_compatible_name(field.name)):
                    bearers[parent, name.lower()].add(field.field_id)
        return bearers


def _fields(fields: Iterable[NestedField], parent: int) -> Iterator[tuple[int, NestedField]]:
    """Every struct field at any depth, with the id of the field or element that holds it."""
    for field in fields:
        yield parent, field
        yield from _inner(field)


def _inner(field: NestedField) -> Iterator[tuple[int, NestedField]]:
    yield from _inside(field.field_type, field.field_id)


def _inside(kind: IcebergType, holder: int) -> Iterator[tuple[int, NestedField]]:
    match kind:
        case StructType():
            yield from _fields(kind.fields, holder)
        case ListType():
            yield from _inside(kind.element_type, kind.element_id)
        case MapType():
            yield from _inside(kind.key_type, kind.key_id)
            yield from _inside(kind.value_type, kind.value_id)
