"""Random lives in which Névé and Spark with Iceberg take turns.

After every step the engine that did not take it reads the rows a plain model has. In a life of version 4 Névé is alone,
and everybody reads its export.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from neve import UserError
from tests.dml.lives import Life
from tests.dml.model import LAST_UPDATED, ROW_ID, Ambiguous, Model
from tests.dml.steps import Step
from tests.peers.judge import Played
from tests.peers.spark import SparkSaid
from tests.peers.spoken import can_say, created, has_long_text, spoken

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
        """Each step by an engine that has words for it."""
        shape, name, fits = life.start, self.played.name, not has_long_text(life)
        if self._turn(fits and shape.version < 4) == "spark":
            self.played.ground.spark.sql(created(shape, name))
        else:
            self.played.ground.lake.create_table(name, shape.ddl, shape.terms, format_version=shape.version)
        for step in life.steps:
            self.take(step, self._turn(fits and shape.version < 4 and can_say(step, shape)))
            shape = step.after(shape)

    def _turn(self, spark_can: bool) -> str:
        return self.chance.choice(["neve", "spark"] if spark_can else ["neve"])

    def take(self, step: Step, engine: str) -> None:
        """One step by an engine, seen by the other."""
        self.played.said.append(f"{engine}: {step}")
        self.model.settled()
        try:
            step.foresee(self.model)
        except Ambiguous:
            with pytest.raises((UserError, SparkSaid), match=REFUSED):
                self._taken(step, engine)
            return
        head = self._head()
        self._taken(step, engine)
        other = "neve" if engine == "spark" or self._is_ours_alone else "spark"
        self.played.check(self.played.rows_by(other), self._lineage(head))

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
