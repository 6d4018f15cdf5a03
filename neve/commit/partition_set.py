"""A set of partitions, each the pair of a spec and a tuple, looked up in columns and in manifest summaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField, UUIDType

from neve.model.partition import Specs
from neve.model.values import decode_comparable, to_comparable
from neve.plan.ranges import Mask, safe_uuid_bounds
from neve.tree.entries import MIXED_SPECS, EntryTable, FieldSummary, Manifest


@dataclass(frozen=True)
class PartitionSet:
    """Partitions of one or several specs; `members` holds one file of each."""

    members: EntryTable
    specs: Specs

    @classmethod
    def of(cls, files: EntryTable, specs: Specs) -> PartitionSet:
        """The partitions of some files."""
        return cls(files.partition_codes()[1] if len(files) else files, specs)

    def holds(self, entries: EntryTable) -> Mask:
        """Which files lie in a partition of the set."""
        both = pa.concat_tables([_partition_key_columns(table, self.specs) for table in (self.members, entries)])
        codes, _ = EntryTable(both, self.specs).partition_codes()
        return np.isin(codes[len(self.members) :], codes[: len(self.members)])

    def may_match_manifests(self, manifests: Sequence[Manifest]) -> Mask:
        """Which manifests may hold a file of one of the partitions, as far as their summaries tell."""
        found = np.zeros(len(manifests), bool)
        spec_ids = np.array([m.spec_id for m in manifests], np.int64)
        for spec_id, members in self._by_spec():
            of_spec = np.flatnonzero(spec_ids == spec_id)
            found[of_spec] = self._may_match_manifests_of_spec(members, spec_id, [manifests[int(i)] for i in of_spec])
        return found | ((spec_ids == MIXED_SPECS) & bool(len(self.members)))

    def _by_spec(self) -> Iterator[tuple[int, EntryTable]]:
        return self.members.by_spec() if len(self.members) else iter(())

    def _may_match_manifests_of_spec(self, members: EntryTable, spec_id: int, manifests: Sequence[Manifest]) -> Mask:
        found = np.ones(len(manifests), bool)
        fields = self.specs.partition_type(spec_id).fields
        told = [i for i, m in enumerate(manifests) if m.partitions is not None and len(m.partitions) == len(fields)]
        for at, (column, field) in enumerate(zip(self.specs.columns(spec_id), fields, strict=True)):
            summaries = [(manifests[i].partitions or ())[at] for i in told]
            found[told] &= _may_lie_in(members[column], field, summaries)
        return found


def _may_lie_in(values: pa.ChunkedArray, field: NestedField, summaries: Sequence[FieldSummary]) -> Mask:
    """Where one of the values may lie in the range a summary states; what it does not state does not exclude."""
    if pa.types.is_null(values.type):
        return np.ones(len(summaries), bool)
    known = to_comparable(values.combine_chunks(), field.field_type)
    has_null, has_nan = values.null_count > 0, known.null_count > values.null_count
    lower, upper = _bounds(summaries, field)
    unknown = pc.or_(lower.is_null(), upper.is_null()).to_numpy(zero_copy_only=False)
    meets_value = (unknown | _some_between(known.drop_null(), lower, upper)) & ~_flags(
        s.lower_bound is None and (s.contains_null or s.contains_nan is True) for s in summaries
    )
    meets_null = _flags(has_null and s.contains_null is not False for s in summaries)
    meets_nan = _flags(has_nan and s.contains_nan is not False for s in summaries)
    return meets_value | meets_null | meets_nan


def _flags(claims: Iterable[bool]) -> Mask:
    return np.fromiter(claims, bool)


def _bounds(summaries: Sequence[FieldSummary], field: NestedField) -> tuple[pa.Array, pa.Array]:
    stored = ([s.lower_bound for s in summaries], [s.upper_bound for s in summaries])
    lower, upper = (decode_comparable(pa.array(bounds, pa.binary()), field.field_type) for bounds in stored)
    return safe_uuid_bounds(lower, upper) if isinstance(field.field_type, UUIDType) else (lower, upper)


def _some_between(values: pa.Array, lower: pa.Array, upper: pa.Array) -> Mask:
    """Where one of the values lies between two bounds; a bound that is not known counts as the first value."""
    if not len(values):
        return np.zeros(len(lower), bool)
    members = np.unique(values.to_numpy(zero_copy_only=False))
    low, high = (pc.fill_null(bound, values[0]).to_numpy(zero_copy_only=False) for bound in (lower, upper))
    at = np.searchsorted(members, low)
    return np.asarray((at < len(members)) & (members[np.minimum(at, len(members) - 1)] <= high), bool)


def _partition_key_columns(files: EntryTable, specs: Specs) -> pa.Table:
    """The columns of the partition key; a table read before a spec was added lacks the columns of that spec."""
    types = {"spec_id": pa.int32()} | {u.column: u.arrow_type for u in specs.union}
    have = set(files.columns.schema.names)
    arrays = [files[n].cast(kind) if n in have else pa.nulls(len(files), kind) for n, kind in types.items()]
    return pa.table(arrays, names=list(types))
