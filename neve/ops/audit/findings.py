"""What an audit finds, as values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from neve.display.format import plural
from neve.display.html import SummaryMixin
from neve.errors import CorruptFile, LimitExceeded, MissingFile, NeveError, UnsupportedFeature
from neve.tree.entries import EntryTable

Severity = Literal["error", "note"]

_MAX_FINDINGS_SHOWN = 20
_MAX_LINE_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Finding:
    """One promise that is not kept: what kind of promise, by which file, and how.

    An error can make a reader fail or answer wrongly. A note is worth knowing, but every reader copes.
    """

    kind: str
    path: str
    message: str
    severity: Severity = "error"

    def __str__(self) -> str:
        line = f"{self.severity}: {self.kind}: {self.message} ({self.path})"
        return "".join(c if c.isprintable() else "\ufffd" for c in line[:_MAX_LINE_LENGTH])


@dataclass(frozen=True, slots=True)
class Audit(SummaryMixin):
    """The result of `verify`: findings, and how much was looked at. Each file counts once, however many list it."""

    findings: tuple[Finding, ...]
    snapshots: int = 0
    manifests: int = 0
    data_files: int = 0
    delete_files: int = 0  # position and equality delete files
    vectors: int = 0
    rows: int = 0  # in data files, deleted ones included
    bytes: int = 0  # of all files that were looked at

    @property
    def is_sound(self) -> bool:
        """Whether there is no error; notes are allowed."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(f for f in self.findings if f.severity == "error")

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {"is_sound": self.is_sound, **asdict(self)}

    def __str__(self) -> str:
        notes = len(self.findings) - len(self.errors)
        verdict = "Sound" if self.is_sound else f"Not sound ({plural(len(self.errors), 'error')})"
        shown = [str(f) for f in (*self.errors, *(f for f in self.findings if f.severity == "note"))]
        rest = [f"… and {len(shown) - _MAX_FINDINGS_SHOWN:,} more"] if len(shown) > _MAX_FINDINGS_SHOWN else []
        aside = f"; {plural(notes, 'note')}" if notes else ""
        return "\n".join([f"{verdict}: {self._extent()}{aside}", *shown[:_MAX_FINDINGS_SHOWN], *rest])

    def _extent(self) -> str:
        names = ("snapshot", "manifest", "data file", "delete file", "vector", "row", "byte")
        numbers = (self.snapshots, self.manifests, self.data_files, self.delete_files, self.vectors, self.rows)
        return ", ".join(plural(n, name) for n, name in zip((*numbers, self.bytes), names, strict=True))


def error_finding(path: str, error: Exception) -> Finding:
    """An error met while looking at a file, as a finding."""
    match error:
        case MissingFile():
            return Finding("missing-file", path, str(error))
        case UnsupportedFeature() | LimitExceeded():
            return Finding("unsupported-file", path, str(error), "note")
        case CorruptFile() | NeveError():
            return Finding("unreadable-file", path, str(error))
        case _:
            return Finding("unreadable-file", path, f"Cannot read {path}: {type(error).__name__}: {error}")


def findings_for_rows(
    kind: str,
    entries: EntryTable,
    mask: NDArray[np.bool_],
    message: Callable[[int], str],
    severity: Severity = "error",
) -> Iterator[Finding]:
    """A finding for each entry the mask selects; the message gets the row."""
    for row in np.flatnonzero(mask):
        yield Finding(kind, entries["file_path"][int(row)].as_py() or "", message(int(row)), severity)
