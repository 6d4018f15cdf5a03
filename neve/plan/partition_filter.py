"""Which partitions may hold matching rows, when the files of a table were written under several specs.

The predicate is bound once to the table's schema, and that must succeed. It is then projected into every spec the table
knows and evaluated once per distinct pair of spec and tuple. Where that is impossible, because a spec cannot express
the predicate or a tuple cannot be compared, the files are kept and counted: keeping too much costs time, dropping too
much loses rows. `strict` makes the same situations errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField, UUIDType

from neve.errors import UserError
from neve.model.partition import Specs
from neve.model.single_value import comparable, ordered
from neve.plan import projection, ranges
from neve.plan.ranges import FieldRange, Mask, safe_uuid_bounds
from neve.predicate.normal import bound
from neve.tree.entries import EntryTable, FieldSummary, Manifest

__all__ = ["FilterStats", "PartitionFilter", "Verdict"]

# what evaluating a predicate against values it was not made for may raise
UNEVALUABLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,
    TypeError,
    ValueError,
    pa.ArrowException,
)

Projected = Mapping[int, BooleanExpression | None]
Judge = Callable[[ranges.Ranges, BooleanExpression], Mask]


@dataclass(frozen=True, slots=True)
class FilterStats:
    """How often a partition filter had to keep files it could not judge."""

    unevaluable_specs: int = 0  # specs the predicate cannot be projected into
    eval_errors: int = 0  # partitions whose evaluation failed
    fail_open_partitions: int = 0  # partitions kept for one of the two reasons
    fail_open_files: int = 0  # files kept in those partitions


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a partition filter says of each file."""

    keep: Mask
    fail_open: Mask  # kept only because the file's partition could not be judged
    stats: FilterStats

    def counting(self, candidates: Mask) -> FilterStats:
        """The statistics when only some of the files are candidates for what is planned."""
        return replace(self.stats, fail_open_files=int((self.fail_open & candidates).sum()))


@dataclass(frozen=True)
class PartitionFilter:
    """A predicate on rows, ready to judge partitions of every spec of a table."""

    specs: Specs
    predicate: BooleanExpression  # bound to the table's schema, in normal form
    projected: Projected  # by spec; None: the spec cannot express the predicate
    is_strict: bool = False

    @classmethod
    def of(
        cls, expression: BooleanExpression | None, specs: Specs, schema: Schema, *, case_sensitive: bool = True
    ) -> PartitionFilter:
        """The filter of an expression; one that does not fit the schema is an error."""
        predicate = AlwaysTrue() if expression is None else bound(expression, schema, case_sensitive=case_sensitive)
        inclusive = {s: _attempt(projection.inclusive, predicate, specs, s) for s in specs.by_id}
        return cls(specs, predicate, inclusive)

    def strict(self) -> PartitionFilter:
        """The same filter, but what cannot be judged is an error instead of kept."""
        return replace(self, is_strict=True)

    @property
    def keeps_everything(self) -> bool:
        """Whether no partition of any spec can be left out."""
        return all(p is AlwaysTrue() for p in self.projected.values())

    @property
    def unevaluable_specs(self) -> tuple[int, ...]:
        """The specs that cannot express the predicate."""
        return tuple(s for s, p in self.projected.items() if p is None)

    def judge(self, entries: EntryTable) -> Verdict:
        """What the filter says of each file, evaluated once per partition."""
        self._require_known(entries)
        codes, keys = entries.partition_codes()
        keep, failed, opened = np.ones(len(keys), bool), np.zeros(len(keys), bool), np.zeros(len(keys), bool)
        for spec_id, rows in _rows_by_spec(keys):
            predicate = self._evaluable(spec_id)
            if predicate is None:
                opened[rows] = True
            else:
                keep[rows], failed[rows] = self._evaluated(keys.take(rows), spec_id, predicate)
        opened |= failed
        stats = FilterStats(len(self.unevaluable_specs), int(failed.sum()), int(opened.sum()), int(opened[codes].sum()))
        return Verdict(keep[codes], opened[codes], stats)

    def covers(self, entries: EntryTable) -> Mask:
        """The files whose partition alone proves that every row matches."""
        self._require_known(entries)
        codes, keys = entries.partition_codes()
        inside = np.zeros(len(keys), bool)
        for spec_id, rows in _rows_by_spec(keys):
            predicate = _attempt(projection.strict, self.predicate, self.specs, spec_id)
            if predicate is not None:
                inside[rows], failed = self._attempted(keys.take(rows), predicate, ranges.must_match)
                inside[rows] &= ~failed
        return inside[codes]

    def may_match(self, manifest: Manifest) -> bool:
        """Whether a manifest may list a file of a matching partition."""
        return bool(self.may_match_each([manifest])[0])

    def may_match_each(self, manifests: Sequence[Manifest]) -> Mask:
        """Whether each manifest may list a file of a matching partition; without summaries it may."""
        found = np.ones(len(manifests), bool)
        spec_ids = np.array([m.spec_id for m in manifests], np.int64)
        for spec_id in np.unique(spec_ids):
            self.specs.require([int(spec_id)], next(m.path for m in manifests if m.spec_id == spec_id))
            predicate = self._evaluable(int(spec_id))
            told = [int(i) for i in np.flatnonzero(spec_ids == spec_id) if self._is_summarised(manifests[int(i)])]
            if predicate is not None and told:
                summaries = _SummaryRanges(tuple(manifests[i].partitions or () for i in told), self.specs, int(spec_id))
                judged = _attempt(ranges.may_match, summaries, predicate)
                found[told] = True if judged is None else judged
        return found

    def _is_summarised(self, manifest: Manifest) -> bool:
        # a list of another length was written for another spec and says nothing
        return len(manifest.partitions or ()) == len(self.specs[manifest.spec_id].fields) > 0

    def _evaluable(self, spec_id: int) -> BooleanExpression | None:
        predicate = self.projected[spec_id]
        if predicate is None and self.is_strict:
            fields = ", ".join(str(f) for f in self.specs[spec_id].fields)
            raise UserError(
                f"Predicate cannot be evaluated for partition spec {spec_id} ({fields}). "
                "Without strict mode, the files of this spec are included."
            )
        return predicate

    def _evaluated(self, keys: EntryTable, spec_id: int, predicate: BooleanExpression) -> tuple[Mask, Mask]:
        keep, failed = self._attempted(keys, predicate, ranges.may_match)
        if self.is_strict and failed.any():
            key = keys.partition_key(int(np.flatnonzero(failed)[0]))
            raise UserError(
                f"Predicate cannot be evaluated for partition {key.values} of spec {spec_id}. "
                "Without strict mode, the files of this partition are included."
            )
        return keep | failed, failed

    @staticmethod
    def _attempted(keys: EntryTable, predicate: BooleanExpression, judge: Judge) -> tuple[Mask, Mask]:
        """The judgement of each key and where it failed; keys are judged one by one only when all together fail."""
        try:
            return judge(_TupleRanges(keys), predicate), np.zeros(len(keys), bool)
        except UNEVALUABLE:
            alone = [_attempt(judge, _TupleRanges(keys.take([row])), predicate) for row in range(len(keys))]
            return np.array([a is not None and bool(a[0]) for a in alone]), np.array([a is None for a in alone])

    def _require_known(self, entries: EntryTable) -> None:
        if unknown := set(entries.spec_ids()) - set(self.specs.by_id):
            row = int(np.flatnonzero(np.isin(entries.numpy("spec_id"), list(unknown)))[0])
            self.specs.require(unknown, f"file {entries['file_path'][row].as_py()}")


