"""Scan without Spark's readers: return the rows of a plan as a stream of Arrow batches, one file after the other.

This is used for rows that are requested in this process, for types that Spark does not have (nanoseconds), for audits,
and in the workers of a Python data source, where Spark's readers are not available.

Predicates are evaluated by the rules of SQL: a comparison with null never matches. As in Spark, NaN equals NaN and is
greater than every other number, and 0.0 equals -0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as at
from pyiceberg import expressions as ex
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids, rewrite_not
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import IcebergType, NestedField, StructType, UUIDType

from neve.io.parallel import reader_count, stream_in_threads
from neve.io.paths import refuse_unreadable
from neve.model.pyiceberg_private import fields_by_id
from neve.model.values import comparable_array, to_comparable
from neve.plan.ranges import evaluate_expression
from neve.plan.scan import ScanPlan
from neve.predicate.normalize import normalize_and_bind
from neve.run.read.file_reader import read_tasks
from neve.run.read.metadata_columns import metadata_columns
from neve.run.read.tasks import ReadTarget, build_task_table, file_tasks, group_tasks, split_large_files
from neve.run.read.types import ArrowFlavor, arrow_schema, is_rounded_by_spark, unscaled_column
from neve.run.table_facts import TableFacts

Mask = NDArray[np.bool_]

_READ_AHEAD_BYTES = 16 << 20  # of files that a thread reads at once; decoded, they take several times as much


def matching_rows_mask(batch: pa.RecordBatch, schema: Schema, predicate: BooleanExpression) -> Mask:
    """Return a mask of the rows of a batch that match a bound predicate without NOT; the schema is the batch's."""

    def leaf_mask(leaf: ex.BoundPredicate) -> Mask:
        path = _field_path(schema.fields, leaf.term.ref().field.field_id)
        column = reduce(lambda array, i: pc.struct_field(array, [i]), path[1:], batch.column(path[0]))
        return _LEAF_RULES[type(leaf)](column, leaf)

    return evaluate_expression(predicate, leaf_mask, lambda value: np.full(batch.num_rows, value))


def _compare(column: pa.Array, leaf: ex.BoundLiteralPredicate, compare: Callable[..., pa.Array]) -> Mask:
    kind = leaf.term.ref().field.field_type
    [scalar] = _comparable_literals(column, kind, frozenset([leaf.literal.value]))
    return _as_mask(compare(to_comparable(column, kind), scalar))


def _is_in(column: pa.Array, leaf: ex.BoundSetPredicate) -> Mask:
    kind = leaf.term.ref().field.field_type
    literals = _comparable_literals(column, kind, frozenset(leaf.value_set))
    return _as_mask(pc.is_in(to_comparable(column, kind), value_set=literals, skip_nulls=True))


def _comparable_literals(column: pa.Array, kind: IcebergType, values: frozenset[Any]) -> pa.Array:
    """Convert literals to values that compare with a column; Spark has UUIDs as text, which has the same order."""
    literals = comparable_array(values, kind)
    if isinstance(kind, UUIDType) and at.is_string(column.type):
        return pa.array([str(UUID(bytes=value)).encode() for value in literals.to_pylist()], pa.binary())
    return literals


_LEAF_RULES: dict[type[ex.BoundPredicate], Callable[[pa.Array, Any], Mask]] = {
    ex.BoundIsNull: lambda column, _: _as_mask(column.is_null()),
    ex.BoundNotNull: lambda column, _: _as_mask(column.is_valid()),
    ex.BoundIsNaN: lambda column, _: _is_nan(column),
    ex.BoundNotNaN: lambda column, _: ~_is_nan(column),
    ex.BoundLessThan: lambda column, leaf: _compare(column, leaf, pc.less),
    ex.BoundLessThanOrEqual: lambda column, leaf: _compare(column, leaf, pc.less_equal),
    ex.BoundGreaterThan: lambda column, leaf: _compare(column, leaf, pc.greater) | _is_nan(column),
    ex.BoundGreaterThanOrEqual: lambda column, leaf: _compare(column, leaf, pc.greater_equal) | _is_nan(column),
    ex.BoundEqualTo: lambda column, leaf: _compare(column, leaf, pc.equal),
    ex.BoundNotEqualTo: lambda column, leaf: _compare(column, leaf, pc.not_equal) | _is_nan(column),
    ex.BoundIn: _is_in,
    ex.BoundNotIn: lambda column, leaf: _as_mask(column.is_valid()) & ~_is_in(column, leaf),
    ex.BoundStartsWith: lambda column, leaf: _as_mask(pc.starts_with(column, leaf.literal.value)),
    ex.BoundNotStartsWith: lambda column, leaf: _as_mask(pc.invert(pc.starts_with(column, leaf.literal.value))),
}


