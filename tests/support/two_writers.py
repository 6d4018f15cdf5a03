"""One lake as two writers see it: the first can be interrupted, and its catalog may lose an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from sqlalchemy import create_engine
from sqlalchemy.event import listen

from neve import Lake
from neve.catalog.sql import EmbeddedCatalog
from neve.catalog.swap import MaybeSwapped, SwapStatus
from neve.commit.environment import Environment, Phase

Act = Callable[[], Any]


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
    """What others do whenever a commit comes to a phase, one after the other; None lets one pass."""

    acts: list[Act | None] = field(default_factory=list)
    phase: Phase = Phase.CHECK

    def observe(self, phase: Phase, attempt: int) -> None:
        if phase is self.phase and self.acts and (act := self.acts.pop(0)) is not None:
            act()

    @property
    def environment(self) -> Environment:
        """Where commits are interrupted, and nobody waits for a second try."""
        return Environment(observe=self.observe, sleep=lambda seconds: None)


@dataclass
class TwoWriters:
    """A lake with two catalogs over one database."""

    folder: Path
    spark: SparkSession

    def __post_init__(self) -> None:
        self.interruption = Interruption()
        self.catalog = quick(Forgetful(self.folder))
        self.mine = Lake(self.catalog, self.spark, environment=self.interruption.environment)
        self.theirs = Lake(quick(EmbeddedCatalog(self.folder)), self.spark)

    def interrupt(self, *acts: Act | None) -> None:
        """Have others act when the next commits have read the table and are about to be checked; None lets one pass.

        A commit that is overtaken so passes its checks, loses the swap, and is checked again.
        """
        self.interruption.acts = list(acts)


def quick(catalog: Any) -> Any:
    """The catalog with connections that are kept and do not wait for the disk: one process, and no power cut."""
    catalog.engine = create_engine(catalog.engine.url, connect_args={"timeout": 60})
    listen(catalog.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    return catalog
