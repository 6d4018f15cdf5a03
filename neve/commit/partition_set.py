"""A set of partitions: finds files and manifests that belong to it. A partition is the pair of a spec and a tuple."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField, UUIDType

from neve.model.partition import Specs
from neve.model.values import decode_comparable, to_comparable
from neve.plan.ranges import Mask, safe_uuid_bounds
from neve.tree.entries import MIXED_SPECS, EntryTable, FieldSummary, Manifest, fit_to_type


@dataclass(frozen=True)
class PartitionSet:
    """Partitions of one or several specs; `members` holds one file of each."""

    members: EntryTable
    specs: Specs

    @classmethod
    def of(cls, files: EntryTable, specs: Specs) -> PartitionSet:
        """Build the set of the partitions of some files."""
        return cls(files.partition_codes()[1] if len(files) else files, specs)

    def holds(self, entries: EntryTable) -> Mask:
        """Return which files are in a partition of the set."""
        both = pa.concat_tables([_partition_key_columns(table, self.specs) for table in (self.members, entries)])
        codes, _ = EntryTable(both, self.specs).partition_codes()
        return np.isin(codes[len(self.members) :], codes[: len(self.members)])

    def may_match_manifests(self, manifests: Sequence[Manifest]) -> Mask:
        """Return which manifests may list a file of one of the partitions, according to their summaries."""
        may_match = np.zeros(len(manifests), bool)
        if not len(self.members):
            return may_match
        spec_ids = np.array([m.spec_id for m in manifests], np.int64)
        for spec_id, members in self.members.by_spec():
            of_spec = np.flatnonzero(spec_ids == spec_id)
            may_match[of_spec] = True
            fields = self.specs.partition_type(spec_id).fields
            summarised = [i for i in of_spec.tolist() if len(manifests[i].partitions or ()) == len(fields)]
            for at, (column, field) in enumerate(zip(self.specs.columns(spec_id), fields, strict=True)):
                summaries = [(manifests[i].partitions or ())[at] for i in summarised]
                may_match[summarised] &= _may_include_any(members[column], field, summaries)
        return may_match | (spec_ids == MIXED_SPECS)


def _may_include_any(values: pa.ChunkedArray, field: NestedField, summaries: Sequence[FieldSummary]) -> Mask:
    """Return which summaries may include one of the values; unknown parts of a summary exclude nothing."""
    if pa.types.is_null(values.type):
        return np.ones(len(summaries), bool)
    comparable = to_comparable(values.combine_chunks(), field.field_type)
    has_null, has_nan = values.null_count > 0, comparable.null_count > values.null_count
    stored = ([s.lower_bound for s in summaries], [s.upper_bound for s in summaries])
    lower, upper = (decode_comparable(pa.array(bounds, pa.binary()), field.field_type) for bounds in stored)
    if isinstance(field.field_type, UUIDType):
        lower, upper = safe_uuid_bounds(lower, upper)
    unknown = pc.or_(lower.is_null(), upper.is_null()).to_numpy(zero_copy_only=False)
    # bounds are missing if and only if there are only nulls and NaNs
    no_values = [s.lower_bound is None and bool(s.contains_null or s.contains_nan) for s in summaries]
    holds_value = (unknown | _any_between(comparable.drop_null(), lower, upper)) & ~np.array(no_values, bool)
    holds_null = np.array([has_null and s.contains_null is not False for s in summaries], bool)
    holds_nan = np.array([has_nan and s.contains_nan is not False for s in summaries], bool)
    return holds_value | holds_null | holds_nan


def _any_between(values: pa.Array, lower: pa.Array, upper: pa.Array) -> Mask:
    """Return where one of the values is between two bounds; an unknown bound counts as the first value."""
    if not len(values):
        return np.zeros(len(lower), bool)
    members = np.unique(values.to_numpy(zero_copy_only=False))
    low, high = (pc.fill_null(bound, values[0]).to_numpy(zero_copy_only=False) for bound in (lower, upper))
    at = np.searchsorted(members, low)
    return np.asarray((at < len(members)) & (members[np.minimum(at, len(members) - 1)] <= high), bool)


def _partition_key_columns(files: EntryTable, specs: Specs) -> pa.Table:
    # a table that was read before a spec was added lacks the columns of that spec
    types = {"spec_id": pa.int32()} | {u.column: u.arrow_type for u in specs.union}
    return pa.table({n: fit_to_type(files[n] if files.has(n) else None, t, len(files)) for n, t in types.items()})
