"""Merge rows of a source into a table.

The condition `on`, which may be any condition, pairs rows of the table with rows of the source. For every pair, and for
every row without a partner, the first clause of its kind whose condition holds is applied. It is an error if a row of
the table matches several rows of the source, because the new values would be ambiguous; a merge whose only matched
clause deletes every match has no such ambiguity.

Where the condition compares columns for equality, the keys of the source rule out files of the table; the result says
whether they did. A merge with insert clauses only is an append.

Isolation: serializable unless `write.merge.isolation-level` says otherwise.
Writes: rows under the current default spec; deletes under the spec of the file they cover.

>>> changes = [{"id": 1, "region": "asia"}, {"id": 7, "region": "us"}]
>>> merge = t.merge(changes, on="t.id = s.id").when_matched_update_all().when_not_matched_insert_all()
>>> result = merge.execute()
>>> result.rows_updated, result.rows_inserted
(1, 1)
>>> sorted((r["id"], r["region"]) for r in t.to_arrow().to_pylist())
[(1, 'asia'), (2, 'us'), (3, 'eu'), (7, 'us')]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyspark.sql import Column

from neve.commit.isolation import RowCommand
from neve.errors import UserError
from neve.ops.context import TableContext
from neve.ops.metadata.evolve_schema import SchemaChange
from neve.ops.results import MergeResult
from neve.ops.rows.changed_files import RowChange, WrittenChange
from neve.ops.rows.merge_clauses import Clause, ClauseAction, ClauseKind, evolved_columns, refuse_unreachable
from neve.ops.rows.merge_rows import MergeJob
from neve.ops.rows.merge_source import MergeSource, SourceKeys, open_merge_source
from neve.ops.rows.statement import RowStatement
from neve.ops.rows.target_rows import exact_condition, resolve_subqueries
from neve.ops.verb import Execution
from neve.plan.row_change import ChangePlan
from neve.plan.row_estimate import count_distinct_values, estimate_rows_with_keys
from neve.predicate import parse
from neve.predicate.column_names import find_equalities
from neve.predicate.sql_features import features_of
from neve.run.spark.expressions import SqlOrColumn
from neve.run.spark.input_rows import make_rereadable
from neve.run.spark.session import is_case_sensitive, parses_text_differently
from neve.run.spark.types import iceberg_schema

_ON = "MERGE ON"


@dataclass(frozen=True)
class Merge(RowStatement[MergeResult]):
    """A MERGE: clauses in the order in which they are tried, then `.plan()`, `.explain()` or `.execute()`."""

    source: Any = None
    on: SqlOrColumn = ""
    aliases: tuple[str, str] = ("t", "s")
    clauses: tuple[Clause, ...] = ()
    evolves: bool = False

    command = RowCommand.MERGE
    result_type = MergeResult

    def __post_init__(self) -> None:
        # The source is read several times: to plan the statement, to run it, to run it again.
        object.__setattr__(self, "source", make_rereadable(self.source))

    # -- building ----------------------------------------------------------------------------------------------------

    def when_matched_update(self, assignments: Mapping[str, SqlOrColumn], condition: SqlOrColumn | None = None) -> Self:
        """Assign expressions to columns of a row that has a match."""
        return self._add_clause(ClauseKind.MATCHED, ClauseAction.UPDATE, assignments, condition)

    def when_matched_update_all(self, condition: SqlOrColumn | None = None) -> Self:
        """Set every column of a row that has a match to the source column of the same name."""
        return self._add_clause(ClauseKind.MATCHED, ClauseAction.UPDATE, None, condition)

    def when_matched_delete(self, condition: SqlOrColumn | None = None) -> Self:
        """Delete a row that has a match."""
        return self._add_clause(ClauseKind.MATCHED, ClauseAction.DELETE, None, condition)

    def when_not_matched_insert(self, values: Mapping[str, SqlOrColumn], condition: SqlOrColumn | None = None) -> Self:
        """Insert a source row that has no match; columns without a value get their default, or null."""
        return self._add_clause(ClauseKind.NOT_MATCHED, ClauseAction.INSERT, values, condition)

    def when_not_matched_insert_all(self, condition: SqlOrColumn | None = None) -> Self:
        """Insert a source row that has no match; each column takes the source column of the same name."""
        return self._add_clause(ClauseKind.NOT_MATCHED, ClauseAction.INSERT, None, condition)

    def when_not_matched_by_source_update(
        self, assignments: Mapping[str, SqlOrColumn], condition: SqlOrColumn | None = None
    ) -> Self:
        """Assign expressions to columns of a table row that no source row matches."""
        return self._add_clause(ClauseKind.NOT_MATCHED_BY_SOURCE, ClauseAction.UPDATE, assignments, condition)

    def when_not_matched_by_source_delete(self, condition: SqlOrColumn | None = None) -> Self:
        """Delete a table row that no source row matches."""
        return self._add_clause(ClauseKind.NOT_MATCHED_BY_SOURCE, ClauseAction.DELETE, None, condition)

    def with_schema_evolution(self) -> Self:
        """Add columns of the source that the table lacks, and widen types."""
        return replace(self, evolves=True)

    def _add_clause(
        self,
        kind: ClauseKind,
        action: ClauseAction,
        assignments: Mapping[str, SqlOrColumn] | None,
        condition: SqlOrColumn | None,
    ) -> Self:
        values = None if assignments is None else tuple(assignments.items())
        return replace(self, clauses=(*self.clauses, Clause(kind, action, values, condition)))

    # -- planning ----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if not self.clauses:
            raise UserError("MERGE without clauses: add at least one, as in .when_matched_update_all().")
        if self.on is None or (isinstance(self.on, str) and not self.on.strip()):
            raise UserError("MERGE without a condition: specify how rows match, as in on='t.id = s.id'.")
        if self.aliases[0].lower() == self.aliases[1].lower():
            raise UserError(f"MERGE: the table and the source cannot both be called {self.aliases[0]!r}.")
        refuse_unreachable(self.clauses)
        conditions = [
            (_ON, self.on),
            *((f"MERGE clause {n + 1}", c.condition) for n, c in enumerate(self.clauses)),
        ]
        for clause, text in conditions:
            if isinstance(text, str) and features_of(text).has_subquery:
                raise UserError(f"{clause}: a condition of MERGE cannot contain a subquery. Join it into the source.")

    @contextmanager
    def _plan(self, context: TableContext) -> Iterator[RowChange]:
        given = [self.on, *(v for c in self.clauses for v in (c.condition, *dict(c.column_values or ()).values()))]
        has_columns = any(isinstance(value, Column) for value in given)
        with open_merge_source(context, self.source, has_columns=has_columns) as source:
            evolution = self._schema_change(context, source)
            context = context if evolution is None else evolution.preview_context()
            clauses = tuple(
                c.resolve(n, context, source.frame, self.aliases, self.evolves) for n, c in enumerate(self.clauses)
            )
            texts = {_ON: self.on, **{k: v for c in clauses for k, v in c.values().items()}}
            with resolve_subqueries(context, texts) as ready:
                plan, keys, is_pruned = self._plan_change(context, source, ready.reads_target or source.reads_target)
                target, other = self.aliases
                exact = partial(
                    exact_condition, context, alias=target, other_alias=other, has_rounded_source=source.is_rounded
                )
                resolved = tuple(c.with_values(ready.values).with_exact_condition(exact) for c in clauses)
                on = exact(ready.values[_ON])
                job = MergeJob(context, plan, source, self.aliases, on, resolved, is_pruned, keys)
                yield replace(
                    job.with_checked_expressions().with_judge().row_change(),
                    evolved_context=context,
                    before_commit=None if evolution is None else evolution.commit,
                )

    def _plan_change(
        self, context: TableContext, source: MergeSource, reads_itself: bool
    ) -> tuple[ChangePlan, SourceKeys | None, bool]:
        """Plan which files to read; returns also the usable keys of the source, and whether they ruled out files."""
        target_filter, keys = self._target_filter(context, source)
        read = self._scan_plan(context, None if target_filter is AlwaysTrue() else target_filter)
        stats = read.stats
        is_pruned = keys is not None and bool(stats.files < stats.files_considered or stats.manifests_pruned)
        source_text = f"({self.source})" if isinstance(self.source, str) else type(self.source).__name__
        plan = self._build_change_plan(
            context,
            f"MERGE INTO {context.name} {self.aliases[0]} USING {source_text} {self.aliases[1]} "
            f"ON {self.on} {' '.join(str(c) for c in self.clauses)}",
            read,
            read.only(np.zeros(len(read.files), bool)),
            target_filter,
            reads_itself,
            notes=(
                f"the keys of the source rule out {'files' if is_pruned else 'no file'}",
                *(() if source.is_deterministic else ("the source is not deterministic, so it is computed only once",)),
            ),
        )
        distinct = {} if keys is None else keys.distinct_values
        expected = estimate_rows_with_keys(distinct, context.metadata, read.snapshot_id)
        return replace(plan, expected=expected), keys, is_pruned

    def _target_filter(self, context: TableContext, source: MergeSource) -> tuple[BooleanExpression, SourceKeys | None]:
        """Return a filter for the rows of the table that can match, and the keys of the source if they are usable."""
        if not isinstance(self.on, str) or parses_text_differently(context.spark(), self.on):
            return AlwaysTrue(), None
        if any(c.kind is ClauseKind.NOT_MATCHED_BY_SOURCE for c in self.clauses):
            return AlwaysTrue(), None
        schema, (target, other) = context.metadata.schema(), self.aliases
        on = parse(
            self.on,
            schema,
            case_sensitive=is_case_sensitive(context.spark()),
            time_zone=context.time_zone(),
            alias=target,
            has_other_tables=True,
        )
        equalities, are_all = find_equalities(self.on, target)
        counts = count_distinct_values(context.metadata)
        keys = source.keys(equalities, schema, other, are_all=are_all, distinct_values=counts)
        return (on.expression if keys is None else And(on.expression, keys.file_filter)), keys

    def _schema_change(self, context: TableContext, source: MergeSource) -> SchemaChange | None:
        """Add the columns that only the source has, and widen types; committed right before the rows, and only then."""
        if not self.evolves:
            return None
        if not context.properties.schema_evolution:
            raise UserError(
                f"MERGE WITH SCHEMA EVOLUTION: table {context.name} forbids it by its property "
                "write.spark.auto-schema-evolution.enabled. Set it to true, or leave the clause out."
            )
        columns = evolved_columns(context.metadata.schema(), source.frame.schema, self.clauses)
        if not columns.fields:
            return None
        change = SchemaChange(context)
        change.union_by_name(iceberg_schema(columns))
        return change

    # -- running -----------------------------------------------------------------------------------------------------

    def _result(
        self, context: TableContext, change: RowChange, written: WrittenChange, execution: Execution
    ) -> MergeResult:
        result = super()._result(context, change, written, execution)
        rows = written.tally.rows_by_clause[: len(self.clauses)]
        return replace(result, rows_by_clause=rows, pruned_by_source=change.is_pruned)
