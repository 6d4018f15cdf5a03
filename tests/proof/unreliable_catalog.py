"""A catalog with unreliable responses: lost, late, duplicated or stale."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from neve.catalog.base import NeveCatalog
from neve.catalog.sql import EmbeddedCatalog
from neve.catalog.swap import CatalogUnavailable, MaybeSwapped, NotSwapped, SwapStatus


class Unreliable(EmbeddedCatalog):
    """A catalog that follows a script with one word per swap. After the script it works normally.

    lost     the swap lands, and the response is lost
    never    the swap does not land, and there is no response
    late     the swap lands at the second status check
    after    the swap lands after the writer has given up (`deliver`)
    twice    the request arrives twice; the response is that to the second
    down     the catalog is unavailable

    After a word with a number (`lost2`), that many reads return the table as it was before the swap.
    """

    def __init__(self, folder: Path, script: tuple[str, ...] = ()) -> None:
        super().__init__(folder)
        self.script = list(script)
        self.pending: Callable[[], Any] | None = None
        self.looks = 0
        self.stale: list[Any] = []

    def swap(self, table: Any, requirements: Any, updates: Any) -> Any:
        word = self.script.pop(0) if self.script else "fine"
        word, stale = word.rstrip("0123456789"), int(word.lstrip("abcdefghijklmnopqrstuvwxyz") or 0)
        as_it_was = super().load_table(table.name()) if stale else None
        land = super().swap
        try:
            return self._follow_script(word, table, requirements, updates, lambda: land(table, requirements, updates))
        finally:
            self.stale = [as_it_was] * stale

    def _follow_script(self, word: str, table: Any, requirements: Any, updates: Any, land: Callable[[], Any]) -> Any:
        match word:
            case "fine":
                return land()
            case "lost":
                raise self._no_answer(table, updates, land().metadata_location)
            case "twice":
                land()
                return land()  # the same request again: its requirements do not hold any more
            case "down":
                raise CatalogUnavailable("The catalog is down. Nothing landed.")
            case "late" | "after":
                self.pending, self.looks = land, 0 if word == "late" else -1000
        raise self._no_answer(table, updates, None)

    def _no_answer(self, table: Any, updates: Any, location: str | None) -> MaybeSwapped:
        return MaybeSwapped("No answer.", table.name(), table.metadata, table.metadata_location, location, updates)

    def load_table(self, identifier: Any) -> Any:
        return self.stale.pop() if self.stale else super().load_table(identifier)

    def refresh_table(self, table: Any) -> Any:
        return self.load_table(table.name())

    def swap_status(self, unknown: MaybeSwapped) -> SwapStatus:
        """Answer like a catalog that may still be processing the request."""
        self.looks += 1
        if self.looks == 2:
            self.deliver()
        return NeveCatalog.swap_status(self, unknown)

    def deliver(self) -> None:
        """Process a delayed request."""
        land, self.pending = self.pending, None
        if land is not None:
            with suppress(NotSwapped):  # it may be too late: the table has changed
                land()
