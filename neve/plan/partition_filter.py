"""Find the partitions that may hold matching rows in a table whose files were written under several specs.

The predicate is bound once to the schema of the table, which must succeed. It is then projected into every spec of the
table and evaluated once per distinct pair of spec and tuple. If a spec cannot express the predicate, or a tuple cannot
be compared, the files are kept and counted: keeping too much costs time, dropping too much loses rows.
`Verdict.diagnostics` lists what could not be evaluated and why, once per spec or partition and at most `MAX_LISTED`
lines. A `strict` filter raises an error instead.

>>> why = "unknown transform 'mystery' of partition field region_mystery"
>>> diagnostics = Diagnostics.of(UndecidedPartition(spec_id, None, why, partitions=2, files=3) for spec_id in (5, 4))
>>> print(diagnostics)
spec 4: unknown transform 'mystery' of partition field region_mystery; 3 files of 2 partitions taken
spec 5: unknown transform 'mystery' of partition field region_mystery; 3 files of 2 partitions taken
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField, UUIDType

from neve.display.format import plural
from neve.display.html import SummaryMixin
from neve.errors import UserError
from neve.model.partition import PartitionKey, Specs
from neve.model.values import decode_comparable, to_comparable
from neve.plan import metrics_filter, ranges
from neve.plan.projection import project_to_partition
from neve.plan.ranges import FieldRange, Mask, safe_uuid_bounds
from neve.predicate.normalize import normalize_and_bind
from neve.tree.entries import MIXED_SPECS, EntryTable, FieldSummary, Manifest

MAX_LISTED = 32
"""Number of undecided specs and partitions that are listed; the others are only counted."""


@dataclass(frozen=True, slots=True)
class UndecidedPartition:
    """A spec, or one of its partitions, for which a filter could not be evaluated; its files were included."""

    spec_id: int
    partition: PartitionKey | None  # None: every partition of the spec
    why: str
    partitions: int  # number of partitions that were included
    files: int  # number of candidates in them

    def __str__(self) -> str:
        where = f"spec {self.spec_id}" + (f", partition {self.partition.values}" if self.partition else "")
        return f"{where}: {self.why}; {plural(self.files, 'file')} of {plural(self.partitions, 'partition')} taken"

    def sort_key(self) -> tuple[Any, ...]:
        """Return a key that sorts by spec, the spec itself before its partitions."""
        return (self.spec_id,) if self.partition is None else self.partition.sort_key()


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What a filter could not decide; empty if the whole filter was evaluated for every file."""

    undecided: tuple[UndecidedPartition, ...] = ()
    left_out: int = 0  # undecided specs and partitions that are not listed
    judged_in_part: str | None = None  # the condition, if a part of it cannot select files

    @classmethod
    def of(cls, undecided: Iterable[UndecidedPartition], judged_in_part: str | None = None) -> Diagnostics:
        """List the first specs and partitions in sorted order, and count the others."""
        ordered = sorted(undecided, key=UndecidedPartition.sort_key)
        return cls(tuple(ordered[:MAX_LISTED]), max(len(ordered) - MAX_LISTED, 0), judged_in_part)

    def __bool__(self) -> bool:
        return bool(self.undecided) or self.judged_in_part is not None

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield one line per undecided spec or partition."""
        if self.judged_in_part is not None:
            yield f"only comparisons of columns with constants choose files: {self.judged_in_part}"
        yield from map(str, self.undecided)
        if self.left_out:
            yield f"and {self.left_out} more"


# what the evaluation of a predicate may raise for values that do not fit it
EVALUATION_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,
    TypeError,
    ValueError,
    pa.ArrowException,
)

_MAX_REASON_LENGTH = 200  # characters of a reason

Codes = np.ndarray[Any, np.dtype[np.int64]]
Failures = dict[int, str]  # error messages, by row
Judge = Callable[[ranges.Ranges, BooleanExpression], Mask]


@dataclass(frozen=True, slots=True)
class FilterStats(SummaryMixin):
    """How often a partition filter kept files because it could not be evaluated for them."""

    unevaluable_specs: int = 0  # specs that cannot express the predicate
    eval_errors: int = 0  # partitions whose evaluation failed
    fail_open_partitions: int = 0  # partitions kept for one of the two reasons
    fail_open_files: int = 0  # files kept in those partitions


@dataclass(frozen=True, slots=True)
class PartitionFilterEvaluator:
    """A predicate projected to the partition tuples of one spec, or why the spec cannot express it."""

    spec_id: int
    predicate: BooleanExpression | None  # on the columns of the tuple; None: all files of the spec are kept
    reason_unevaluable: str = ""

    @classmethod
    def from_bound(cls, predicate: BooleanExpression, specs: Specs, spec_id: int) -> PartitionFilterEvaluator:
        """Build the evaluator of a predicate in normal form that is bound to the schema of the table."""
        try:
            return cls(spec_id, project_to_partition(predicate, specs, spec_id))
        except EVALUATION_ERRORS as e:
            return cls(spec_id, None, _first_line(e))

    def judge(self, keys: EntryTable) -> tuple[Mask, Failures]:
        """Return which partitions of the spec may match; one that could not be evaluated counts, and is reported."""
        if self.predicate is None:
            return np.ones(len(keys), bool), {}
        return _judge_keys(keys, self.predicate, ranges.may_match, on_failure=True)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a partition filter for each file."""

    keep: Mask
    fail_open: Mask  # kept only because the filter could not be evaluated for the partition
    stats: FilterStats
    partitions: Codes  # a number per file, equal for files of one partition
    undecided: tuple[tuple[UndecidedPartition, Codes], ...] = ()  # each with the numbers of its partitions

    def stats_for(self, candidates: Mask) -> FilterStats:
        """Return the statistics, with only the candidates counted as files."""
        return replace(self.stats, fail_open_files=int((self.fail_open & candidates).sum()))

    def diagnostics(self, candidates: Mask, judged_in_part: str | None = None) -> Diagnostics:
        """Return why partitions could not be evaluated, and how many candidates they hold."""
        files = np.bincount(self.partitions[candidates], minlength=int(self.partitions.max(initial=-1)) + 1)
        counted = (replace(partition, files=int(files[numbers].sum())) for partition, numbers in self.undecided)
        return Diagnostics.of(counted, judged_in_part)


