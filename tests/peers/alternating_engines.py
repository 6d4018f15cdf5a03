"""Random lives in which Névé and Spark with Iceberg take turns.

After every step the engine that did not take it reads the rows a plain model has. Spark takes any step it has words
for, unless one of its faults that are listed is in the way. On version 4 Névé is alone, and everybody reads its export.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote_plus

import pytest
from pyiceberg.transforms import IdentityTransform

from neve import UserError
from tests.peers.engine_comparison import Played
from tests.peers.known_bugs import FOLDER, LONG_TEXT, NULL_UNDER_COALESCE, OLD_DATES, STARTS, WRITES_NULL, ZEROS, Fault
from tests.peers.spark import SparkSaid
from tests.peers.steps_as_sql import MODE, can_say, created, spoken
from tests.support.random_histories import Life
from tests.support.random_steps import Append, Delete, Shape, Step, Upgrade
from tests.support.row_model import LAST_UPDATED, ROW_ID, Ambiguous, Model

ALONE = 2  # steps at the end of a life that Névé takes alone, when the table was upgraded to version 4
ZERO = r"\b0\.0D|'-?0\.0'"  # of a type that has two
REFUSED = "several rows of the source|MERGE_CARDINALITY_VIOLATION"


@dataclass
class Shared:
    """A table that two engines write to, and its model."""

    played: Played
    model: Model
    chance: random.Random

    def live(self, life: Life) -> None:
        """Take all steps, and compare at the end; whatever goes wrong is told with what came before it."""
        try:
            self._take_all(life)
            self.check_end()
        except AssertionError:
            raise
        except Exception as e:
            raise AssertionError(f"{self.played.past}{type(e).__name__}: {e}") from e

    def _take_all(self, life: Life) -> None:
        """Make the table, and take each step."""
        shape, name, life = life.start, self.played.name, with_version_4_late(life)
        if shape.version < 4 and self._draws_spark():
            self.played.ground.spark.sql(created(shape, name))
        else:
            self.played.ground.lake.create_table(name, shape.ddl, shape.terms, format_version=shape.version)
        for step in life.steps:
            self.take(step, shape)
            shape = step.after(shape)

    def take(self, step: Step, shape: Shape) -> None:
        """One step by one engine, seen by the other."""
        folders = self._folders()
        is_refused = self._foreseen(step)
        engine = self._turn(step, shape, folders | self._folders())
        self.played.said.append(f"{engine}: {step}")
        if is_refused:
            with pytest.raises((UserError, SparkSaid), match=REFUSED):
                self._taken(step, engine)
            return
        head = self._head()
        self._taken(step, engine)
        self.played.took(engine)
        other = "neve" if engine == "spark" or self._is_ours_alone else "spark"
        self.played.check(self.played.rows_by(other), self._lineage(head))

    def _foreseen(self, step: Step) -> bool:
        """Do a step to the model; whether it has to be refused."""
        self.model.settled()
        try:
            step.foresee(self.model)
        except Ambiguous:
            return True
        return False

    # --- whose turn it is ---

    def _draws_spark(self) -> bool:
        """Of steps that both can take Spark has more: it cannot take every one."""
        return self.chance.random() < 0.6

    def _turn(self, step: Step, shape: Shape, folders: set[str]) -> str:
        """Either engine, unless Spark has no words for a step, or a fault that is listed."""
        can = self._draws_spark() and shape.version < 4 and can_say(step, shape)
        return "spark" if can and not self.played.is_left_out(self._in_the_way(step, folders)) else "neve"

    def _in_the_way(self, step: Step, folders: set[str]) -> Iterator[Fault]:
        """The faults for which Spark cannot take a step."""
        table, changes_rows = self.played.table.context.iceberg, type(step) in MODE
        if not changes_rows and not isinstance(step, Append):
            return
        if max(map(len, folders), default=0) > FOLDER:
            yield LONG_TEXT
        if WRITES_NULL.concerns(table):  # after which the table is not sound
            yield WRITES_NULL
        if changes_rows and OLD_DATES.concerns(table):
            yield OLD_DATES
        said = " ".join(spoken(step, ""))
        if changes_rows and ZEROS.concerns(table) and re.search(ZERO, said):
            yield ZEROS
        if changes_rows and STARTS.concerns(table) and " LIKE " in said:
            yield STARTS
        if isinstance(step, Delete) and re.search(r"\bNULL\b(?<!IS NULL)(?<!IS NOT NULL)", said):
            yield NULL_UNDER_COALESCE

    def _folders(self) -> set[str]:
        """The folders Iceberg puts the rows into, under any spec the table has had; only texts have long names."""
        table = self.played.table.context.iceberg
        fields = [f for s in table.specs().values() for f in s.fields if isinstance(f.transform, IdentityTransform)]
        columns = [(f.name, table.schema().find_column_name(f.source_id)) for f in fields]
        found = {(name, line.values.get(column)) for name, column in columns for line in self.model.lines}
        return {f"{quote_plus(name)}={quote_plus(text)}" for name, text in found if isinstance(text, str)}

    # --- what happens ---

    def _taken(self, step: Step, engine: str) -> None:
        if engine == "neve":
            step.take(self.played.table)
            return
        for text in spoken(step, self.played.name):
            self.played.ground.spark.sql(text)

    @property
    def _is_ours_alone(self) -> bool:
        return int(self.played.table.context.metadata.format_version) == 4

    def _head(self) -> Any:
        return self.played.table.context.head()

    def _lineage(self, before: Any) -> list[str]:
        """How rows lost their ids, or have numbers that are not those of their last change."""
        table, now = self.played.table, self._head()
        if table.context.metadata.format_version < 3 or now is None:
            return []
        commit = None if before is not None and before.snapshot_id == now.snapshot_id else now.sequence_number
        rows = table.scan(columns=[*self.model.names, ROW_ID, LAST_UPDATED]).to_arrow(engine="arrow")
        wrong = self.model.bind(rows.to_pylist(), commit)
        return [wrong] if wrong else []

    def check_end(self) -> None:
        """Everybody sees the same table, or its export."""
        played = self.played
        if self._is_ours_alone:
            played.check(played.audit())
            played = played.exported()
        played.check(
            played.rows_by("neve", "spark"),
            played.rows_by_readers(),
            played.structure(),
            played.lineage_by_spark(),
            played.audit(),
        )


def with_version_4_late(life: Life) -> Life:
    """The life with its upgrade to version 4 near the end: nobody else writes after it. Version 3 takes all steps."""
    last = next((at for at, step in enumerate(life.steps) if step == Upgrade(4)), None)
    if last is None:
        return life
    before, after = life.steps[:last], life.steps[last + 1 :]
    version = max([life.start.version, *(step.version for step in before if isinstance(step, Upgrade))])
    shared = (*before, *([Upgrade(3)] if version < 3 else []), *after[:-ALONE])
    return replace(life, steps=(*shared, Upgrade(4), *after[-ALONE:]))
