"""Everything Névé raises on purpose.

NeveError
├── UserError            wrong input; nothing was done
│   ├── UnknownName          a column, table, spec, branch, property … that does not exist; names the nearest ones
│   └── UnsupportedFeature   a feature this engine, or this format version, does not have
├── TableError           a table cannot be read as it is written, or a catalog cannot be reached
│   ├── CorruptFile          path, what was expected, what was found
│   ├── MissingFile          a file that the metadata refers to does not exist
│   └── LimitExceeded        which budget, its value, how to raise it
├── WriteFailed          the job that writes files failed; nothing refers to what it wrote
└── CommitError
    ├── CommitConflict       a conflict with a concurrent writer; nothing landed
    └── CommitUnknown        the commit may have landed; every file is kept

Messages state what failed, the values, then what to do. They contain no row data and no credentials. Paths and names in
them come from storage: control characters are escaped, long text is cut, and secrets in URIs are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_MAX_LENGTH = 3_000
_URI_PASSWORD = re.compile(r"://[^/\s@:]*:[^/\s@]*@")  # user:password@
_QUERY_SECRET = re.compile(r"(?i)([?&;][\w.-]*(?:secret|token|credential|signature|sig|key)|\bpassword)=[^&;\s'\"]+")


class NeveError(Exception):
    """The base of every error Névé raises on purpose."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(_sanitize_message(arg) if isinstance(arg, str) else arg for arg in args))


class UserError(NeveError, ValueError):
    """The input is wrong; nothing was done."""

    words = ""
    """The words of the input that are wrong, if known; the SQL parser points at them in the statement."""


class UnknownName(UserError):
    """A name that does not exist, with the nearest names that do.

    >>> raise UnknownName("column", "regoin", ["region", "id"], "table db.sales")
    Traceback (most recent call last):
    neve.errors.UnknownName: Unknown column 'regoin' in table db.sales. Did you mean 'region'?
    """

    def __init__(self, kind: str, name: object, known: Iterable[object], where: str = "") -> None:
        names = [str(k) for k in known]
        container = f" in {where}" if where else ""
        if near := get_close_matches(str(name), names, n=3, cutoff=0.6):
            hint = f"Did you mean {' or '.join(map(repr, near))}?"
        elif names:
            hint = f"Known: {', '.join(map(repr, names[:8]))}{', …' if len(names) > 8 else ''}."
        else:
            hint = "There are none."
        super().__init__(f"Unknown {kind} {name!r}{container}. {hint}")
        self.kind, self.name, self.words = kind, name, str(name)


class UnsupportedFeature(UserError):
    """A feature that this engine, or this format version, does not have."""


class TableError(NeveError):
    """A table cannot be read as it is written, or its catalog cannot be opened or reached."""


class CorruptFile(TableError):
    """A file whose bytes contradict its format or the metadata that names it."""

    def __init__(self, path: str, expected: str, found: str) -> None:
        super().__init__(
            f"Corrupt file {_single_line(path)}: expected {_single_line(expected)}, found {_single_line(found)}."
        )
        self.path, self.expected, self.found = path, expected, found


class MissingFile(TableError):
    """A file that the table's metadata refers to does not exist."""

    def __init__(self, path: str, named_by: str = "the table metadata") -> None:
        super().__init__(f"Missing file {_single_line(path)}: {named_by} refers to it, but it does not exist.")
        self.path = path


class LimitExceeded(TableError):
    """A limit that protects memory or time was exceeded; the message says how to raise it."""

    def __init__(self, what: str, limit: int | float, hint: str) -> None:
        super().__init__(f"Limit exceeded: {_single_line(what)} is over {limit}. {hint}")
        self.what, self.limit = what, limit


class WriteFailed(NeveError):
    """The job that writes files failed. Nothing refers to its files; `leftover` lists those that still exist."""

    def __init__(self, message: str, leftover: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.leftover = tuple(leftover)


class CommitError(NeveError):
    """A commit did not succeed."""


class CommitConflict(CommitError):
    """A concurrent writer caused a conflict. Nothing landed, and the files written for this commit were deleted."""

    def __init__(self, message: str, conflicts: Iterable[object] = ()) -> None:
        super().__init__(message)
        self.conflicts = tuple(conflicts)


class CommitUnknown(CommitError):
    """The commit may have landed. Every file is kept; look at the table before trying again."""

    def __init__(self, message: str, location: str = "") -> None:
        super().__init__(message)
        self.location = location


def _sanitize_message(text: str) -> str:
    """Escape what would act on a terminal, and remove secrets from URIs."""
    safe = _URI_PASSWORD.sub("://…@", _QUERY_SECRET.sub(r"\1=…", _shorten_middle(text, _MAX_LENGTH)))
    if safe.isprintable():
        return safe
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in safe)


def _shorten_middle(text: str, limit: int = 600) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-limit // 2 :]}"


def _single_line(text: str) -> str:
    """Escape line breaks, so that text from a file cannot look like another message."""
    return _shorten_middle(text.replace("\n", "\\n"))