@dataclass(frozen=True)
class PartitionFilter:
    """A predicate on rows that selects partitions of every spec of a table."""

    specs: Specs
    predicate: BooleanExpression  # bound to the schema of the table, in normal form
    evaluators: Mapping[int, PartitionFilterEvaluator]  # by spec
    is_strict: bool = False

    @classmethod
    def of(
        cls, expression: BooleanExpression | None, specs: Specs, schema: Schema, *, case_sensitive: bool = True
    ) -> PartitionFilter:
        """Build the filter of an expression; an expression that does not fit the schema is an error."""
        expression = AlwaysTrue() if expression is None else expression
        predicate = normalize_and_bind(expression, schema, case_sensitive=case_sensitive)
        return cls(specs, predicate, {s: PartitionFilterEvaluator.from_bound(predicate, specs, s) for s in specs.by_id})

    def strict(self) -> PartitionFilter:
        """Return the same filter, but what cannot be evaluated raises an error instead of being kept."""
        return replace(self, is_strict=True)

    @property
    def keeps_everything(self) -> bool:
        """True if no partition of any spec can be excluded."""
        return all(e.predicate is AlwaysTrue() for e in self.evaluators.values())

    @property
    def unevaluable_specs(self) -> tuple[int, ...]:
        """The specs that cannot express the predicate."""
        return tuple(s for s, e in self.evaluators.items() if e.predicate is None)

    def judge(self, entries: EntryTable) -> Verdict:
        """Evaluate the filter for each file, once per partition."""
        self._require_known_specs(entries)
        codes, keys = entries.partition_codes()
        keep, fail_open = np.ones(len(keys), bool), np.zeros(len(keys), bool)
        undecided: list[tuple[UndecidedPartition, Codes]] = []
        for spec_id in self.unevaluable_specs:
            rows = np.flatnonzero(keys.numpy("spec_id") == spec_id)
            why = self.evaluators[spec_id].reason_unevaluable
            undecided.append((UndecidedPartition(spec_id, None, why, len(rows), 0), rows))
        for spec_id, rows in _rows_by_spec(keys):
            keep[rows], failures = self._evaluator_for(spec_id).judge(keys.take(rows))
            for at, why in failures.items():
                key = keys.partition_key(int(rows[at]))
                if self.is_strict:
                    raise self._refusal(f"partition {key.values} of spec {key.spec_id}", "partition", why)
                undecided.append((UndecidedPartition(key.spec_id, key, why, 1, 0), rows[[at]]))
        for _, numbers in undecided:
            fail_open[numbers] = True
        unevaluable = len(self.unevaluable_specs)
        errors = len(undecided) - unevaluable
        stats = FilterStats(unevaluable, errors, int(fail_open.sum()), int(fail_open[codes].sum()))
        return Verdict(keep[codes], fail_open[codes], stats, codes, tuple(undecided))

    def may_keep(self, entries: EntryTable) -> Mask:
        """Return which files are in partitions that may match: `judge(entries).keep`, without counting anything."""
        self._require_known_specs(entries)
        return np.ones(len(entries), bool) if self._keeps_all_specs_of(entries) else self.judge(entries).keep

    def is_undecided(self, entries: EntryTable, rows: Codes) -> Mask:
        """Return which of the files at `rows` are kept only because their partition could not be evaluated."""
        if self._keeps_all_specs_of(entries):
            return np.zeros(len(rows), bool)
        return self.judge(entries.take(rows)).fail_open

    def _keeps_all_specs_of(self, entries: EntryTable) -> bool:
        return all(self._evaluator_for(s).predicate is AlwaysTrue() for s in entries.spec_ids())

    def covers(self, entries: EntryTable) -> Mask:
        """Return the files whose partition alone proves that every row matches."""
        self._require_known_specs(entries)
        codes, keys = entries.partition_codes()
        covered = np.zeros(len(keys), bool)
        for spec_id, rows in _rows_by_spec(keys):
            predicate = _call_or_none(project_to_partition, self.predicate, self.specs, spec_id, is_strict=True)
            if predicate is not None:
                covered[rows], _ = _judge_keys(keys.take(rows), predicate, ranges.must_match, on_failure=False)
        return covered[codes]

    def may_match(self, manifest: Manifest) -> bool:
        """Return whether a manifest may list a file of a matching partition."""
        return bool(self.may_match_each([manifest])[0])

    def may_match_each(self, manifests: Sequence[Manifest]) -> Mask:
        """Return which manifests may list a file of a matching partition; one without summaries may."""
        may_match = np.ones(len(manifests), bool)
        # First by statistics over all files of a manifest. Those of a delete manifest describe the deletes, not the
        # rows that they apply to, and are ignored.
        sources: dict[int, tuple[Any, list[int], list[int]]] = {}
        for at, manifest in enumerate(manifests if self.predicate is not AlwaysTrue() else ()):
            if manifest.statistics is not None and not manifest.is_deletes:
                source, row = manifest.statistics
                _, rows, indexes = sources.setdefault(id(source), (source, [], []))
                rows.append(row)
                indexes.append(at)
        for source, rows, indexes in sources.values():
            result = _call_or_none(metrics_filter.may_match, source.read().take(rows), self.predicate)
            may_match[indexes] = True if result is None else result
        spec_ids = np.array([m.spec_id for m in manifests], np.int64)
        for spec_id in np.unique(spec_ids[spec_ids != MIXED_SPECS]):
            self.specs.refuse_unknown_specs([int(spec_id)], next(m.path for m in manifests if m.spec_id == spec_id))
            predicate, field_count = self._evaluator_for(int(spec_id)).predicate, len(self.specs[int(spec_id)].fields)
            # a list of summaries of another length was written for another spec and is ignored
            of_spec = np.flatnonzero(spec_ids == spec_id).tolist()
            summarised = [i for i in of_spec if len(manifests[i].partitions or ()) == field_count > 0]
            if predicate is not None and summarised:
                summaries = tuple(manifests[i].partitions or () for i in summarised)
                by_summary = _SummaryRanges(summaries, self.specs, int(spec_id))
                result = _call_or_none(ranges.may_match, by_summary, predicate)
                may_match[summarised] &= True if result is None else result
        return may_match

    def _evaluator_for(self, spec_id: int) -> PartitionFilterEvaluator:
        evaluator = self.evaluators[spec_id]
        if evaluator.predicate is None and self.is_strict:
            fields = ", ".join(str(f) for f in self.specs[spec_id].fields)
            raise self._refusal(f"partition spec {spec_id} ({fields})", "spec", evaluator.reason_unevaluable)
        return evaluator

    @staticmethod
    def _refusal(what: str, kind: str, why: str) -> UserError:
        return UserError(
            f"Predicate cannot be evaluated for {what}: {why}. "
            f"Without strict mode, the files of this {kind} are included."
        )

    def _require_known_specs(self, entries: EntryTable) -> None:
        if unknown := set(entries.spec_ids()) - set(self.specs.by_id):
            row = int(np.flatnonzero(np.isin(entries.numpy("spec_id"), list(unknown)))[0])
            self.specs.refuse_unknown_specs(unknown, f"file {entries['file_path'][row].as_py()}")


