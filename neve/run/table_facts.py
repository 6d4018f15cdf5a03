"""What the data plane knows about a table beside its files: a value that travels to executors."""

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
    """A table as its readers and writers see it: schemas, specs, name mapping, and how its files are reached."""

    specs: Specs
    format_version: int
    location: str
    name_mapping: NameMapping | None = None
    io_properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold credentials
    schemes: Mapping[str, str] = field(default_factory=dict)  # of the table's paths, to those of Spark's connectors
    schema_id_by_snapshot: Mapping[int, int] = field(
        default_factory=dict
    )  # schema ids by snapshot, if columns were renamed
    has_forgotten_columns: bool = False  # columns that no schema of the metadata has any more

    @classmethod
    def of(cls, metadata: TableMetadata, io: FileIO, schemes: Mapping[str, str] | None = None) -> TableFacts:
        """The facts in a table's metadata, and the file access that executors are to load for themselves."""
        kind = type(io)
        properties = {PY_IO_IMPL: f"{kind.__module__}.{kind.__qualname__}", **io.properties}
        return cls(
            Specs.of(metadata),
            metadata.format_version,
            metadata.location,
            metadata.name_mapping(),
            properties,
            dict(schemes or {}),
            _schema_id_by_snapshot(metadata),
            _has_forgotten(metadata),
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
        """File access made from the properties; on executors too."""
        return load_file_io(dict(self.io_properties), self.location)

    def find_field_in_any_schema(self, field_id: int) -> NestedField | None:
        """A field by its id, as the newest schema that has it knows it; also after it was dropped."""
        return next((s.find_field(field_id) for s in self.schemas if field_id in fields_by_id(s)), None)

    def columns_that_may_be_missing(self, schema: Schema) -> frozenset[int]:
        """Columns of a projection for which it must be known whether each file has them.

        A file that lacks one takes its value from the partition tuple or from the initial default. When there are any,
        plan the scan on entries read with `value_counts`: a count for a column with a default proves that the file has
        it, and spares reading the footer.
        """
        identity = {
            f.source_id
            for s in self.specs.by_id.values()
            for f in s.fields
            if isinstance(f.transform, IdentityTransform)
        }
        defaulted = {i for i in fields_by_id(schema) if schema.find_field(i).initial_default is not None}
        return frozenset(defaulted | identity & fields_by_id(schema).keys())


def _has_forgotten(metadata: TableMetadata) -> bool:
    """Whether ids were given to columns that no schema has: schemas may be cleaned up, files keep their columns."""
    known = {field_id for schema in metadata.schemas for field_id in fields_by_id(schema)}
    return len(known) < metadata.last_column_id


def _schema_id_by_snapshot(metadata: TableMetadata) -> dict[int, int]:
    """The schema each snapshot was written with; nothing when every column had one name all along."""
    names = {(f.field_id, f.name) for schema in metadata.schemas for f in schema.fields}
    if len({field_id for field_id, _ in names}) == len(names):
        return {}
    return {s.snapshot_id: s.schema_id for s in metadata.snapshots if s.schema_id is not None}
