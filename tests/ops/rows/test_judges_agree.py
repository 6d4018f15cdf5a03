"""Random conditions on odd values: Arrow, where it judges the rows of a statement, finds those that Spark finds.

Spark reads the same rows from plain Parquet and is asked the same text, many conditions in one query. An error of only
one of the two is a difference. `NEVE_ROUNDS` is the number of rounds, `NEVE_SEED` the start of all chance.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pytest
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, rewrite_not
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import neve
from neve.errors import NeveError
from neve.ops.rows.delete import Delete
from neve.ops.rows.target_rows import predicate_of
from neve.plan import row_change
from neve.plan.file_filter import RowFilter
from neve.run.change_tally import FILE_COLUMN, POSITION_COLUMN, Effects
from neve.run.find_rows import read_matching_rows, tally_matching_rows
from neve.run.read.scan import matching_rows_mask
from neve.run.spark.session import quiet_errors, temporary_options
from tests.support.judged_tables import COLUMNS, VERSIONS, JudgedTable
from tests.support.random_conditions import OPERATORS, Condition, ConditionMaker
from tests.support.spark_sessions import INTERPRETED

ROUNDS = int(os.environ.get("NEVE_ROUNDS", "3"))
SEED = os.environ.get("NEVE_SEED", "1")
PER_ROUND = 210
ROUNDS_PER_TABLE = 25
ZONES = (
    "UTC", "America/New_York", "Europe/Berlin", "+05:30", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo",
    "Pacific/Apia", "-08:00", "Asia/Tehran",
)  # fmt: skip
WHOLE_WAY = 1 / 16  # of the conditions are planned and read like statements
DELETES = Effects(removes=(True,), writes=(False,))

CRASH = "crashed"
Found = frozenset[int] | str  # the ids of the rows, or the error


@pytest.fixture(autouse=True)
def arrow_may_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_change, "MAX_ARROW_BYTES", 1 << 30)


@dataclass
class Trial:
    """A table in a session with some settings: who finds which rows."""

    judged: JudgedTable
    spark: SparkSession
    settings: dict[str, str]
    chance: Random
    counts: Counter[str] = field(default_factory=Counter)

    def differences(self, conditions: Sequence[Condition]) -> Iterator[str]:
        """Ask both, and describe each condition about which they differ, in its smallest form."""
        whole_way = {c: self.chance.random() < WHOLE_WAY for c in conditions}
        ours = {c: found for c in conditions if (found := self.by_neve(c, whole_way[c])) is not None}
        found = [c for c in ours if not isinstance(ours[c], str)]
        theirs = dict(zip(found, self.by_spark(found), strict=True))
        theirs |= {c: self.by_spark([c])[0] for c in ours if c not in theirs}
        self.count(conditions, ours)
        for condition, found_rows in ours.items():
            if self.differ(found_rows, theirs[condition]):
                yield self.describe(self.smallest(condition, whole_way[condition]), whole_way[condition])

    def by_neve(self, condition: Condition, whole_way: bool) -> Found | None:
        """The rows that Arrow finds; None if Spark judges."""
        context, statement = self.judged.table.context, self.judged.table.delete().where(condition.sql)
        try:
            predicate = predicate_of(context, condition.sql, statement._alias(context), "DELETE WHERE")
            if not predicate.is_exact:
                return None
            return self.as_a_statement(statement) if whole_way else self.in_memory(predicate.expression)
        except NeveError as e:
            return f"{type(e).__name__}: {e}"
        except Exception as e:  # no error that a user should see
            return f"{CRASH} with {type(e).__name__}: {e}"

    def as_a_statement(self, statement: Delete) -> Found:
        """The rows in the files that a plan reads or takes as a whole, read as DELETE or UPDATE reads them."""
        context = self.judged.table.context
        with statement._plan(context) as change:
            plan = change.plan
        assert plan.judge.engine == "arrow", plan.judge
        ids, files = self.judged.ids, plan.read.files["file_path"].to_pylist()
        if self.chance.random() < 0.5:
            removed = tally_matching_rows(plan.read, context.facts, plan.row_filter, DELETES).removed_positions
            places = [(files[n], at) for n, some in removed.items() for at in some.positions().tolist()]
        else:
            fields = self.chance.sample(context.metadata.schema().fields, 3)
            rows = read_matching_rows(plan.read, context.facts, plan.row_filter, fields)
            assert rows is not None
            numbers = zip(*(rows[name].to_pylist() for name in (FILE_COLUMN, POSITION_COLUMN)), strict=True)
            places = [(files[n], at) for n, at in numbers]
        whole = set(plan.whole.files["file_path"].to_pylist())
        self.counts["found as by a statement"] += 1
        return frozenset(ids[place] for place in places) | {i for (path, _), i in ids.items() if path in whole}

    def in_memory(self, expression: BooleanExpression) -> Found:
        """The same of files whose entries and rows are in memory, which is a few times faster."""
        context, files = self.judged.table.context, self.judged.files
        row_filter = RowFilter(expression, context.metadata, files.specs)
        reads = row_filter.may_match(files)
        whole = row_filter.must_match(files) if self.chance.random() < 0.5 else np.zeros(len(files), bool)
        assert not (whole & ~reads).any()
        schema = context.metadata.schema()
        condition = bind(schema, rewrite_not(expression), True)
        found: set[int] = set()
        for n in np.flatnonzero(reads):
            rows = self.judged.batches[files["file_path"][int(n)].as_py()]
            ids = rows.column("id").to_numpy()
            found.update(ids[slice(None) if whole[n] else matching_rows_mask(rows, schema, condition)].tolist())
        return frozenset(found)

    def by_spark(self, conditions: list[Condition]) -> list[Found]:
        """The rows that Spark finds; a query that fails is split until it is known which conditions fail."""
        if not conditions:
            return []
        try:
            with quiet_errors():
                wanted = [F.expr(c.sql).cast("boolean") for c in conditions]
                rows = self.rows().select("id", F.array(*wanted)).collect()
            return [frozenset(row[0] for row in rows if row[1][n]) for n in range(len(conditions))]
        except PySparkException as e:
            if len(conditions) == 1:
                return [f"{type(e).__name__}: {str(e).strip().splitlines()[0]}"]
        middle = len(conditions) // 2
        return self.by_spark(conditions[:middle]) + self.by_spark(conditions[middle:])

    def rows(self) -> DataFrame:
        return self.spark.read.parquet(str(self.judged.parquet))

    @staticmethod
    def differ(ours: Found | None, theirs: Found) -> bool:
        if isinstance(ours, str):
            return ours.startswith(CRASH) or not isinstance(theirs, str)
        return ours is not None and ours != theirs

    def smallest(self, condition: Condition, whole_way: bool) -> Condition:
        """The smallest part of a condition about which the two differ."""
        for part in condition.parts:
            if self.differ(self.by_neve(part, whole_way), self.by_spark([part])[0]):
                return self.smallest(part, whole_way)
        return condition

    def describe(self, condition: Condition, whole_way: bool) -> str:
        """The text, the settings, and the rows that only one of the two finds."""
        ours, theirs = self.by_neve(condition, whole_way), self.by_spark([condition])[0]
        lines = [condition.sql, f"  {self.settings}", f"  {'as a statement' if whole_way else 'in memory'}"]
        if isinstance(ours, str) or isinstance(theirs, str):
            found = [f if isinstance(f, str) else f"{len(f or ())} rows" for f in (ours, theirs)]
            return "\n".join([*lines, f"  Arrow: {found[0]}", f"  Spark: {found[1]}"])
        names = [c for c in self.judged.columns if c.name in condition.sql.lower()]
        for who, extra in (("Arrow", (ours or frozenset()) - theirs), ("Spark", theirs - (ours or frozenset()))):
            values = {str({c.name: self.judged.rows[i][c.name] for c in names}) for i in extra}
            lines += [f"  only {who}: {len(extra)} rows, such as {', '.join(sorted(values)[:5])}"] if extra else []
        return "\n".join(lines)

    def count(self, conditions: Sequence[Condition], ours: dict[Condition, Found]) -> None:
        self.counts["conditions"] += len(conditions)
        self.counts["judged by Arrow"] += sum(not isinstance(found, str) for found in ours.values())
        self.counts["refused"] += sum(isinstance(found, str) for found in ours.values())
        self.counts["with some rows"] += sum(not isinstance(found, str) and len(found) > 0 for found in ours.values())
        for condition, found in ours.items():
            self.counts.update(() if isinstance(found, str) else condition.uses)


def test_arrow_finds_the_rows_that_spark_finds(
    spark: SparkSession, tmp_path: Path, record_property: pytest.RecordProperty
):
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    lake = neve.connect(tmp_path / "lake", spark=spark)
    tables: list[JudgedTable] = []
    for number in range(ROUNDS):
        if number % ROUNDS_PER_TABLE == 0:
            tables = [
                JudgedTable.create(lake, n, f"{SEED} {number} {n}", tmp_path / f"{number}_{n}.parquet")
                for n in range(len(VERSIONS))
            ]
        chance = Random(f"{SEED} {number}")
        settings = {
            "spark.sql.session.timeZone": chance.choice(ZONES),
            "spark.sql.ansi.enabled": chance.choice(("true", "false")),
            "spark.sql.caseSensitive": chance.choice(("false", "false", "true")),
            "spark.sql.timestampType": chance.choice(("TIMESTAMP_LTZ", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")),
            "spark.sql.parser.escapedStringLiterals": chance.choice(("false", "false", "false", "true")),
            "spark.sql.ansi.doubleQuotedIdentifiers": chance.choice(("false", "false", "false", "true")),
            **INTERPRETED,  # many conditions in one plan take long to compile
        }
        with temporary_options(spark, settings):
            trial = Trial(tables[number % len(tables)], spark, settings, chance, counts)
            is_case_sensitive = settings["spark.sql.caseSensitive"] == "true"
            maker = ConditionMaker(trial.judged.columns, chance, other_case=0.003 if is_case_sensitive else 0.1)
            wrong += trial.differences(list(dict.fromkeys(maker.conditions(PER_ROUND))))
    types = {c.type_name for c in COLUMNS}
    summary = ", ".join(
        f"{counts[name]} {name}"
        for name in ("conditions", "judged by Arrow", "found as by a statement", "with some rows")
    )
    record_property("conditions", summary)
    print(f"\n{summary}, {len(wrong)} differ")  # noqa: T201 - for `pytest -s`
    assert not wrong, "\n".join([*wrong[:40], f"{len(wrong)} differ of {summary}"])
    assert counts["judged by Arrow"] > counts["conditions"] / 2, "the conditions are of the kind that Arrow judges"
    assert counts["with some rows"] > counts["judged by Arrow"] / 3
    assert not [name for name in (*types, *OPERATORS) if not counts[name]], "every type and every operator is tried"
