"""Partitions of a table that has had several partition specs.

A partition is always a pair: a spec, and a tuple of that spec's own fields. The tuples of all specs are stored side by
side in the *union tuple*: one nullable column per partition field. Its type comes from the newest schema that still has
the source column, or from the manifests if no schema has it.

>>> PartitionKey(0, (19723,)) == PartitionKey(1, (19723,))
False
>>> PartitionKey(2, None)
PartitionKey(spec_id=2, values=None)

`partition_text` formats a partition value for people, also beyond Python's calendar:

>>> partition_text(IdentityTransform(), ice.TimestampType(), 1_500_000)
'1970-01-01T00:00:01.5'
>>> partition_text(IdentityTransform(), ice.DateType(), 2_932_897)
'10000-01-01'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, TypeAlias
from urllib.parse import quote_plus
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform, Transform, TruncateTransform, VoidTransform

from neve.errors import TableError
from neve.model.pyiceberg_private import fields_by_id

SourceAndTransform: TypeAlias = tuple[int, str]
"""Id of the source column and transform of a partition field: they decide what its values are."""


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A partition tuple and the spec that gives it meaning; tuples of different specs never compare equal."""

    spec_id: int
    values: tuple[object, ...] | None  # None: the spec is unpartitioned

    def __post_init__(self) -> None:
        if self.values == ():
            raise ValueError(f"spec {self.spec_id}: use None, not (), for an unpartitioned key")

    def sort_key(self) -> tuple[int, tuple[tuple[Any, ...], ...]]:
        """Return a key that sorts by spec, then by value: null first, NaN last.

        >>> keys = [PartitionKey(1, (10,)), PartitionKey(1, (9,)), PartitionKey(1, (None,)), PartitionKey(0, None)]
        >>> [key.values for key in sorted(keys, key=PartitionKey.sort_key)]
        [None, (None,), (9,), (10,)]
        """
        return self.spec_id, tuple(
            (0,) if value is None else (1, value) if value == value else (2,)  # noqa: PLR0124 - NaN is unequal to itself
            for value in self.values or ()
        )


@dataclass(frozen=True, slots=True)
class UnionField:
    """One column of the union tuple: a partition field that one or more specs share."""

    column: str
    field: ice.NestedField
    spec_ids: frozenset[int]

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the column."""
        return value_arrow_type(self.field.field_type)


@dataclass(frozen=True)
class Specs:
    """All partition specs of a table, with the types of their fields, also of those whose source column was dropped.

    A type that no schema has is learned from the manifests that hold the values: see `neve.tree.partition_types`.
    """

    by_id: Mapping[int, PartitionSpec]
    default_id: int
    schemas: tuple[Schema, ...]  # the current schema first, then from the newest to the oldest
    # of fields whose source column is in no schema
    learned_types: Mapping[SourceAndTransform, ice.IcebergType] = field(default_factory=dict)

    @classmethod
    def of(cls, metadata: TableMetadata) -> Specs:
        """Return the specs that table metadata holds."""
        current = metadata.schema()
        older = sorted((s for s in metadata.schemas if s.schema_id != current.schema_id), key=lambda s: -s.schema_id)
        return cls({s.spec_id: s for s in metadata.specs().values()}, metadata.default_spec_id, (current, *older))

    def __getitem__(self, spec_id: int) -> PartitionSpec:
        try:
            return self.by_id[spec_id]
        except KeyError:
            raise TableError(
                f"Unknown partition spec {spec_id}: the table has {sorted(self.by_id)}. "
                "The file that names it was written for another table, or the metadata lost the spec."
            ) from None

    def refuse_unknown_specs(self, spec_ids: Iterable[int], named_by: str) -> None:
        """Raise TableError for a spec id that the table does not have, and name the file it came from."""
        if unknown := sorted(set(spec_ids) - set(self.by_id)):
            raise TableError(f"Unknown partition spec {unknown[0]} in {named_by}: the table has {sorted(self.by_id)}.")

    def is_unpartitioned(self, spec_id: int) -> bool:
        """Check whether all fields of a spec are void, or it has none; version 1 keeps dropped fields as void."""
        return all(isinstance(f.transform, VoidTransform) for f in self[spec_id].fields)

    def schema_of(self, field: PartitionField) -> Schema | None:
        """Return the newest schema that still has the source column of a partition field."""
        return next((s for s in self.schemas if field.source_id in fields_by_id(s)), None)

    def source_type(self, field: PartitionField) -> ice.IcebergType:
        """Return the type of a partition field's source column, also after the column was dropped."""
        schema = self.schema_of(field)
        if schema is not None:
            return schema.find_field(field.source_id).field_type
        learned = self.learned_types if _keeps_type(field) else {}
        return learned.get(source_and_transform(field), ice.UnknownType())

    def result_type(self, field: PartitionField) -> ice.IcebergType:
        """Return the type of a partition field's values."""
        source = self.source_type(field)
        if isinstance(source, ice.UnknownType) and _keeps_type(field):
            return source
        return field.transform.result_type(source)

    @cached_property
    def untyped_fields(self) -> Mapping[int, tuple[PartitionField, ...]]:
        """The fields whose type is still unknown, by spec; specs without such fields are left out."""

        def is_untyped(field: PartitionField) -> bool:
            is_learned = isinstance(field.transform, VoidTransform) or source_and_transform(field) in self.learned_types
            return _keeps_type(field) and not is_learned and self.schema_of(field) is None

        untyped = {spec_id: tuple(filter(is_untyped, spec.fields)) for spec_id, spec in self.by_id.items()}
        return {spec_id: fields for spec_id, fields in untyped.items() if fields}

    def with_learned_types(self, learned: Mapping[SourceAndTransform, ice.IcebergType]) -> Specs:
        """Return the specs with more learned types."""
        more = {key: kind for key, kind in learned.items() if self.learned_types.get(key) != kind}
        return replace(self, learned_types={**self.learned_types, **more}) if more else self

    def partition_type(self, spec_id: int) -> ice.StructType:
        """Return the partition struct of one spec; every field is optional, as the format requires."""
        fields = self[spec_id].fields
        return ice.StructType(
            *(ice.NestedField(f.field_id, f.name, self.result_type(f), required=False) for f in fields)
        )

    @cached_property
    def union(self) -> tuple[UnionField, ...]:
        """The columns of the union tuple in the order of their field ids."""
        holders: dict[str, dict[int, PartitionField]] = {}
        for spec_id in sorted(self.by_id):
            for one in self.by_id[spec_id].fields:
                column = f"p{one.field_id}"
                if not all(_have_same_values(other, one) for other in holders.get(column, {}).values()):
                    column = f"{column}s{spec_id}"  # v1 writers gave one id to unrelated fields of different specs
                holders.setdefault(column, {})[spec_id] = one
        union = []
        for column, fields in holders.items():
            newest = fields[max(fields)]
            typed = next((f for f in fields.values() if not isinstance(f.transform, VoidTransform)), newest)
            field = ice.NestedField(newest.field_id, newest.name, self.result_type(typed), required=False)
            union.append(UnionField(column, field, frozenset(fields)))
        return tuple(sorted(union, key=lambda u: (u.field.field_id, u.column)))

    @cached_property
    def _columns(self) -> dict[int, tuple[str, ...]]:
        columns = {(spec_id, u.field.field_id): u.column for u in reversed(self.union) for spec_id in u.spec_ids}
        return {s: tuple(columns[s, f.field_id] for f in spec.fields) for s, spec in self.by_id.items()}

    def columns(self, spec_id: int) -> tuple[str, ...]:
        """Return the union columns that hold the tuple of one spec, in the order of its fields."""
        self[spec_id]  # raises TableError for an unknown spec
        return self._columns[spec_id]


