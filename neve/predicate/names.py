"""Names of columns, as SQL spells them and as a table finds them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from neve.errors import UserError

__all__ = ["find_column", "parted", "quoted", "spelled"]

_PART = re.compile(r"`(?:[^`]|``)+`(?=\.|$)|[^.]+")


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def spelled(parts: Iterable[str]) -> str:
    """A name of several parts, each in backticks where it would be read otherwise.

    >>> spelled(["place", "zip.code"])
    'place.`zip.code`'
    """
    return ".".join(part if part.isidentifier() else quoted(part) for part in parts)


def parted(name: str) -> tuple[str, ...]:
    """The parts of a name, without the backticks around them.

    >>> parted("place.`zip.code`")
    ('place', 'zip.code')
    """
    return tuple(part[1:-1].replace("``", "`") if part[0] == "`" else part for part in _PART.findall(name)) or (name,)


def find_column(schema: Schema, name: str, case_sensitive: bool) -> NestedField | None:
    """A column or field by its full name, in its own case first; nothing when there is none."""
    for exactly in (True,) if case_sensitive else (True, False):
        try:
            found = schema.find_field(name, case_sensitive=exactly)
        except ValueError:
            continue
        alike = [] if exactly else [n for n in schema.column_names if n.lower() == name.lower()]
        if len(alike) > 1:
            raise UserError(f"Column {name!r} is ambiguous: the table has {' and '.join(map(repr, alike))}.")
        return found
    return None
