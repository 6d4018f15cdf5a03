"""The result of an audit: findings and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from neve.display.format import plural
from neve.display.html import SummaryMixin
from neve.errors import LimitExceeded, MissingFile, NeveError, UnsupportedFeature
from neve.tree.entries import EntryTable

Severity = Literal["error", "note"]

_MAX_FINDINGS_SHOWN = 20
_MAX_LINE_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Finding:
    """One violated rule: the kind of rule, the file that violates it, and how.

    An error can make a reader fail or return wrong rows. A note is worth knowing, but every reader copes with it.
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
    """The result of `verify`: findings, and counts of what was checked. Each file counts once, also if listed often."""

    findings: tuple[Finding, ...]
    snapshots: int = 0
    manifests: int = 0
    data_files: int = 0
    delete_files: int = 0  # position and equality delete files
    vectors: int = 0
    rows: int = 0  # in data files, deleted ones included
    bytes: int = 0  # of all files that were checked

    @property
    def is_sound(self) -> bool:
        """True if there is no error; notes are allowed."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(f for f in self.findings if f.severity == "error")

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values, for JSON."""
        return {"is_sound": self.is_sound, **asdict(self)}

    def __str__(self) -> str:
        notes = [f for f in self.findings if f.severity == "note"]
        verdict = "Sound" if self.is_sound else f"Not sound ({plural(len(self.errors), 'error')})"
        names = ("snapshot", "manifest", "data file", "delete file", "vector", "row", "byte")
        numbers = (self.snapshots, self.manifests, self.data_files, self.delete_files, self.vectors, self.rows)
        counts = ", ".join(plural(n, name) for n, name in zip((*numbers, self.bytes), names, strict=True))
        first_line = f"{verdict}: {counts}" + (f"; {plural(len(notes), 'note')}" if notes else "")
        lines = [str(f) for f in (*self.errors, *notes)]
        if len(lines) > _MAX_FINDINGS_SHOWN:
            lines[_MAX_FINDINGS_SHOWN:] = [f"… and {len(lines) - _MAX_FINDINGS_SHOWN:,} more"]
        return "\n".join([first_line, *lines])


def error_finding(path: str, error: Exception) -> Finding:
    """Turn an error from reading a file into a finding."""
    match error:
        case MissingFile():
            return Finding("missing-file", path, str(error))
        case UnsupportedFeature() | LimitExceeded():
            return Finding("unsupported-file", path, str(error), "note")
        case NeveError():
            return Finding("unreadable-file", path, str(error))
        case _:
            return Finding("unreadable-file", path, f"Cannot read {path}: {type(error).__name__}: {error}")


def findings_for_rows(
    kind: str, entries: EntryTable, mask: NDArray[np.bool_], message: str | Callable[[int], str]
) -> Iterator[Finding]:
    """Return an error for each entry that the mask selects; a message that is a function gets the row."""
    for row in np.flatnonzero(mask):
        text = message if isinstance(message, str) else message(int(row))
        yield Finding(kind, entries["file_path"][int(row)].as_py() or "", text)
