"""What readers and writers of data files need of a table: a value that is sent to executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.io import PY_IO_IMPL, FileIO, load_file_io
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField

from neve.model.partition import Specs
from neve.model.pyiceberg_private import fields_by_id


@dataclass(frozen=True)
class TableFacts:
    """Schemas, specs and name mapping of a table, and how to access its files."""

    specs: Specs
    format_version: int
    location: str
    name_mapping: NameMapping | None = None
    io_properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold credentials
    schemes: Mapping[str, str] = field(default_factory=dict)  # from schemes of paths to those of Spark's connectors
    schema_id_by_snapshot: Mapping[int, int] = field(default_factory=dict)  # empty if no column was renamed
    has_forgotten_columns: bool = False  # columns were dropped, and the schemas that had them are cleaned up

    @classmethod
    def of(cls, metadata: TableMetadata, io: FileIO, schemes: Mapping[str, str] | None = None) -> TableFacts:
        """Collect the facts from table metadata; executors load the same kind of file access for themselves."""
        kind = type(io)
        column_ids = {field_id for schema in metadata.schemas for field_id in fields_by_id(schema)}
        properties = {PY_IO_IMPL: f"{kind.__module__}.{kind.__qualname__}", **io.properties}
        names = {(f.field_id, f.name) for schema in metadata.schemas for f in schema.fields}
        was_renamed = len({field_id for field_id, _ in names}) < len(names)
        snapshots = metadata.snapshots if was_renamed else []
        return cls(
            Specs.of(metadata),
            metadata.format_version,
            metadata.location,
            metadata.name_mapping(),
            properties,
            dict(schemes or {}),
            {s.snapshot_id: s.schema_id for s in snapshots if s.schema_id is not None},
            # Schemas may be cleaned up, but files keep their columns, and the ids stay used.
            has_forgotten_columns=len(column_ids) < metadata.last_column_id,
        )

    @property
    def schema(self) -> Schema:
        """The current schema."""
        return self.schemas[0]

    @property
    def schemas(self) -> tuple[Schema, ...]:
        """Every schema: the current one first, then from the newest to the oldest."""
        return self.specs.schemas

    def io(self) -> FileIO:
        """Return file access made from the properties, also on executors."""
        return load_file_io(dict(self.io_properties), self.location)

    def find_field_in_any_schema(self, field_id: int) -> NestedField | None:
        """Return a field by its id, also after it was dropped, from the newest schema that has it."""
        return next((s.find_field(field_id) for s in self.schemas if field_id in fields_by_id(s)), None)

    def columns_that_may_be_missing(self, schema: Schema) -> frozenset[int]:
        """Return the columns of a projection for which a reader must know whether each file has them.

        If a file lacks one, its value comes from the partition tuple or from the initial default. If there are any,
        plan the scan on entries read with `value_counts`: a count for a column with a default proves that the file has
        it, so that the footer need not be read.
        """
        fields = [f for spec in self.specs.by_id.values() for f in spec.fields]
        identity = {f.source_id for f in fields if isinstance(f.transform, IdentityTransform)}
        defaulted = {i for i in fields_by_id(schema) if schema.find_field(i).initial_default is not None}
        return frozenset(defaulted | identity & fields_by_id(schema).keys())
