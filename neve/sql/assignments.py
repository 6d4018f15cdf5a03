"""What follows SET: columns and the expressions they get."""

from __future__ import annotations

from dataclasses import dataclass

from neve.predicate.column_names import parted, spelled
from neve.sql.reader import Reader
from neve.sql.target import Name, called_short

__all__ = ["Assignment", "assignment", "assignments"]


@dataclass(frozen=True)
class Assignment:
    """A column, or a field of a struct, and the expression it gets."""

    column: str
    value: str

    def calling_short(self, table: Name) -> Assignment:
        """The same with the last part of the name of a table in place of the whole."""
        parts, length = parted(self.column), len(table)
        is_long = 1 < length < len(parts) and [p.lower() for p in parts[:length]] == [p.lower() for p in table]
        return Assignment(spelled(parts[length:]) if is_long else self.column, called_short(self.value, table))


def assignments(reader: Reader, *stops: str) -> tuple[Assignment, ...]:
    """Assignments with commas between them, up to one of these keywords."""
    seen: set[str] = set()

    def one() -> Assignment:
        at, found = reader.word, assignment(reader, *stops)
        if found.column.lower() in seen:
            raise reader.wrong(f"column {found.column!r} is assigned twice", at)
        seen.add(found.column.lower())
        return found

    return reader.listed(one)


def assignment(reader: Reader, *stops: str) -> Assignment:
    """`column = expression`."""
    column = spelled(reader.dotted("a column"))
    reader.expect("=")
    return Assignment(column, reader.expression(",", *stops, what="an expression"))
