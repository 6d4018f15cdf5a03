"""A set of partitions, each the pair of a spec and a tuple, looked up in columns and in manifest summaries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.types import BinaryType, DoubleType, FixedType, FloatType, NestedField, PrimitiveType, UUIDType

from neve.model.partition import Specs
from neve.tree.entries import EntryTable, FieldSummary, Manifest

__all__ = ["PartitionSet"]


@dataclass(frozen=True)
class PartitionSet:
    """Partitions of one or several specs; `members` holds one file of each."""

    members: EntryTable
    specs: Specs

    @classmethod
    def of(cls, files: EntryTable, specs: Specs) -> PartitionSet:
        """The partitions of some files."""
        return cls(files.partition_codes()[1] if len(files) else files, specs)

    def holds(self, entries: EntryTable) -> np.ndarray[Any, Any]:
        """Which files lie in a partition of the set."""
        names = ["spec_id", *(u.column for u in self.specs.union)]
        columns = [_keys(t, names, self.specs) for t in (self.members, entries)]
        both = EntryTable(pa.concat_tables(columns), self.specs)
        codes, _ = both.partition_codes()
        return np.isin(codes[len(self.members) :], codes[: len(self.members)])

    def may_meet(self, manifest: Manifest) -> bool:
        """Whether a manifest may hold a file of one of the partitions, as far as its summaries tell."""
        fields = self._by_spec.get(manifest.spec_id)
        if fields is None:
            return False
        if manifest.partitions is None or len(manifest.partitions) != len(fields):
            return True
        return all(f.may_lie_in(s) for f, s in zip(fields, manifest.partitions, strict=True))

    @cached_property
    def _by_spec(self) -> Mapping[int, tuple[_FieldValues, ...]]:
        return {spec_id: _field_values(files, self.specs, spec_id) for spec_id, files in self._groups()}

    def _groups(self) -> Any:
        return self.members.by_spec() if len(self.members) else ()


@dataclass(frozen=True, slots=True)
class _FieldValues:
    """The values one partition field takes, sorted; None where they cannot be compared with bounds."""

    kind: PrimitiveType
    values: list[Any] | None
    has_null: bool

    def may_lie_in(self, summary: FieldSummary) -> bool:
        if self.values is None or (self.has_null and summary.contains_null):
            return True
        if summary.lower_bound is None or summary.upper_bound is None:
            return False  # the manifest holds nulls only here
        lower, upper = (from_bytes(self.kind, b) for b in (summary.lower_bound, summary.upper_bound))
        at = bisect_left(self.values, lower)
        return at < len(self.values) and bool(self.values[at] <= upper)


def _field_values(files: EntryTable, specs: Specs, spec_id: int) -> tuple[_FieldValues, ...]:
    fields = specs.partition_type(spec_id).fields
    return tuple(_values_of(files[c], f) for c, f in zip(specs.columns(spec_id), fields, strict=True))


def _values_of(column: pa.ChunkedArray, field: NestedField) -> _FieldValues:
    has_null, kind = column.null_count > 0, cast(PrimitiveType, field.field_type)
    if isinstance(kind, FloatType | DoubleType | BinaryType | FixedType | UUIDType):
        return _FieldValues(
            kind, None, has_null
        )  # NaN has no place in an order, and bounds spell a UUID in another way
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_temporal(column.type):
        column = column.cast(pa.int64())
    return _FieldValues(kind, sorted(set(column.drop_null().to_pylist())), has_null)


def _keys(files: EntryTable, names: list[str], specs: Specs) -> pa.Table:
    """The columns of the partition key; a table read before a spec was added lacks the columns of that spec."""
    types = {"spec_id": pa.int32()} | {u.column: u.arrow_type for u in specs.union}
    have = set(files.columns.schema.names)
    arrays = [files[n].cast(types[n]) if n in have else pa.nulls(len(files), types[n]) for n in names]
    return pa.table(arrays, names=names)