def _field_path(fields: Iterable[NestedField], field_id: int) -> list[int]:
    """Return the ordinals that lead through structs to a field; empty if it does not exist.

    A field may be there twice, as Spark has it and exactly; the latter comes last.
    """
    for ordinal, field in reversed([*enumerate(fields)]):
        if field.field_id == field_id:
            return [ordinal]
        if isinstance(field.field_type, StructType) and (inner := _field_path(field.field_type.fields, field_id)):
            return [ordinal, *inner]
    return []


def _is_nan(column: pa.Array) -> Mask:
    return _as_mask(pc.is_nan(column)) if at.is_floating(column.type) else np.zeros(len(column), np.bool_)


def _as_mask(result: pa.Array) -> Mask:
    return np.asarray(result.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


@dataclass(frozen=True)
class ScanReader:
    """Reads the tasks of a plan: the columns to return and a condition on rows. It can be sent to other processes."""

    facts: TableFacts
    target: ReadTarget
    column_count: int  # columns returned; the columns after them are read for the condition only
    condition: BooleanExpression | None = None  # bound, without NOT

    @classmethod
    def of(
        cls,
        plan: ScanPlan,
        facts: TableFacts,
        where: BooleanExpression | None = None,
        flavor: ArrowFlavor = ArrowFlavor.EXACT,
        extra: Sequence[NestedField] = (),
    ) -> ScanReader:
        """Build the reader of a plan; `extra` are metadata columns under names that the caller chooses.

        The plan's own predicate has selected files and is not applied to rows; `where` is, by the rules of SQL. It may
        use all columns of the schema that the plan was made with, whether the plan returns them or not.
        """
        metadata_fields = metadata_columns(facts.specs)
        result = Schema(*plan.schema.fields, *(metadata_fields[name] for name in plan.metadata_columns), *extra)
        if where is None:
            return cls(facts, ReadTarget(result, facts.name_mapping, facts.schemas, flavor), len(result.fields))
        schema = next(s for s in facts.schemas if s.schema_id == plan.schema.schema_id)
        condition = bind(schema, rewrite_not(where), True)
        is_rounded = is_rounded_by_spark if flavor is ArrowFlavor.SPARK else lambda _: False
        available = {i for i, field in fields_by_id(result).items() if not is_rounded(field.field_type)}
        only_for_condition = prune_columns(schema, extract_field_ids(condition) - available, False)
        named = [f.model_copy(update={"name": f"__where{f.field_id}"}) for f in only_for_condition.fields]
        exact = [unscaled_column(f) if is_rounded(f.field_type) else f for f in named]
        with_condition = Schema(*result.fields, *exact)
        row_group_predicate = normalize_and_bind(where, schema)
        target = ReadTarget(with_condition, facts.name_mapping, facts.schemas, flavor, row_group_predicate)
        return cls(facts, target, len(result.fields), condition)

    @property
    def schema(self) -> pa.Schema:
        """The columns returned."""
        return arrow_schema(Schema(*self.target.schema.fields[: self.column_count]), self.target.flavor)

    def batches(self, tasks: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of the data files in a task table (see `neve.run.read.tasks`)."""
        for batch in read_tasks(self.facts.io(), file_tasks(tasks, self.facts.specs), self.target):
            if self.condition is None:
                yield batch
                continue
            matching = batch.filter(pa.array(matching_rows_mask(batch, self.target.schema, self.condition)))
            if matching.num_rows:
                yield matching.select(range(self.column_count))


def read_table(
    plan: ScanPlan,
    facts: TableFacts,
    where: BooleanExpression | None = None,
    flavor: ArrowFlavor = ArrowFlavor.EXACT,
    *,
    limit: int | None = None,
) -> pa.Table:
    """Return the live rows of a plan's files as one table; with `limit`, read only the first rows and then stop."""
    schema = ScanReader.of(plan, facts, None, flavor).schema
    return pa.Table.from_batches(read_plan(plan, facts, where, flavor, limit=limit), schema)


def read_plan(
    plan: ScanPlan,
    facts: TableFacts,
    where: BooleanExpression | None = None,
    flavor: ArrowFlavor = ArrowFlavor.EXACT,
    *,
    limit: int | None = None,
    extra: Sequence[NestedField] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a plan's files that match a condition, in the order of the plan (see `ScanReader.of`).

    Files are read in threads, some megabytes ahead of the caller; with a `limit`, one by one until it is reached.
    """
    for entries in (plan.files, plan.deletes):
        refuse_unreadable(entries["file_path"], facts.location)
    reader = ScanReader.of(plan, facts, where, flavor, extra)
    tasks = split_large_files(build_task_table(plan.files, plan.deletes, plan.attached), _READ_AHEAD_BYTES)
    groups = list(group_tasks(tasks, _READ_AHEAD_BYTES)) if tasks.num_rows else []
    if limit is not None:
        return _first_rows((batch for group in groups for batch in reader.batches(group)), limit)
    threads = min(len(groups), reader_count(facts.io(), plan.files["file_path"].to_pylist()[:1], plan.stats.bytes))
    return chain.from_iterable(stream_in_threads(lambda group: list(reader.batches(group)), groups, threads))


def _first_rows(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    while limit > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
