"""What a partition is when a table has had several partition specs.

A partition is always the pair of a spec and a tuple of that spec's own fields. The tuples of all specs are stored side
by side in the *union tuple*: one nullable column per partition field, typed by the newest schema that still knows its
source column, or by what the manifests say when none does.

>>> PartitionKey(0, (19723,)) == PartitionKey(1, (19723,))
False
>>> PartitionKey(2, None)
PartitionKey(spec_id=2, values=None)

Partition values as people read them.

>>> from pyiceberg.transforms import DayTransform, IdentityTransform
>>> partition_text(DayTransform(), DateType(), 20_000), partition_text(IdentityTransform(), DateType(), 2_932_897)
('2024-10-04', '10000-01-01')
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, TypeAlias
from urllib.parse import quote_plus
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform, Transform, TruncateTransform, VoidTransform
from pyiceberg.types import (
    DateType,
    IcebergType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    UnknownType,
    UUIDType,
)

from neve.errors import TableError
from neve.model.pyiceberg_private import fields_by_id

SourceAndTransform: TypeAlias = tuple[int, str]
"""What the values of a partition field are: the id of the source column and the transform."""


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A partition tuple together with the spec that gives it meaning; tuples of different specs never compare equal."""

    spec_id: int
    values: tuple[object, ...] | None  # None: the spec is unpartitioned

    def __post_init__(self) -> None:
        if self.values == ():
            raise ValueError(f"spec {self.spec_id}: use None, not (), for an unpartitioned key")

    def sort_key(self) -> tuple[int, tuple[tuple[Any, ...], ...]]:
        """What keys are put in order by: the spec, then the values as what they are, null first and NaN last.

        >>> keys = [PartitionKey(1, (10,)), PartitionKey(1, (9,)), PartitionKey(1, (None,)), PartitionKey(0, None)]
        >>> [key.values for key in sorted(keys, key=PartitionKey.sort_key)]
        [None, (None,), (9,), (10,)]
        """
        return self.spec_id, tuple(_place(value) for value in self.values or ())


@dataclass(frozen=True, slots=True)
class UnionField:
    """One column of the union tuple: a partition field as every spec that has it sees it."""

    column: str
    field: NestedField
    spec_ids: frozenset[int]

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the column."""
        return value_arrow_type(self.field.field_type)


@dataclass(frozen=True)
class Specs:
    """All partition specs of a table, each with the types of its fields.

    A field whose source column was dropped takes its type from the newest schema that still has the column, so
    manifests of old specs stay readable and writable. When the schemas were cleaned up since, its type is learned from
    the manifests that hold its values: see `neve.tree.partition_types`.
    """

    by_id: Mapping[int, PartitionSpec]
    default_id: int
    schemas: tuple[Schema, ...]  # the current schema first, then from the newest to the oldest
    learned_types: Mapping[SourceAndTransform, IcebergType] = field(
        default_factory=dict
    )  # of fields no schema knows the source of

    @classmethod
    def of(cls, metadata: TableMetadata) -> Specs:
        """The specs of a table as its metadata knows them."""
        current = metadata.schema()
        older = sorted((s for s in metadata.schemas if s.schema_id != current.schema_id), key=lambda s: -s.schema_id)
        return cls({s.spec_id: s for s in metadata.specs().values()}, metadata.default_spec_id, (current, *older))

    def __getitem__(self, spec_id: int) -> PartitionSpec:
        try:
            return self.by_id[spec_id]
        except KeyError:
            raise TableError(
                f"Unknown partition spec {spec_id}: the table knows {sorted(self.by_id)}. "
                "The file that names it was written for another table, or the metadata lost the spec."
            ) from None

    def refuse_unknown_specs(self, spec_ids: Iterable[int], named_by: str) -> None:
        """Refuse a spec id the table does not know, naming the file or manifest it came from."""
        if unknown := sorted(set(spec_ids) - set(self.by_id)):
            known = sorted(self.by_id)
            raise TableError(f"Unknown partition spec {unknown[0]} in {named_by}: the table knows {known}.")

    def is_unpartitioned(self, spec_id: int) -> bool:
        """Whether a spec has no field that separates rows; a dropped v1 field stays behind as void."""
        return all(isinstance(f.transform, VoidTransform) for f in self[spec_id].fields)

    def schema_of(self, field: PartitionField) -> Schema | None:
        """The newest schema that still has the source column of a partition field."""
        return next((s for s in self.schemas if field.source_id in fields_by_id(s)), None)

    def source_type(self, field: PartitionField) -> IcebergType:
        """The type of a partition field's source column, also after the column was dropped."""
        schema = self.schema_of(field)
        if schema is not None:
            return schema.find_field(field.source_id).field_type
        return (
            self.learned_types.get(source_and_transform(field), UnknownType()) if _keeps_type(field) else UnknownType()
        )

    def result_type(self, field: PartitionField) -> IcebergType:
        """The type of a partition field's values."""
        source = self.source_type(field)
        if isinstance(source, UnknownType) and _keeps_type(field):
            return source
        return field.transform.result_type(source)

    @cached_property
    def untyped_fields(self) -> Mapping[int, tuple[PartitionField, ...]]:
        """The fields of each spec that hold values of a type nothing tells so far; only specs that have such fields."""
        found = {spec_id: tuple(filter(self._is_untyped, spec.fields)) for spec_id, spec in self.by_id.items()}
        return {spec_id: fields for spec_id, fields in found.items() if fields}

    def _is_untyped(self, field: PartitionField) -> bool:
        if (
            isinstance(field.transform, VoidTransform)
            or not _keeps_type(field)
            or source_and_transform(field) in self.learned_types
        ):
            return False
        return self.schema_of(field) is None

    def with_learned_types(self, learned: Mapping[SourceAndTransform, IcebergType]) -> Specs:
        """The same specs with more types known."""
        more = {key: kind for key, kind in learned.items() if self.learned_types.get(key) != kind}
        return replace(self, learned_types={**self.learned_types, **more}) if more else self

    def partition_type(self, spec_id: int) -> StructType:
        """The partition struct of one spec; every field is optional, as the format demands."""
        fields = self[spec_id].fields
        return StructType(*(NestedField(f.field_id, f.name, self.result_type(f), required=False) for f in fields))

    @cached_property
    def union(self) -> tuple[UnionField, ...]:
        """The columns of the union tuple in the order of their field ids."""
        holders: dict[str, dict[int, PartitionField]] = {}
        for spec_id in sorted(self.by_id):
            for one in self.by_id[spec_id].fields:
                column = f"p{one.field_id}"
                if not all(_same_meaning(other, one) for other in holders.get(column, {}).values()):
                    column = f"{column}s{spec_id}"  # v1 writers gave one id to unrelated fields of different specs
                holders.setdefault(column, {})[spec_id] = one
        return tuple(
            sorted((self._union_field(c, h) for c, h in holders.items()), key=lambda u: (u.field.field_id, u.column))
        )

    def _union_field(self, column: str, holders: Mapping[int, PartitionField]) -> UnionField:
        newest = holders[max(holders)]
        telling = next((f for f in holders.values() if not isinstance(f.transform, VoidTransform)), newest)
        field = NestedField(newest.field_id, newest.name, self.result_type(telling), required=False)
        return UnionField(column, field, frozenset(holders))

    @cached_property
    def _columns(self) -> dict[int, tuple[str, ...]]:
        return {s: tuple(self._column_of(s, f.field_id) for f in spec.fields) for s, spec in self.by_id.items()}

    def _column_of(self, spec_id: int, field_id: int) -> str:
        return next(u.column for u in self.union if u.field.field_id == field_id and spec_id in u.spec_ids)

    def columns(self, spec_id: int) -> tuple[str, ...]:
        """The union columns that hold the tuple of one spec, in the order of its fields."""
        self[spec_id]
        return self._columns[spec_id]


