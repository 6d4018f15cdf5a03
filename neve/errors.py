"""Everything Névé raises on purpose.

NeveError
├── UserError            wrong input; nothing was done
│   ├── UnknownName          a column, table, spec, branch, property … that does not exist; names the nearest ones
│   └── UnsupportedFeature   a feature this engine, or this format version, does not have
├── TableError           a table cannot be read as it is written, or a catalog cannot be reached
│   ├── CorruptFile          path, what was expected, what was found
│   ├── MissingFile          a file the metadata names is not there
│   └── LimitExceeded        which budget, its value, how to raise it
├── WriteFailed          the job that writes files failed; nothing refers to what it wrote
└── CommitError
    ├── CommitConflict       another writer got in the way; nothing landed
    └── CommitUnknown        the commit may have landed; every file is kept

Messages read: what failed, the values, then what to do. They carry no row data and no credentials. Paths and names in
them come from storage: control characters are spelled out, what is endless is cut, and secrets in URIs are left out.
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

    def __init__(self, *said: object) -> None:
        super().__init__(*(_sanitize_message(each) if isinstance(each, str) else each for each in said))


class UserError(NeveError, ValueError):
    """The input is wrong; nothing was done."""

    words = ""
    """The words it is about, where they are known; whoever has the whole text can point at them."""


class UnknownName(UserError):
    """A name that does not exist, with the nearest names that do.

    >>> raise UnknownName("column", "regoin", ["region", "id"], "table db.sales")
    Traceback (most recent call last):
    neve.errors.UnknownName: Unknown column 'regoin' in table db.sales. Did you mean 'region'?
    """

    def __init__(self, kind: str, name: object, known: Iterable[object], where: str = "") -> None:
        names = [str(k) for k in known]
        near = get_close_matches(str(name), names, n=3, cutoff=0.6)
        place = f" in {where}" if where else ""
        super().__init__(f"Unknown {kind} {name!r}{place}. {_suggestion(near, names)}")
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
    """A file the table's metadata names is not there."""

    def __init__(self, path: str, named_by: str = "the table metadata") -> None:
        super().__init__(f"Missing file {_single_line(path)}: {named_by} names it, but it is not there.")
        self.path = path


class LimitExceeded(TableError):
    """A budget that protects memory or time was exceeded; the message says how to raise it."""

    def __init__(self, what: str, limit: int | float, hint: str) -> None:
        super().__init__(f"Limit exceeded: {_single_line(what)} is over {limit}. {hint}")
        self.what, self.limit = what, limit


class WriteFailed(NeveError):
    """The job that writes files failed. Nothing refers to its files; `leftover` names those still there."""

    def __init__(self, message: str, leftover: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.leftover = tuple(leftover)


class CommitError(NeveError):
    """A commit did not succeed."""


class CommitConflict(CommitError):
    """Another writer got in the way. Nothing landed, and what was written for this commit is gone."""

    def __init__(self, message: str, conflicts: Iterable[object] = ()) -> None:
        super().__init__(message)
        self.conflicts = tuple(conflicts)


class CommitUnknown(CommitError):
    """The commit may have landed. Every file is kept; look at the table before trying again."""

    def __init__(self, message: str, location: str = "") -> None:
        super().__init__(message)
        self.location = location


def _sanitize_message(text: str) -> str:
    """A message without what would act on a terminal, and without the secrets a URI may carry."""
    safe = _URI_PASSWORD.sub("://…@", _QUERY_SECRET.sub(r"\1=…", _shorten_middle(text, _MAX_LENGTH)))
    return (
        safe
        if safe.isprintable()
        else "".join(c if c.isprintable() or c in "\n\t" else _escape_character(c) for c in safe)
    )


def _escape_character(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def _shorten_middle(text: str, limit: int = 600) -> str:
    """A text whose middle is left out when it is longer than anybody reads."""
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-limit // 2 :]}"


def _single_line(text: str) -> str:
    """A text on one line: what a file says cannot look like another message."""
    return _shorten_middle(text.replace("\n", "\\n"))


def _suggestion(near: list[str], known: list[str]) -> str:
    if near:
        return f"Did you mean {' or '.join(repr(n) for n in near)}?"
    if not known:
        return "There are none."
    shown = ", ".join(repr(k) for k in known[:8])
    return f"Known: {shown}{', …' if len(known) > 8 else ''}."
