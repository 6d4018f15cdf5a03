"""The columns of a table while a statement changes them, found as the session finds names.

A session that does not tell upper from lower case finds a column by a name in any case, and may not make two columns
whose names differ in nothing else: it could read neither of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, StructType
from pyspark.sql import SparkSession

from neve.model.ddl_types import refuse_alike
from neve.ops.metadata.evolve_schema import SchemaChange
from neve.predicate.column_names import find_column
from neve.predicate.constants import zone_of
from neve.run.spark.session import is_case_sensitive
from neve.sql.target import Name, table_named
from neve.table import Table

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["Columns", "evolving"]


@dataclass
class Columns:
    """The columns of a table and the change that is being made to them."""

    table: Table
    change: SchemaChange
    is_case_sensitive: bool
    zone: tzinfo  # of the clock on which times without one are read
    added: list[Name] = field(default_factory=list)

    def path(self, given: Name) -> Name:
        """The path of a column in the case it has; one that is not there stays as it is."""
        if self.is_case_sensitive or not given:
            return given
        outer, last = self.path(given[:-1]), given[-1]
        if (added := next((a for a in self.added if _folded(a) == _folded((*outer, last))), None)) is not None:
            return added
        found = find_column(Schema(*self._fields(outer)), last, case_sensitive=False)
        return (*outer, last if found is None or "." in last else found.name)

    def added_path(self, given: Name) -> Name:
        """The path of a column to be added."""
        outer = self.path(given[:-1])
        self._refuse_alike(outer, given[-1])
        self.added.append((*outer, given[-1]))
        return self.added[-1]

    def renamed_path(self, given: Name, new_name: str) -> Name:
        """The path of a column to be renamed; a change of nothing but its case is no second column."""
        path = self.path(given)
        self._refuse_alike(path[:-1], new_name, besides=path[-1])
        return path

    def has(self, given: Name) -> bool:
        """Whether the table has such a column."""
        return ".".join(self.path(given)) in self.table.schema.column_names

    def _refuse_alike(self, outer: Name, name: str, besides: str | None = None) -> None:
        if not self.is_case_sensitive:
            beside = [f.name for f in self._fields(outer)] + [a[-1] for a in self.added if a[:-1] == outer]
            refuse_alike(name, [other for other in beside if other != besides])

    def _fields(self, outer: Name) -> tuple[NestedField, ...]:
        """The columns at the top, or those of a struct, also of one inside a list or the values of a map."""
        if not outer:
            return self.table.schema.fields
        around = find_column(self.table.schema, ".".join(outer), case_sensitive=True)
        match None if around is None else around.field_type:
            case StructType() as struct:
                return struct.fields
            case ListType(element_type=StructType() as struct) | MapType(value_type=StructType() as struct):
                return struct.fields
        return ()


@contextmanager
def evolving(lake: Lake, name: Name) -> Iterator[Columns]:
    """The columns of a table, to be changed; the change lands when the block ends."""
    table = table_named(lake, name)
    running: Any = lake.given_spark or SparkSession.getActiveSession()  # none is started for a change of metadata
    tells_case = running is not None and is_case_sensitive(running)
    change = table.evolve_schema()
    with change:
        yield Columns(table, change, tells_case, zone_of(lake.time_zone()))


def _folded(path: Name) -> Name:
    return tuple(part.lower() for part in path)