MultiSpecPartitionFilter = PartitionFilter
"""A longer name of the filter: one predicate, one evaluator for every spec of the table."""


def _judge_keys(
    keys: EntryTable, predicate: BooleanExpression, judge: Judge, *, on_failure: bool
) -> tuple[Mask, Failures]:
    """Evaluate each key and report failures; keys are evaluated one by one only if all together fail."""
    try:
        return judge(_TupleRanges(keys), predicate), {}
    except EVALUATION_ERRORS:
        result, failures = np.full(len(keys), on_failure), {}
        for row in range(len(keys)):
            try:
                result[row] = judge(_TupleRanges(keys.take([row])), predicate)[0]
            except EVALUATION_ERRORS as e:
                failures[row] = _first_line(e)
        return result, failures


def _first_line(error: Exception) -> str:
    text = next(iter(str(error).splitlines()), "") or type(error).__name__
    return text if len(text) <= _MAX_REASON_LENGTH else f"{text[: _MAX_REASON_LENGTH - 1]}…"


def _call_or_none(step: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    try:
        return step(*arguments, **keywords)
    except EVALUATION_ERRORS:
        return None


def _rows_by_spec(keys: EntryTable) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    spec_ids = keys.numpy("spec_id")
    for spec_id in np.unique(spec_ids):
        yield int(spec_id), np.flatnonzero(spec_ids == spec_id)


@dataclass(frozen=True, slots=True)
class _TupleRanges:
    """Partition tuples as ranges of one value; a field has the name of its column in the entry table."""

    keys: EntryTable

    def __len__(self) -> int:
        return len(self.keys)

    def of(self, field: NestedField) -> FieldRange:
        values = self.keys[field.name].combine_chunks()
        comparable = to_comparable(values, field.field_type)
        null = values.is_null().to_numpy(zero_copy_only=False)
        value = comparable.is_valid().to_numpy(zero_copy_only=False)
        return FieldRange(comparable, comparable, null, ~null & ~value, value)


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
        lower = decode_comparable(pa.array([s.lower_bound for s in column], pa.binary()), field.field_type)
        upper = decode_comparable(pa.array([s.upper_bound for s in column], pa.binary()), field.field_type)
        if isinstance(field.field_type, UUIDType):
            lower, upper = safe_uuid_bounds(lower, upper)
        floating = isinstance(field.field_type, FloatType | DoubleType)
        null = np.array([s.contains_null is not False for s in column])
        nan = np.array([floating and s.contains_nan is not False for s in column])
        # bounds are missing if and only if there are only nulls and NaNs
        empty = np.array([s.lower_bound is None and (s.contains_null or s.contains_nan is True) for s in column], bool)
        return FieldRange(lower, upper, null, nan, ~empty)
