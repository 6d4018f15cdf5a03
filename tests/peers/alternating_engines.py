"""Random histories in which Névé and Spark with Iceberg take turns.

After every step, the other engine must read the rows of a plain-Python model. Spark takes any step that it can express,
unless a known bug prevents it. On version 4 only Névé writes, and all engines read its export.
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
from tests.peers.engine_comparison import ComparedTable
from tests.peers.known_bugs import FOLDER, LONG_TEXT, NULL_UNDER_COALESCE, OLD_DATES, STARTS, WRITES_NULL, ZEROS, Fault
from tests.peers.spark import SparkSaid
from tests.peers.steps_as_sql import MODE, can_express, create_statement, sql_statements
from tests.support.random_histories import Life
from tests.support.random_steps import Append, Delete, Shape, Step, Upgrade
from tests.support.row_model import LAST_UPDATED, ROW_ID, Ambiguous, Model

STEPS_BY_NEVE_ALONE = 2  # steps at the end of a history that only Névé takes, after an upgrade to version 4
ZERO = r"\b0\.0D|'-?0\.0'"  # zeros of a type that has two of them
AMBIGUOUS_MERGE = "several rows of the source|MERGE_CARDINALITY_VIOLATION"


@dataclass
class SharedTable:
    """A table that two engines write to, and its model."""

    compared: ComparedTable
    model: Model
    rng: random.Random

    def run_history(self, life: Life) -> None:
        """Take all steps, and compare at the end; an error message lists the steps before it."""
        try:
            self._take_all(life)
            self.check_end()
        except AssertionError:
            raise
        except Exception as e:
            raise AssertionError(f"{self.compared.past}{type(e).__name__}: {e}") from e

    def _take_all(self, life: Life) -> None:
        """Create the table, and take each step."""
        shape, name, life = life.start, self.compared.name, with_late_upgrade_to_version_4(life)
        if shape.version < 4 and self._prefers_spark():
            self.compared.shared_lake.spark.sql(create_statement(shape, name))
        else:
            self.compared.shared_lake.lake.create_table(name, shape.ddl, shape.terms, format_version=shape.version)
        for step in life.steps:
            self.take(step, shape)
            shape = step.after(shape)

    def take(self, step: Step, shape: Shape) -> None:
        """Run one step with one engine, and check the rows with the other."""
        folders = self._folders()
        is_rejected = self._apply_to_model(step)
        engine = self._choose_engine(step, shape, folders | self._folders())
        self.compared.log.append(f"{engine}: {step}")
        if is_rejected:
            with pytest.raises((UserError, SparkSaid), match=AMBIGUOUS_MERGE):
                self._run_step(step, engine)
            return
        head = self._head()
        self._run_step(step, engine)
        self.compared.count_step(engine)
        other = "neve" if engine == "spark" or self._is_version_4 else "spark"
        self.compared.check(self.compared.rows_by(other), self._lineage(head))

    def _apply_to_model(self, step: Step) -> bool:
        """Apply a step to the model; return whether the engines must reject it."""
        self.model.settled()
        try:
            step.foresee(self.model)
        except Ambiguous:
            return True
        return False

    # --- choice of the engine ---

    def _prefers_spark(self) -> bool:
        """Return whether Spark takes the step if it can: it gets more than half, as it cannot take every step."""
        return self.rng.random() < 0.6

    def _choose_engine(self, step: Step, shape: Shape, folders: set[str]) -> str:
        """Return the engine for a step: either one, unless Spark cannot express it or has a known bug."""
        can_run = self._prefers_spark() and shape.version < 4 and can_express(step, shape)
        return "spark" if can_run and not self.compared.skips_for(self._faults_of_step(step, folders)) else "neve"

    def _faults_of_step(self, step: Step, folders: set[str]) -> Iterator[Fault]:
        """Yield the known bugs for which Spark cannot take a step."""
        table, changes_rows = self.compared.table.context.iceberg, type(step) in MODE
        if not changes_rows and not isinstance(step, Append):
            return
        if max(map(len, folders), default=0) > FOLDER:
            yield LONG_TEXT
        if WRITES_NULL.concerns(table):  # the table is not sound afterwards
            yield WRITES_NULL
        if changes_rows and OLD_DATES.concerns(table):
            yield OLD_DATES
        statements = " ".join(sql_statements(step, ""))
        if changes_rows and ZEROS.concerns(table) and re.search(ZERO, statements):
            yield ZEROS
        if changes_rows and STARTS.concerns(table) and " LIKE " in statements:
            yield STARTS
        if isinstance(step, Delete) and re.search(r"\bNULL\b(?<!IS NULL)(?<!IS NOT NULL)", statements):
            yield NULL_UNDER_COALESCE

    def _folders(self) -> set[str]:
        """Return the partition folders of the rows under all specs; only string values have long names."""
        table = self.compared.table.context.iceberg
        fields = [f for s in table.specs().values() for f in s.fields if isinstance(f.transform, IdentityTransform)]
        columns = [(f.name, table.schema().find_column_name(f.source_id)) for f in fields]
        found = {(name, line.values.get(column)) for name, column in columns for line in self.model.lines}
        return {f"{quote_plus(name)}={quote_plus(text)}" for name, text in found if isinstance(text, str)}

    # --- steps and checks ---

    def _run_step(self, step: Step, engine: str) -> None:
        if engine == "neve":
            step.take(self.compared.table)
            return
        for text in sql_statements(step, self.compared.name):
            self.compared.shared_lake.spark.sql(text)

    @property
    def _is_version_4(self) -> bool:
        return int(self.compared.table.context.metadata.format_version) == 4

    def _head(self) -> Any:
        return self.compared.table.context.head()

    def _lineage(self, before: Any) -> list[str]:
        """Return how rows lost their ids, or have sequence numbers other than those of their last change."""
        table, now = self.compared.table, self._head()
        if table.context.metadata.format_version < 3 or now is None:
            return []
        commit = None if before is not None and before.snapshot_id == now.snapshot_id else now.sequence_number
        rows = table.scan(columns=[*self.model.names, ROW_ID, LAST_UPDATED]).to_arrow(engine="arrow")
        wrong = self.model.bind(rows.to_pylist(), commit)
        return [wrong] if wrong else []

    def check_end(self) -> None:
        """Check that all engines read the same table, or its export."""
        compared = self.compared
        if self._is_version_4:
            compared.check(compared.audit())
            compared = compared.exported()
        compared.check(
            compared.rows_by("neve", "spark"),
            compared.rows_by_readers(),
            compared.structure(),
            compared.lineage_by_spark(),
            compared.audit(),
        )


def with_late_upgrade_to_version_4(life: Life) -> Life:
    """Move the upgrade to version 4 near the end: only Névé writes after it. Version 3 supports all steps."""
    last = next((at for at, step in enumerate(life.steps) if step == Upgrade(4)), None)
    if last is None:
        return life
    before, after = life.steps[:last], life.steps[last + 1 :]
    version = max([life.start.version, *(step.version for step in before if isinstance(step, Upgrade))])
    shared = (*before, *([Upgrade(3)] if version < 3 else []), *after[:-STEPS_BY_NEVE_ALONE])
    return replace(life, steps=(*shared, Upgrade(4), *after[-STEPS_BY_NEVE_ALONE:]))
