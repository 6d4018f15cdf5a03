"""The rows of a MERGE: target and source joined, each row with the clause that applies to it and its new values.

The join is the smallest one that shows all rows that some clause is about. A source that fits into every task is
broadcast, so that the target is read once and not shuffled. If rows without a match are inserted too, the pairs are
changed first; they show which rows of the source remain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from neve.commit.isolation import RowCommand
from neve.io.deletion_vectors import PositionSet
from neve.ops.context import TableContext
from neve.ops.rows.assignments import refuse_rounded, refuse_truncated
from neve.ops.rows.changed_files import RowChange
from neve.ops.rows.merge_clauses import Clause, ClauseAction, ClauseKind
from neve.ops.rows.merge_source import SOURCE_ROW, MergeSource, refuse_duplicate_names
from neve.ops.rows.target_rows import TargetRows, metadata_columns_in, translate_spark_errors
from neve.plan.row_change import ChangePlan
from neve.run.change_tally import CHANGE_COLUMNS, CLAUSE_COLUMN, FILE_COLUMN, POSITION_COLUMN, SOURCE_COLUMN, Effects
from neve.run.read.metadata_columns import LAST_UPDATED, ROW_ID
from neve.run.spark.expressions import ExpressionChecker, SqlOrColumn, as_column
from neve.run.spark.parquet_scan import KeyFilter
from neve.run.spark.read_columns import column_by_name
from neve.run.spark.types import spark_type

_MATCHED_SOURCE_ROW = "__neve_seen"  # the number of a source row that has a match
_AMBIGUOUS = (
    "MERGE: a row of the table matches several rows of the source, so it is not clear which one applies. "
    "Make the source unique in what ON compares, or make ON stricter. Nothing was changed."
)


@dataclass(frozen=True)
class _MergePart:
    """A part of the rows of a MERGE: pairs of target and source, or rows of the source alone."""

    rows: DataFrame
    has_target: bool = True


@dataclass(frozen=True)
class MergeJob:
    """The rows and checks of one MERGE."""

    context: TableContext
    plan: ChangePlan
    source: MergeSource
    aliases: tuple[str, str]
    on: SqlOrColumn
    clauses: tuple[Clause, ...]
    is_pruned: bool
    key_filter: KeyFilter | None = None

    def with_checked_expressions(self) -> MergeJob:
        """Add the types of the expressions; reject what does not resolve or fit."""
        refuse_duplicate_names(self.source.frame)
        if self.plan.mode == "merge-on-read" and self._has_clause(ClauseKind.MATCHED, ClauseKind.NOT_MATCHED_BY_SOURCE):
            refuse_rounded(self.context, "MERGE")
        refuse_truncated(
            [c.assignments for c in self.clauses if c.action is ClauseAction.UPDATE and c.assignments], "MERGE"
        )
        source = self.source.frame.withColumn(SOURCE_ROW, F.lit(0)).alias(self.aliases[1])
        target = self._target_rows.empty_frame()
        both = ExpressionChecker(target.crossJoin(source))
        one_sided = {
            ClauseKind.NOT_MATCHED: ExpressionChecker(source),
            ClauseKind.NOT_MATCHED_BY_SOURCE: ExpressionChecker(target),
        }
        both.check_condition("MERGE ON", self.on)
        checked = (clause.with_checked_expressions(one_sided.get(clause.kind, both)) for clause in self.clauses)
        return replace(self, clauses=tuple(checked))

    def row_change(self) -> RowChange:
        """Return the change that the job makes."""
        return RowChange(
            RowCommand.MERGE,
            self.plan,
            self._effects,
            self._updated_columns,
            positions=lambda: self._changed_rows(()),
            patches=lambda: self._changed_rows(
                self._all_columns if self._has_inserts and not self._inserts_after_matches else self._updated_columns
            ),
            rows=lambda: self._changed_rows(self._all_columns),
            remaining_inserts=self._remaining_inserts if self._inserts_after_matches else None,
            is_unique=self._is_unique,
            inserts=self._has_inserts,
            ambiguity_message=_AMBIGUOUS,
            is_pruned=self.is_pruned,
        )

    # -- facts -------------------------------------------------------------------------------------------------------

    def _has_clause(self, *kinds: ClauseKind) -> bool:
        return any(c.kind in kinds for c in self.clauses)

    @property
    def _has_inserts(self) -> bool:
        return self._has_clause(ClauseKind.NOT_MATCHED)

    @property
    def _is_unique(self) -> bool:
        """True if a row of the table may match only one row of the source."""
        matched = [c for c in self.clauses if c.kind is ClauseKind.MATCHED]
        deletes_all = len(matched) == 1 and matched[0].action is ClauseAction.DELETE and matched[0].condition is None
        return bool(matched) and not deletes_all

    @property
    def _effects(self) -> Effects:
        """The effects of each clause; the last entry is for matched rows that stay unchanged."""
        return Effects((*(c.removes for c in self.clauses), False), (*(c.writes for c in self.clauses), False))

    @property
    def _all_columns(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.context.metadata.schema().fields)

    @property
    def _updated_columns(self) -> tuple[str, ...]:
        updates = [c.assignments for c in self.clauses if c.action is ClauseAction.UPDATE and c.assignments is not None]
        return tuple(dict.fromkeys(name for a in updates for name in a.columns))

    # -- rows --------------------------------------------------------------------------------------------------------

    @property
    def _target_rows(self) -> TargetRows:
        texts = [self.on, *(v for c in self.clauses for v in c.values().values())]
        named = metadata_columns_in(self.context, texts)
        return TargetRows(self.context, self.plan.read, self.aliases[0], named, self.key_filter)

    @property
    def _source_rows(self) -> DataFrame:
        return self.source.numbered_frame.alias(self.aliases[1])

    @property
    def _source_for_join(self) -> DataFrame:
        """The source as the smaller side of a join."""
        return F.broadcast(self._source_rows) if self.source.is_small else self._source_rows

    @property
    def _inserts_after_matches(self) -> bool:
        """True if matching pairs are changed first, and the remaining rows of the source inserted afterwards."""
        both = self._has_inserts and self._has_clause(ClauseKind.MATCHED)
        return both and self.source.is_small and not self._has_clause(ClauseKind.NOT_MATCHED_BY_SOURCE)

    def _changed_rows(self, columns: tuple[str, ...]) -> DataFrame:
        """Return the rows that some clause applies to, with the new values of these columns."""
        with translate_spark_errors("MERGE"):
            only_inserts = not self._has_clause(ClauseKind.MATCHED, ClauseKind.NOT_MATCHED_BY_SOURCE)
            part = self._unmatched_source_rows() if only_inserts else _MergePart(self._join_rows())
            return self._select_changes(part, columns)

    def _remaining_inserts(self, seen: PositionSet) -> DataFrame | None:
        """Return the inserts of a small source: its rows that were not seen in a match."""
        rows = self.source.unmatched_rows(seen)
        if rows is None:
            return None
        with translate_spark_errors("MERGE"):
            return self._select_changes(self._insert_part(rows), self._all_columns)

    def _insert_part(self, rows: DataFrame) -> _MergePart:
        no_position = {FILE_COLUMN: F.lit(None).cast("int"), POSITION_COLUMN: F.lit(None).cast("bigint")}
        return _MergePart(rows.withColumns(no_position).alias(self.aliases[1]), has_target=False)

    def _unmatched_source_rows(self) -> _MergePart:
        """Return the rows of the source without a match, for a MERGE that only inserts."""
        target, source, on = self._target_rows.frame(), self._source_rows, as_column(self.on)
        if not self.source.is_small:
            return self._insert_part(source.join(target, on, "left_anti"))
        seen = (
            target.join(self._source_for_join, on, "inner")
            .select(F.col(SOURCE_ROW).alias(_MATCHED_SOURCE_ROW))
            .distinct()
        )
        return self._insert_part(
            source.join(F.broadcast(seen), F.col(SOURCE_ROW) == F.col(_MATCHED_SOURCE_ROW), "left_anti")
        )

    def _select_changes(self, part: _MergePart, columns: tuple[str, ...]) -> DataFrame:
        rows = part.rows.withColumn(CLAUSE_COLUMN, self._clause_number(part)).where(F.col(CLAUSE_COLUMN).isNotNull())
        is_whole = columns == self._all_columns  # of other rows, Arrow reads the id
        lineage: list[Column] = []
        if is_whole and part.has_target:
            lineage = self._target_rows.lineage_columns()  # changed rows keep their ids
        elif is_whole and self.context.metadata.format_version >= 3:
            lineage = [F.lit(None).cast("bigint").alias(f.name) for f in (ROW_ID, LAST_UPDATED)]
        number = [F.col(SOURCE_ROW).alias(SOURCE_COLUMN)] if self._inserts_after_matches and part.has_target else []
        return rows.select(*CHANGE_COLUMNS, *number, *(self._new_value(n, part).alias(n) for n in columns), *lineage)

    def _join_rows(self) -> DataFrame:
        target, on = self._target_rows.frame(), as_column(self.on)
        if self._has_clause(ClauseKind.NOT_MATCHED_BY_SOURCE):
            if self._has_inserts:
                return target.join(self._source_rows, on, "full_outer")
            return target.join(self._source_for_join, on, "left_outer")
        needs_pairs_only = self._inserts_after_matches or not self._has_inserts
        return target.join(self._source_for_join, on, "inner" if needs_pairs_only else "right_outer")

    def _clause_number(self, part: _MergePart) -> Column:
        """Return the number of the first clause whose condition holds for a row; null if there is none."""
        in_table, in_source = F.col(FILE_COLUMN).isNotNull(), F.col(SOURCE_ROW).isNotNull()
        about = {
            ClauseKind.MATCHED: in_table & in_source,
            ClauseKind.NOT_MATCHED: ~in_table,
            ClauseKind.NOT_MATCHED_BY_SOURCE: ~in_source,
        }
        numbered = [
            (about[c.kind] if c.condition is None else about[c.kind] & as_column(c.condition), n)
            for n, c in self._clauses_for(part)
        ]
        if self._is_unique and part.has_target:  # a match that changes nothing must be unique too
            numbered.append((about[ClauseKind.MATCHED], len(self.clauses)))
        first, *others = numbered
        return reduce(lambda case, one: case.when(one[0], F.lit(one[1])), others, F.when(first[0], F.lit(first[1])))

    def _clauses_for(self, part: _MergePart) -> list[tuple[int, Clause]]:
        """Return the clauses that can apply to a part, with their numbers."""
        return [(n, c) for n, c in enumerate(self.clauses) if part.has_target or c.kind is ClauseKind.NOT_MATCHED]

    def _new_value(self, name: str, part: _MergePart) -> Column:
        """Return the new value of a column, by clause."""
        kind = spark_type(self.context.metadata.schema().find_field(name).field_type)
        case: Column | None = None
        for n, clause in self._clauses_for(part):
            if clause.assignments is None:
                continue
            new = clause.assignments.new_value_of(name)
            if new is None:
                new = column_by_name(name, self.aliases[0])
            applies = F.col(CLAUSE_COLUMN) == n
            case = F.when(applies, new) if case is None else case.when(applies, new)
        return F.lit(None).cast(kind) if case is None else case
