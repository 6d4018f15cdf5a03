"""Where cases are played: one lake, a table of each history made once, another writer, a catalog that may forget.

A case's table starts as another name for the metadata of its history's table: Iceberg never changes what is written,
so nothing has to be copied, and whatever a case removed or damaged would be missed by the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from neve import Table
from tests.support.case_histories import Builder, Step
from tests.support.dml_cases import Case, Run, histories
from tests.support.reference_engine import Finished
from tests.support.spark_oracle import Oracle
from tests.support.text_rows import Rows
from tests.support.two_writers import TwoWriters

TABLE = "db.t"
SOURCE = "db.source"


@dataclass(frozen=True)
class Template:
    """A history that was played once: where its metadata is and which rows it left."""

    location: str
    rows: Rows


@dataclass
class Stage(TwoWriters):
    """One lake for many cases."""

    templates: dict[tuple[str, int], Template] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.finished = Finished()
        rows = self.folder / "rows"
        rows.mkdir()
        self.oracle = Oracle(self.spark, rows)

    # --- tables ---

    def template(self, history: str | list[Step], version: int) -> Template:
        """The table of a history, made when it is first asked for."""
        key = history if isinstance(history, str) else json.dumps(history, default=str), version
        if key not in self.templates:
            builder = Builder(self.theirs, self.oracle, f"db.h{len(self.templates)}", version)
            for step in flat(history):
                builder.take(step)
            self.templates[key] = Template(builder.table.iceberg.metadata_location, builder.rows)
        return self.templates[key]

    def opened(self, case: Case, run: Run) -> tuple[Table, Rows]:
        """The table of a case before its statement, and its rows."""
        template = self.template(case.history, run.version)
        self._forget(TABLE)
        table = self.theirs.register_table(TABLE, template.location)
        modes = {f"write.{command}.mode": run.mode_name for command in ("delete", "update", "merge")}
        return table.set_properties(**modes, **_settings(case), **case.properties), template.rows

    def sourced(self, case: Case) -> Rows | None:
        """The source rows of a case, known to Spark and where it is named to the lake."""
        if case.source is None:
            return None
        rows = Rows.of_text(case.source)
        self.oracle.show("source", rows)
        if SOURCE in " ".join(case.statements):
            self._forget(SOURCE)
            self.theirs.create_table(SOURCE, rows.ddl).append(rows.arrow())
        return rows

    def _forget(self, name: str) -> None:
        if name in self.theirs.tables("db"):
            self.theirs.drop_table(name)

    # --- what happens around a statement ---

    def interrupted(self, case: Case, rows: Rows) -> Builder:
        """Have another writer commit between plan and commit; the rows it appends show in the builder."""
        other = Builder(self.theirs, self.oracle, TABLE, 0, rows)

        def act() -> None:
            for step in case.steps_meanwhile:
                other.take(step)

        self.interrupt(*([act] if case.steps_meanwhile else []))
        return other

    @contextmanager
    def forgetting(self, case: Case) -> Iterator[None]:
        """Have the catalog lose the answer to the swap of a statement."""
        self.catalog.forgets = case.unknown
        try:
            yield
        finally:
            self.catalog.forgets, self.catalog.lost = None, False


def flat(history: str | list[Step | str]) -> Iterator[Step]:
    """The steps of a history; a name among them stands for the steps of that history."""
    for step in histories()[history] if isinstance(history, str) else history:
        yield from flat(step) if isinstance(step, str) else [step]


def _settings(case: Case) -> dict[str, str]:
    settings = {}
    if case.isolation:
        settings |= {f"write.{command}.isolation-level": case.isolation for command in ("delete", "update", "merge")}
    if case.outcome == "conflict":
        settings["neve.commit.reruns"] = "0"
    return settings
