"""Where cases are played: one lake, a table of each history made once, another writer, a catalog that may forget.

A case's table starts as another name for the metadata of its history's table: Iceberg never changes what is written,
so nothing has to be copied, and whatever a case removed or damaged would be missed by the next.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from sqlalchemy import create_engine
from sqlalchemy.event import listen

from neve import Lake, Table
from neve.catalog.sql import EmbeddedCatalog
from neve.catalog.swap import MaybeSwapped, SwapStatus
from neve.commit.environment import Environment, Phase
from tests.support.case_histories import Builder, Step
from tests.support.dml_cases import Case, Run, histories
from tests.support.reference_engine import Finished
from tests.support.spark_oracle import Oracle
from tests.support.text_rows import Rows

TABLE = "db.t"
SOURCE = "db.source"


class Forgetful(EmbeddedCatalog):
    """A catalog that may lose its answer to a swap: after it landed, or instead of it."""

    forgets: str | None = None

    def swap(self, table: Any, requirements: Any, updates: Any) -> Any:
        how, self.forgets = self.forgets, None
        if how is None:
            return super().swap(table, requirements, updates)
        self.lost = True
        location = "file:///nowhere.metadata.json"
        if how == "landed":
            location = super().swap(table, requirements, updates).metadata_location
        raise MaybeSwapped("No answer.", table.name(), table.metadata, table.metadata_location, location, updates)

    def swap_status(self, unknown: MaybeSwapped) -> SwapStatus:
        return SwapStatus.OPEN if getattr(self, "lost", False) else super().swap_status(unknown)


@dataclass
class Interruption:
    """Lets someone else act once, before the checks of the first commit that follows."""

    act: Callable[[], None] | None = None

    def observe(self, phase: Phase, attempt: int) -> None:
        if phase is Phase.CHECK and self.act is not None:
            act, self.act = self.act, None
            act()


@dataclass(frozen=True)
class Template:
    """A history that was played once: where its metadata is and which rows it left."""

    location: str
    rows: Rows


@dataclass
class Stage:
    """One lake for many cases."""

    folder: Path
    spark: SparkSession
    templates: dict[tuple[str, int], Template] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalog = _quick(Forgetful(self.folder / "lake"))
        self.interruption = Interruption()
        environment = Environment(observe=self.interruption.observe, sleep=lambda seconds: None)
        self.lake = Lake(self.catalog, self.spark, environment=environment)
        self.others = Lake(_quick(EmbeddedCatalog(self.folder / "lake")), self.spark)
        self.finished = Finished()
        (self.folder / "rows").mkdir()
        self.oracle = Oracle(self.spark, self.folder / "rows")

    # --- tables ---

    def template(self, history: str | list[Step], version: int) -> Template:
        """The table of a history, made when it is first asked for."""
        key = history if isinstance(history, str) else json.dumps(history, default=str), version
        if key not in self.templates:
            builder = Builder(self.others, self.oracle, f"db.h{len(self.templates)}", version)
            for step in flat(history):
                builder.take(step)
            self.templates[key] = Template(builder.table.iceberg.metadata_location, builder.rows)
        return self.templates[key]

    def opened(self, case: Case, run: Run) -> tuple[Table, Rows]:
        """The table of a case before its statement, and its rows."""
        template = self.template(case.history, run.version)
        self._forget(TABLE)
        table = self.others.register_table(TABLE, template.location)
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
            self.others.create_table(SOURCE, rows.ddl).append(rows.arrow())
        return rows

    def _forget(self, name: str) -> None:
        if name in self.others.tables("db"):
            self.others.drop_table(name)

    # --- what happens around a statement ---

    def interrupted(self, case: Case, rows: Rows) -> Builder:
        """Have another writer commit between plan and commit; the rows it appends show in the builder."""
        other = Builder(self.others, self.oracle, TABLE, 0, rows)

        def act() -> None:
            for step in case.steps_meanwhile:
                other.take(step)

        self.interruption.act = act if case.steps_meanwhile else None
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


def files_of(table: Table) -> set[str]:
    """Every file in the folder of a table, as the metadata names them."""
    place = table.context.metadata.location
    root = place.removeprefix("file://")
    return {f"file://{folder}/{name}" for folder, _, names in os.walk(root) for name in names}


@contextmanager
def out_of_reach(table: Table, where: str | None) -> Iterator[None]:
    """Take the data files a condition cannot rule out from storage for a while: who needs none does not notice."""
    paths = [Path(p.removeprefix("file://")) for p in table.scan(where).plan().files["file_path"].to_pylist()]
    for path in paths:
        path.rename(path.with_name(path.name + ".away"))
    try:
        yield
    finally:
        for path in paths:
            path.with_name(path.name + ".away").rename(path)


def _settings(case: Case) -> dict[str, str]:
    settings = {}
    if case.isolation:
        settings |= {f"write.{command}.isolation-level": case.isolation for command in ("delete", "update", "merge")}
    if case.outcome == "conflict":
        settings["neve.commit.reruns"] = "0"
    return settings


def _quick(catalog: Any) -> Any:
    """The catalog with connections that are kept and do not wait for the disk: one process, and no power cut."""
    catalog.engine = create_engine(catalog.engine.url, connect_args={"timeout": 60})
    listen(catalog.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    return catalog
