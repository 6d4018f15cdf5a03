"""The rows of a MERGE: target and source joined, each row with the clause that applies to it and its new values.

The join is the smallest one that shows all rows that some clause is about. If the source is in this process and its
keys compare with columns of the target, Arrow reads the rows of the target that have such keys. It also joins them if
ON compares nothing else; otherwise Spark joins those few. In all other cases Spark reads the target; a source that fits
into every task is broadcast, so that the target is read once and not shuffled. If rows without a match are inserted
too, the pairs are changed first; they show which rows of the source remain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from neve.commit.isolation import RowCommand
from neve.io.deletion_vectors import PositionSet
from neve.ops.context import TableContext
from neve.ops.rows.assignments import names_in, refuse_rounded, refuse_truncated
from neve.ops.rows.changed_files import RowChange
from neve.ops.rows.merge_clauses import Clause, ClauseAction, ClauseKind
from neve.ops.rows.merge_source import SOURCE_ROW, MergeSource, SourceKeys, refuse_duplicate_names
from neve.ops.rows.target_rows import TargetRows, metadata_columns_in, translate_spark_errors
from neve.plan.row_change import ChangePlan, Judge
from neve.run.change_tally import CHANGE_COLUMNS, CLAUSE_COLUMN, FILE_COLUMN, POSITION_COLUMN, SOURCE_COLUMN, Effects
from neve.run.find_rows import pair_rows, read_matching_rows
from neve.run.read.metadata_columns import LAST_UPDATED, ROW_ID
from neve.run.read.types import unscaled_columns
from neve.run.spark.arrow_exchange import collect_table
from neve.run.spark.expressions import ExpressionChecker, SqlOrColumn, as_column
from neve.run.spark.input_rows import create_dataframe
from neve.run.spark.read_columns import column_by_name
from neve.run.spark.session import is_case_sensitive
from neve.run.spark.types import spark_type

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
    keys: SourceKeys | None = None

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

    def with_judge(self) -> MergeJob:
        """Choose who finds the rows of the target that can match: Arrow, by the keys of the source, or Spark."""
        keys = {} if self.keys is None else self.keys.columns
        if not keys or self.source.table is None or not self.source.is_small:
            judge = Judge("spark", "no key of a small source compares with a column")
        elif self._target_rows.metadata_columns:
            judge = Judge("spark", "an expression names a metadata column")
        elif self._columns_read() is None:
            judge = Judge("spark", "an expression is a Column or has a subquery")
        else:
            schema = self.context.metadata.schema()
            judge = Judge.of_columns([schema.find_field(name).field_id for name in keys], self.plan.read)
        return replace(self, plan=replace(self.plan, judge=judge))

    def row_change(self) -> RowChange:
        """Return the change that the job makes."""
        return RowChange(
            RowCommand.MERGE,
            self.plan,
            self._effects,
            self._updated_columns,
            patches=self._changed_rows,
            local_patches=self._local_patches,
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
        key_filter = None if self.keys is None else self.keys.key_filter
        return TargetRows(self.context, self.plan.read, self.aliases[0], named, key_filter)

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
        is_about_source = self._has_inserts and not self._has_clause(ClauseKind.NOT_MATCHED_BY_SOURCE)
        return is_about_source and self.source.is_small and self.source.table is not None

    def _changed_rows(self) -> DataFrame:
        """Return the rows that some clause applies to, with the new values of assigned columns; new rows with all."""
        adds_rows = self._has_inserts and not self._inserts_after_matches
        columns = self._all_columns if adds_rows else self._updated_columns
        with translate_spark_errors("MERGE"):
            target = self._target_rows.frame()
            if self._has_clause(ClauseKind.MATCHED, ClauseKind.NOT_MATCHED_BY_SOURCE) or self._inserts_after_matches:
                part = _MergePart(self._join_rows(target))
            else:
                part = self._insert_part(self._source_rows.join(target, as_column(self.on), "left_anti"))
            return self._select_changes(part, columns, has_ids=adds_rows)

    def _local_patches(self) -> pa.Table | None:
        """Return the changed rows with their new values; None if many rows of the target have keys of the source."""
        table, keys, names = self.source.table, self.keys, self._columns_read()
        if table is None or keys is None or names is None:
            return None
        schema = self.context.metadata.schema()
        available = (*schema.fields, *unscaled_columns(schema))
        fields = [f for f in available if f.name in keys.columns or f.name.lower() in names]
        values = {name: pc.unique(table[column].drop_null()) for name, column in keys.columns.items()}
        found = read_matching_rows(self.plan.read, self.context.facts, self.plan.row_filter, fields, values)
        if found is None or not found.num_rows:
            return found
        rows = found.drop_columns([CLAUSE_COLUMN])
        with translate_spark_errors("MERGE"):
            joined = self._join_by_keys(rows, table, keys)
            if joined is None:
                joined = self._join_rows(create_dataframe(self.context.spark(), rows).alias(self.aliases[0]))
            return collect_table(self._select_changes(_MergePart(joined), self._updated_columns, has_ids=False))

    def _join_by_keys(self, rows: pa.Table, source: pa.Table, keys: SourceKeys) -> DataFrame | None:
        """Join rows of the target with the source in this process; None if that takes more than comparing keys.

        A struct for each side takes the place of its alias: `t.id` is then a field of the column `t`.
        """
        fold = str if is_case_sensitive(self.context.spark()) else str.lower
        names = [fold(name) for name in (*rows.column_names, *source.column_names)]
        pairs = pair_rows(rows, source, keys.columns) if keys.is_whole_condition else None
        if pairs is None or any(fold(alias) in names for alias in self.aliases):
            return None
        target, other = rows.take(pairs[0]), source.take(pairs[1])
        values = pa.table([*target.columns, *other.columns], [f"c{n}" for n in range(len(names))])
        columns = [F.col(f"c{n}").alias(name) for n, name in enumerate((*rows.column_names, *source.column_names))]
        sides = columns[: rows.num_columns], columns[rows.num_columns :]
        structs = [F.struct(*side).alias(alias) for alias, side in zip(self.aliases, sides, strict=True)]
        unambiguous = [column for column, name in zip(columns, names, strict=True) if names.count(name) == 1]
        return create_dataframe(self.context.spark(), values).select(*structs, *unambiguous)

    def _columns_read(self) -> set[str] | None:
        """Return the columns of the target that matches need, in lower case; None if that cannot be told."""
        matched = [c for c in self.clauses if c.kind is ClauseKind.MATCHED]
        read = names_in([self.on, *(c.condition for c in matched if c.condition is not None)])
        for clause in matched:
            if (updates := clause.assignments) is None:
                continue
            own = set[str]() if clause.column_values is None else updates.columns_read()  # * takes them from the source
            if read is None or own is None:
                return None
            # A column that only another clause assigns keeps its value.
            read |= own | {name.lower() for name in self._updated_columns if name not in updates.columns}
        return read

    def _remaining_inserts(self, seen: PositionSet) -> pa.Table | None:
        """Return the inserts of a small source: its rows that were not seen in a match."""
        rows = self.source.unmatched_rows(seen)
        if rows is None:
            return None
        with translate_spark_errors("MERGE"):
            return collect_table(self._select_changes(self._insert_part(rows), self._all_columns, has_ids=True))

    def _insert_part(self, rows: DataFrame) -> _MergePart:
        no_position = {FILE_COLUMN: F.lit(None).cast("int"), POSITION_COLUMN: F.lit(None).cast("bigint")}
        return _MergePart(rows.withColumns(no_position).alias(self.aliases[1]), has_target=False)

    def _select_changes(self, part: _MergePart, columns: tuple[str, ...], *, has_ids: bool) -> DataFrame:
        """Return the changes of a part; without ids, Arrow carries the rows and reads their ids."""
        rows = part.rows.withColumn(CLAUSE_COLUMN, self._clause_number(part)).where(F.col(CLAUSE_COLUMN).isNotNull())
        lineage: list[Column] = []
        if has_ids and part.has_target:
            lineage = self._target_rows.lineage_columns()  # changed rows keep their ids
        elif has_ids and self.context.metadata.format_version >= 3:
            lineage = [F.lit(None).cast("bigint").alias(f.name) for f in (ROW_ID, LAST_UPDATED)]
        number = [F.col(SOURCE_ROW).alias(SOURCE_COLUMN)] if self._inserts_after_matches and part.has_target else []
        return rows.select(*CHANGE_COLUMNS, *number, *(self._new_value(n, part).alias(n) for n in columns), *lineage)

    def _join_rows(self, target: DataFrame) -> DataFrame:
        on = as_column(self.on)
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
        # A match that changes nothing must be unique too, and its source row must not be inserted.
        if part.has_target and (self._is_unique or self._inserts_after_matches):
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
