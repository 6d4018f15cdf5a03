"""Histories of tables as statements for all engines, read from `histories.toml`, with generated rows."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.peers.known_bugs import Fault, fault_by_reason
from tests.support.coverage import IS_FULL

MODES = {"cow": "copy-on-write", "mor": "merge-on-read"}
ENGINES = ("spark", "neve")

_ROWS = re.compile(r"\{(\d+)\.\.(\d+)\}")
_COLUMNS = re.compile(r"INSERT INTO \S+ \(([^)]*)\)")
_REGIONS = ("'eu'", "'us'", "'asia'", "NULL", "'eu'", "'us'")
_ODD = ("''", "NULL", "'a b'", "'é🙂'", "'x=y/z%20?#'", "'null'", "'..'")
_DOUBLES = ("0.5", "CAST('NaN' AS double)", "NULL", "CAST('-0.0' AS double)", "0.0", "CAST('Infinity' AS double)")

VALUES: dict[str, Callable[[int], str]] = {
    "id": str,
    "region": lambda i: _REGIONS[i % len(_REGIONS)],
    "ts": lambda i: f"TIMESTAMP '2024-{1 + i % 2:02}-{1 + i % 9:02} {i % 24:02}:30:00'" if i % 11 else "NULL",
    "amount": lambda i: f"{i}.5" if i % 7 else "NULL",
    "n": lambda i: str(i % 6 - 2),
    "f": lambda i: f"CAST('{i % 8}.25' AS float)",
    "price": lambda i: f"CAST('{i * 3.75:.2f}' AS decimal(9, 2))",
    "note": lambda i: f"'note {i}'",
    "day": lambda i: f"DATE '2024-01-{1 + i % 6:02}'" if i % 5 else "NULL",
    "yes": lambda i: ("true", "false", "NULL")[i % 3],
    "odd": lambda i: _ODD[i % len(_ODD)],
    "x": lambda i: _DOUBLES[i % len(_DOUBLES)],
}
VALUES |= {"land": VALUES["region"], "total": VALUES["amount"]}


@dataclass(frozen=True)
class History:
    """The statements on a table: its past, then its present."""

    name: str
    past: tuple[str, ...]
    present: tuple[str, ...]
    versions: tuple[int, ...] = (1, 2, 3)
    not_by_spark: Mapping[str, str] = field(
        default_factory=dict
    )  # a mode in which it rejects the present: the known bug


@dataclass(frozen=True)
class Scenario:
    """A history on a format version in a write mode; one engine runs its past and another its present."""

    history: History
    version: int
    mode: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.history.name}-v{self.version}-{self.mode}-{self.first}_then_{self.second}"

    @property
    def fault(self) -> Fault | None:
        """The known bug for which Spark with Iceberg rejects the present, if any."""
        reason = self.history.not_by_spark.get(self.mode) if self.second == "spark" else None
        return None if reason is None else fault_by_reason(reason)

    def past(self, table: str) -> Iterator[tuple[str, str]]:
        """Yield the engine and statement pairs of the past."""
        return ((self.first, self._fill_template(text, table)) for text in self.history.past)

    def present(self, table: str) -> Iterator[tuple[str, str]]:
        """Yield the engine and statement pairs of the present."""
        return ((self.second, self._fill_template(text, table)) for text in self.history.present)

    def _fill_template(self, text: str, table: str) -> str:
        named = _COLUMNS.match(text)
        columns = [name.strip() for name in named[1].split(",")] if named else []
        text = _ROWS.sub(lambda ends: _rows(columns, int(ends[1]), int(ends[2])), text)
        text = text.replace("{t}", table).replace("{next}", str(self.version + 1))
        return text.replace("{properties}", ", ".join(f"'{k}' = '{v}'" for k, v in self._properties.items()))

    @property
    def _properties(self) -> dict[str, str]:
        modes = {f"write.{command}.mode": MODES[self.mode] for command in ("delete", "update", "merge")}
        return {"format-version": str(self.version), **modes}


def _rows(columns: list[str], first: int, last: int) -> str:
    rows = ([VALUES[name](i) for name in columns] for i in range(first, last + 1))
    return ", ".join(f"({', '.join(row)})" for row in rows)


@cache
def histories() -> dict[str, History]:
    """Return all histories by name."""
    found: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return {name: _history(name, **parts) for name, parts in found.items()}


def _history(name: str, **parts: Any) -> History:
    return History(name, **{part: tuple(found) if isinstance(found, list) else found for part, found in parts.items()})


def scenarios() -> list[Scenario]:
    """Return every history on its versions, in both modes and both directions; version 1 has one mode."""
    return [
        Scenario(history, version, mode, *engines)
        for history in histories().values()
        for version in history.versions
        for mode in (("cow",) if version == 1 else MODES)
        for engines in (ENGINES, ENGINES[::-1])
    ]


def export_scenarios() -> list[Scenario]:
    """Return every history that applies to version 4, in both modes, run by Névé alone."""
    return [
        Scenario(history, 4, mode, "neve", "neve")
        for history in histories().values()
        if 3 in history.versions
        for mode in MODES
    ]


QUICK = (
    "one_field_more-v1-cow-neve_then_spark",
    "deletes_piled_up-v2-mor-neve_then_spark",
    "columns_renamed-v3-mor-spark_then_neve",
    "field_replaced-v4-mor-neve_then_neve",
)


def _selected(some: list[Scenario]) -> list[Scenario]:
    return [s for s in some if IS_FULL or str(s) in QUICK]


def selected_scenarios() -> list[Scenario]:
    """Return all scenarios, or the few of a quick run."""
    return _selected(scenarios())


def selected_exports() -> list[Scenario]:
    """Return all exports, or the few of a quick run."""
    return _selected(export_scenarios())
