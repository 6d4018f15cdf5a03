"""The names columns are read from Parquet under, chosen so that Spark cannot confuse two of them.

Spark finds columns by field id but pushes filters, and picks types, by name. A filter on `a` then looks at whatever the
file calls `a`: after `a` was dropped and added again, or two columns swapped names, that is another column and rows are
lost. So a column keeps its name only if no other field ever bore it in any schema of the table; otherwise it is read as
`__f<id>`, a name no file has. It keeps it where it can because a filter on a name the file does not know skips no row
groups. For the same reason files from before a column was renamed are read under the name it had then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, NestedField, StructType

from neve.run.facts import TableFacts
from neve.tree.entries import EntryTable

__all__ = ["ReadNames", "former_names", "synthetic"]

_ROOT = -1
_RESERVED = ("_metadata",)  # the hidden column Spark adds to every file source


def synthetic(field: NestedField) -> str:
    """A name that no file has."""
    return f"__f{field.field_id}"


@dataclass(frozen=True)
class ReadNames:
    """Which names of a table's columns are safe, over all the schemas it ever had."""

    schemas: tuple[Schema, ...]
    former: Mapping[int, str] = field(default_factory=dict)  # what the files to be read call columns renamed since
    has_forgotten: bool = False  # columns of which nobody knows what they were called

    def top(self, field: NestedField) -> str:
        """The name to read a column under."""
        name = self.former.get(field.field_id, field.name)
        return name if self._is_safe(_ROOT, field.field_id, name) else synthetic(field)

    def are_inner_names_safe(self, field: NestedField) -> bool:
        """Whether everything inside a column can keep its name; if not, all of it is read under synthetic ones."""
        return all(self._is_safe(parent, inner.field_id, inner.name) for parent, inner in _inner(field))

    def is_widened(self, field: NestedField) -> bool:
        """Whether files may hold a column with fewer digits than it has now."""
        then = [s.find_type(field.field_id) for s in self.schemas if field.field_id in s.field_ids]
        return _holds_decimals(field.field_type) and (self.has_forgotten or any(k != field.field_type for k in then))

    def _is_safe(self, parent: int, field_id: int, name: str) -> bool:
        folded = name.lower()
        if self.has_forgotten or folded.startswith("__") or folded in _RESERVED:
            return False
        return self._bearers[parent, folded] <= {field_id}

    @cached_property
    def _bearers(self) -> Mapping[tuple[int, str], set[int]]:
        """Who ever bore a name inside a parent; Spark may ignore case, and writers replace odd characters."""
        bearers: dict[tuple[int, str], set[int]] = defaultdict(set)
        for schema in self.schemas:
            for parent, bearer in _fields(schema.fields, _ROOT):
                for name in (bearer.name, make_compatible_name(bearer.name)):
                    bearers[parent, name.lower()].add(bearer.field_id)
        return bearers


def _holds_decimals(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_decimals(f.field_type) for f in kind.fields)
    return isinstance(kind, DecimalType)


def former_names(
    files: EntryTable, fields: Sequence[NestedField], facts: TableFacts
) -> Iterator[tuple[dict[int, str], NDArray[np.int64]]]:
    """The rows of files that call the columns alike, with the names that differ from today's."""
    schemas = {s.schema_id: s for s in facts.schemas}
    snapshots, which = np.unique(pc.fill_null(files["snapshot_id"], -1).to_numpy(), return_inverse=True)
    groups: dict[tuple[tuple[int, str], ...], list[int]] = defaultdict(list)
    for place, snapshot in enumerate(snapshots.tolist()):
        schema = schemas.get(facts.written_with.get(snapshot, -1))
        groups[() if schema is None else _renamed(fields, schema)].append(place)
    for names, places in groups.items():
        yield dict(names), np.flatnonzero(np.isin(which, places))


def _renamed(fields: Sequence[NestedField], then: Schema) -> tuple[tuple[int, str], ...]:
    names = {f.field_id: f.name for f in then.fields}
    return tuple((f.field_id, names[f.field_id]) for f in fields if names.get(f.field_id, f.name) != f.name)


def _fields(fields: Iterable[NestedField], parent: int) -> Iterator[tuple[int, NestedField]]:
    """Every struct field at any depth, with the id of the field or element that holds it."""
    for each in fields:
        yield parent, each
        yield from _inner(each)


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