def _attempt(step: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return step(*arguments)
    except UNEVALUABLE:
        return None


def _rows_by_spec(keys: EntryTable) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    spec_ids = keys.numpy("spec_id")
    for spec_id in np.unique(spec_ids):
        yield int(spec_id), np.flatnonzero(spec_ids == spec_id)


@dataclass(frozen=True, slots=True)
class _TupleRanges:
    """Partition tuples as ranges of one value; the field is named as its column in the entry table."""

    keys: EntryTable

    def __len__(self) -> int:
        return len(self.keys)

    def of(self, field: NestedField) -> FieldRange:
        values = self.keys[field.name].combine_chunks()
        known = ordered(values, field.field_type)
        null = values.is_null().to_numpy(zero_copy_only=False)
        value = known.is_valid().to_numpy(zero_copy_only=False)
        return FieldRange(known, known, null, ~null & ~value, value)


@dataclass(frozen=True, slots=True)
class _SummaryRanges:
    """The partition summaries of manifests of one spec as ranges."""

    summaries: tuple[tuple[FieldSummary, ...], ...]
    specs: Specs
    spec_id: int

    def __len__(self) -> int:
        return len(self.summaries)

    def of(self, field: NestedField) -> FieldRange:
        at = [f.field_id for f in self.specs[self.spec_id].fields].index(field.field_id)
        column = [s[at] for s in self.summaries]
        lower = comparable(pa.array([s.lower_bound for s in column], pa.binary()), field.field_type)
        upper = comparable(pa.array([s.upper_bound for s in column], pa.binary()), field.field_type)
        if isinstance(field.field_type, UUIDType):
            lower, upper = safe_uuid_bounds(lower, upper)
        floating = isinstance(field.field_type, FloatType | DoubleType)
        null = np.array([s.contains_null is not False for s in column])
        nan = np.array([floating and s.contains_nan is not False for s in column])
        # bounds are left out when there is nothing but nulls and NaNs, and only then
        empty = np.array([s.lower_bound is None and (s.contains_null or s.contains_nan is True) for s in column], bool)
        return FieldRange(lower, upper, null, nan, ~empty)