@cache
def value_arrow_type(iceberg_type: ice.IcebergType) -> pa.DataType:
    """Return the Arrow type that holds partition values of an Iceberg type."""
    if isinstance(iceberg_type, ice.UnknownType):
        return pa.null()
    schema = schema_to_pyarrow(Schema(ice.NestedField(1, "v", iceberg_type, required=False)), include_field_ids=False)
    arrow_type = schema.field(0).type
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary(), pa.uuid(): pa.binary(16)}
    return plain.get(arrow_type, arrow_type)


def source_and_transform(field: PartitionField) -> SourceAndTransform:
    """Return what decides the type of a field's values, whichever specs have the field."""
    return field.source_id, str(field.transform)


def _keeps_type(field: PartitionField) -> bool:
    """Check whether the values have the type of the source column; other transforms have their own type."""
    return isinstance(field.transform, IdentityTransform | TruncateTransform | VoidTransform)


def _have_same_values(one: PartitionField, other: PartitionField) -> bool:
    void = isinstance(one.transform, VoidTransform) or isinstance(other.transform, VoidTransform)
    return one.source_id == other.source_id and (void or one.transform == other.transform)


_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_TRAILING_ZEROS = re.compile(r"(:\d\d\.\d*[1-9])0+(?!\d)")
_NANOSECONDS = (ice.TimestampNanoType, ice.TimestamptzNanoType)


def partition_text(transform: Transform[Any, Any], kind: ice.IcebergType, value: Any) -> str:
    """Format a partition value as Iceberg does, also for dates beyond Python's calendar."""
    if isinstance(kind, ice.UUIDType) and isinstance(value, bytes):
        value = UUID(bytes=value)
    if isinstance(kind, ice.FloatType | ice.DoubleType) and value is not None:
        return _float_text(np.float32(value) if isinstance(kind, ice.FloatType) else np.float64(value))
    try:
        text = transform.to_human_string(kind, value)
        # As many digits of a second as needed, where Python has none or six.
        return text if isinstance(kind, ice.StringType) else _TRAILING_ZEROS.sub(r"\1", text)
    except (OverflowError, ValueError):
        unit_of_type = "D" if isinstance(kind, ice.DateType) else "ns" if isinstance(kind, _NANOSECONDS) else "us"
        text = str(np.int64(value).astype(f"datetime64[{_UNITS.get(str(transform), unit_of_type)}]"))
        return text.replace("T", "-") if str(transform) == "hour" else text


def _float_text(value: np.floating[Any]) -> str:
    """Format a number as Java does.

    >>> [_float_text(np.float64(v)) for v in (0.1, 1e10, 1.5e-7, float("-inf"), -0.0)]
    ['0.1', '1.0E10', '1.5E-7', '-Infinity', '-0.0']
    """
    if not np.isfinite(value):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return np.format_float_positional(value, trim="0")
    return np.format_float_scientific(value, trim="0", exp_digits=1).replace("e+", "E").replace("e", "E")


def partition_folders(specs: Specs, spec_id: int, values: Sequence[object]) -> Iterator[str]:
    """Yield the values of a partition as Iceberg writes them in paths and summaries: `day=2024-01-01`, `region=eu`.

    Dates and times in `values` are numbers since the epoch. Names and values are escaped as in a query string.
    """
    for part, value in zip(specs[spec_id].fields, values, strict=True):
        text = partition_text(part.transform, specs.result_type(part), value)
        yield f"{quote_plus(part.name)}={quote_plus(text)}"