def _place(value: object) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    return (1, value) if value == value else (2,)  # noqa: PLR0124 - NaN is not equal to itself


@cache
def value_arrow_type(iceberg_type: IcebergType) -> pa.DataType:
    """The Arrow type a partition value of an Iceberg type is held in."""
    if isinstance(iceberg_type, UnknownType):
        return pa.null()
    schema = schema_to_pyarrow(Schema(NestedField(1, "v", iceberg_type, required=False)), include_field_ids=False)
    found = schema.field(0).type
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary(), pa.uuid(): pa.binary(16)}
    return plain.get(found, found)


def source_and_transform(field: PartitionField) -> SourceAndTransform:
    """What decides the type of a field's values, whichever specs have it."""
    return field.source_id, str(field.transform)


def _keeps_type(field: PartitionField) -> bool:
    """Whether the values have the type of the source column, rather than one of the transform's own."""
    return isinstance(field.transform, IdentityTransform | TruncateTransform | VoidTransform)


def _same_meaning(one: PartitionField, other: PartitionField) -> bool:
    void = isinstance(one.transform, VoidTransform) or isinstance(other.transform, VoidTransform)
    return one.source_id == other.source_id and (void or one.transform == other.transform)


_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_NANOSECONDS = (TimestampNanoType, TimestamptzNanoType)


def partition_text(transform: Transform[Any, Any], kind: IcebergType, value: Any) -> str:
    """A partition value as Iceberg writes it, also when Python's calendar does not reach it."""
    if isinstance(kind, UUIDType) and isinstance(value, bytes):
        value = UUID(bytes=value)
    try:
        return transform.to_human_string(kind, value)
    except (OverflowError, ValueError):
        of_type = "D" if isinstance(kind, DateType) else "ns" if isinstance(kind, _NANOSECONDS) else "us"
        text = str(np.int64(value).astype(f"datetime64[{_UNITS.get(str(transform), of_type)}]"))
        return text.replace("T", "-") if str(transform) == "hour" else text


def partition_folders(specs: Specs, spec_id: int, values: Sequence[object]) -> Iterator[str]:
    """The values of a partition as Iceberg spells them in paths and summaries: `day=2024-01-01`, then `region=eu`.

    Dates and times are given as counts. Names and values are escaped as in a query string.
    """
    for part, value in zip(specs[spec_id].fields, values, strict=True):
        text = partition_text(part.transform, specs.result_type(part), value)
        yield f"{quote_plus(part.name)}={quote_plus(text)}"
