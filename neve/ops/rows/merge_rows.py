"""The rows of a MERGE: target and source joined, each row with the clause that applies to it and what it becomes.

The join is the smallest that shows all rows some clause is about. A source that fits every task is broadcast, so that
the target is read once and not shuffled; when rows without a match are inserted too, the pairs are changed first, and
tell which rows of the source are left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from neve.commit.isolation import Command
from neve.io.deletion_vectors import PositionSet
from neve.ops.context import TableContext
from neve.ops.rows.apply_change import RowChange
from neve.ops.rows.assignments import refuse_cut, refuse_rounded
from neve.ops.rows.merge_clauses import Action, Clause, Kind
from neve.ops.rows.merge_source import SOURCE_ROW, MergeSource, refuse_duplicate_names
from neve.ops.rows.target_rows import Target, metadata_columns_in, plainly
from neve.plan.row_change import ChangePlan
from neve.run.change_tally import CHANGE_COLUMNS, CLAUSE, FILE, POSITION, SOURCE, Effects
from neve.run.read.metadata_columns import LAST_UPDATED, ROW_ID
from neve.run.spark.expressions import Expressions, Value, as_column
from neve.run.spark.parquet_scan import Among
from neve.run.spark.read_columns import by_name
from neve.run.spark.types import spark_type

_SEEN = "__neve_seen"  # the number of a source row that has a match
_AMBIGUOUS = (
    "MERGE: a row of the table matches several rows of the source, so it is not clear which one applies. "
    "Make the source unique in what ON compares, or make ON stricter. Nothing was changed."
)


@dataclass(frozen=True)
class _Part:
    """Some of the rows of a MERGE: pairs of target and source, or rows of the source alone."""

    rows: DataFrame
    has_target: bool = True


@dataclass(frozen=True)
class MergeJob:
    """One run of a MERGE."""

    context: TableContext
    plan: ChangePlan
    source: MergeSource
    aliases: tuple[str, str]
    on: Value
    clauses: tuple[Clause, ...]
    is_pruned: bool
    among: Among | None = None

    def checked(self) -> MergeJob:
        """The same job with its expressions typed; what does not resolve or fit is refused."""
        refuse_duplicate_names(self.source.frame)
        if self.plan.mode == "merge-on-read" and self._has(Kind.MATCHED, Kind.NOT_MATCHED_BY_SOURCE):
            refuse_rounded(self.context, "MERGE")
        refuse_cut([c.assignments for c in self.clauses if c.action is Action.UPDATE and c.assignments], "MERGE")
        given = self.source.frame.withColumn(SOURCE_ROW, F.lit(0))
        target, source = self._target.shape(), given.alias(self.aliases[1])
        both = Expressions(target.crossJoin(source))
        one_sided = {Kind.NOT_MATCHED: Expressions(source), Kind.NOT_MATCHED_BY_SOURCE: Expressions(target)}
        both.check_condition("MERGE ON", self.on)
        return replace(self, clauses=tuple(_checked(c, one_sided.get(c.kind, both)) for c in self.clauses))

    def change(self) -> RowChange:
        """The change the job makes."""
        return RowChange(
            Command.MERGE,
            self.plan,
            self._effects,
            self._assigned,
            positions=lambda: self._rows(()),
            patches=lambda: self._rows(self._all if self._inserts and not self._in_turn else self._assigned),
            rows=lambda: self._rows(self._all),
            rest=self._rest if self._in_turn else None,
            is_unique=self._is_unique,
            inserts=self._inserts,
            ambiguity=_AMBIGUOUS,
            is_pruned=self.is_pruned,
        )

    # -- facts -------------------------------------------------------------------------------------------------------

    def _has(self, *kinds: Kind) -> bool:
        return any(c.kind in kinds for c in self.clauses)

    @property
    def _inserts(self) -> bool:
        return self._has(Kind.NOT_MATCHED)

    @property
    def _is_unique(self) -> bool:
        """Whether a row of the table may match one row of the source only."""
        matched = [c for c in self.clauses if c.kind is Kind.MATCHED]
        deletes_all = len(matched) == 1 and matched[0].action is Action.DELETE and matched[0].condition is None
        return bool(matched) and not deletes_all

    @property
    def _effects(self) -> Effects:
        """What each clause does; the last number is of rows that are matched and stay as they are."""
        return Effects((*(c.removes for c in self.clauses), False), (*(c.writes for c in self.clauses), False))

    @property
    def _all(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.context.metadata.schema().fields)

    @property
    def _assigned(self) -> tuple[str, ...]:
        updates = [c.assignments for c in self.clauses if c.action is Action.UPDATE and c.assignments is not None]
        return tuple(dict.fromkeys(name for a in updates for name in a.columns))

    # -- rows --------------------------------------------------------------------------------------------------------

    @property
    def _target(self) -> Target:
        texts = [self.on, *(v for c in self.clauses for v in c.values().values())]
        named = metadata_columns_in(self.context, texts)
        return Target(self.context, self.plan.read, self.aliases[0], named, self.among)

    @property
    def _source(self) -> DataFrame:
        return self.source.numbered.alias(self.aliases[1])

    @property
    def _held(self) -> DataFrame:
        """The source as the smaller side of a join."""
        return F.broadcast(self._source) if self.source.is_small else self._source

    @property
    def _in_turn(self) -> bool:
        """Whether pairs are changed first, and the rows of the source that are in none inserted then."""
        both = self._inserts and self._has(Kind.MATCHED)
        return both and self.source.is_small and not self._has(Kind.NOT_MATCHED_BY_SOURCE)

    def _rows(self, columns: tuple[str, ...]) -> DataFrame:
        """The rows some clause applies to, with the new values of some columns."""
        with plainly("MERGE"):
            only_inserts = not self._has(Kind.MATCHED, Kind.NOT_MATCHED_BY_SOURCE)
            return self._changed(self._unmatched() if only_inserts else _Part(self._joined()), columns)

    def _rest(self, seen: PositionSet) -> DataFrame | None:
        """The rows of a small source that were not seen, as they are inserted."""
        rows = self.source.without(seen)
        if rows is None:
            return None
        with plainly("MERGE"):
            return self._changed(self._new(rows), self._all)

    def _new(self, rows: DataFrame) -> _Part:
        nowhere = {FILE: F.lit(None).cast("int"), POSITION: F.lit(None).cast("bigint")}
        return _Part(rows.withColumns(nowhere).alias(self.aliases[1]), has_target=False)

    def _unmatched(self) -> _Part:
        """The rows of the source without a match, for clauses that only insert."""
        target, source, on = self._target.frame(), self._source, as_column(self.on)
        if not self.source.is_small:
            return self._new(source.join(target, on, "left_anti"))
        seen = target.join(self._held, on, "inner").select(F.col(SOURCE_ROW).alias(_SEEN)).distinct()
        return self._new(source.join(F.broadcast(seen), F.col(SOURCE_ROW) == F.col(_SEEN), "left_anti"))

    def _changed(self, part: _Part, columns: tuple[str, ...]) -> DataFrame:
        rows = part.rows.withColumn(CLAUSE, self._clause(part)).where(F.col(CLAUSE).isNotNull())
        lineage = self._lineage(part) if columns else []
        number = [F.col(SOURCE_ROW).alias(SOURCE)] if self._in_turn and part.has_target else []
        return rows.select(*CHANGE_COLUMNS, *number, *(self._value(n, part).alias(n) for n in columns), *lineage)

    def _joined(self) -> DataFrame:
        target, on = self._target.frame(), as_column(self.on)
        if self._has(Kind.NOT_MATCHED_BY_SOURCE):
            kind, held = ("full_outer", self._source) if self._inserts else ("left_outer", self._held)
            return target.join(held, on, kind)
        is_all_seen = self._in_turn or not self._inserts
        return target.join(self._held, on, "inner" if is_all_seen else "right_outer")

    def _clause(self, part: _Part) -> Column:
        """The number of the clause that applies to a row, the first whose condition holds; null for none."""
        in_table, in_source = F.col(FILE).isNotNull(), F.col(SOURCE_ROW).isNotNull()
        about = {
            Kind.MATCHED: in_table & in_source,
            Kind.NOT_MATCHED: ~in_table,
            Kind.NOT_MATCHED_BY_SOURCE: ~in_source,
        }
        numbered = [
            (about[c.kind] if c.condition is None else about[c.kind] & as_column(c.condition), n)
            for n, c in self._of(part)
        ]
        if self._is_unique and part.has_target:  # also a match without consequence must be the only one
            numbered.append((about[Kind.MATCHED], len(self.clauses)))
        first, *others = numbered
        return reduce(lambda case, one: case.when(one[0], F.lit(one[1])), others, F.when(first[0], F.lit(first[1])))

    def _of(self, part: _Part) -> list[tuple[int, Clause]]:
        """The clauses that can apply to a part, with their numbers."""
        return [(n, c) for n, c in enumerate(self.clauses) if part.has_target or c.kind is Kind.NOT_MATCHED]

    def _value(self, name: str, part: _Part) -> Column:
        """What a column becomes, by clause."""
        kind = spark_type(self.context.metadata.schema().find_field(name).field_type)
        case: Column | None = None
        for n, clause in self._of(part):
            if clause.assignments is None:
                continue
            new = clause.assignments.new_column(name)
            if new is None:
                new = by_name(name, self.aliases[0])
            applies = F.col(CLAUSE) == n
            case = F.when(applies, new) if case is None else case.when(applies, new)
        return F.lit(None).cast(kind) if case is None else case

    def _lineage(self, part: _Part) -> list[Column]:
        """Rows that change keep their row id; new ones get one."""
        if self.context.metadata.format_version < 3:
            return []
        if part.has_target:
            return self._target.lineage()
        return [F.lit(None).cast("bigint").alias(f.name) for f in (ROW_ID, LAST_UPDATED)]


def _checked(clause: Clause, expressions: Expressions) -> Clause:
    if clause.condition is not None:
        expressions.check_condition(f"{clause.label} condition", clause.condition)
    if clause.assignments is None:
        return clause
    return replace(clause, assignments=clause.assignments.typed(expressions))
