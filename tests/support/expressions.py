"""A small language of SQL expressions that plain Python can evaluate too.

Each expression knows its text and its value in a row. Unknown is `None`, as null is: a comparison with null is unknown,
`AND`, `OR` and `NOT` follow SQL's three-valued logic. Floats compare as Spark compares them: NaN equals NaN and is the
greatest, minus zero equals zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Protocol

from tests.support.text_rows import quoted

Row = Mapping[str, Any]

RANGE = 1000  # sums and products are taken modulo this, so that no sequence of statements overflows


class Expression(Protocol):
    """Something with a text and a value."""

    @property
    def sql(self) -> str: ...

    def of(self, row: Row) -> Any: ...


def compare(one: Any, other: Any) -> int:
    """Less than, equal to or greater than zero, as Spark orders two values that are not null."""
    if isinstance(one, float) and isinstance(other, float):
        left, right = (math.isnan(one), one), (math.isnan(other), other)
        if left[0] or right[0]:
            return left[0] - right[0]
    return (one > other) - (one < other)


@dataclass(frozen=True)
class Column:
    """A column by name; in a MERGE that of the target `t` or the source `s`."""

    name: str
    side: str = ""

    @property
    def sql(self) -> str:
        name = self.name if self.name.isidentifier() and self.name.isascii() else quoted(self.name)
        return f"{self.side}.{name}" if self.side else name

    def of(self, row: Row) -> Any:
        return row[f"{self.side}.{self.name}" if self.side else self.name]


@dataclass(frozen=True)
class Literal:
    """A value written in SQL, in the type of a column."""

    value: Any
    kind: str

    @property
    def sql(self) -> str:
        return literal_text(self.value, self.kind)

    def of(self, row: Row) -> Any:
        return self.value


def literal_text(value: Any, kind: str) -> str:
    """How SQL writes a value of a type."""
    match value:
        case None:
            text = "NULL"
        case bool():
            text = str(value).lower()
        case str():
            text = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case float():
            text = f"{value!r}D" if _is_plain(value) else f"CAST('{value!r}' AS {kind})"
        case datetime():
            word = "TIMESTAMP" if kind == "timestamp" else "TIMESTAMP_NTZ"
            text = f"{word} '{value.replace(tzinfo=None).isoformat(sep=' ')}'"
        case date():
            text = f"DATE '{value.isoformat()}'"
        case _:
            text = str(value)
    return text


def _is_plain(value: float) -> bool:
    """Whether a float is written as digits; NaN, infinities and minus zero are not."""
    return math.isfinite(value) and "e" not in repr(value) and not (value == 0 and math.copysign(1, value) < 0)


# --- conditions ---


_OPERATORS: dict[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "<>": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}
OPERATORS = tuple(_OPERATORS)


@dataclass(frozen=True)
class Comparison:
    """Two values compared; unknown when one is null."""

    operator: str
    left: Expression
    right: Expression

    @property
    def sql(self) -> str:
        return f"{self.left.sql} {self.operator} {self.right.sql}"

    def of(self, row: Row) -> bool | None:
        left, right = self.left.of(row), self.right.of(row)
        return None if left is None or right is None else _OPERATORS[self.operator](compare(left, right))


@dataclass(frozen=True)
class SameAs:
    """`<=>`: equality for which null equals null."""

    left: Expression
    right: Expression

    @property
    def sql(self) -> str:
        return f"{self.left.sql} <=> {self.right.sql}"

    def of(self, row: Row) -> bool:
        left, right = self.left.of(row), self.right.of(row)
        return left is right if left is None or right is None else compare(left, right) == 0


@dataclass(frozen=True)
class IsNull:
    """`IS NULL`, or its opposite."""

    inner: Expression
    negated: bool = False

    @property
    def sql(self) -> str:
        return f"{self.inner.sql} IS {'NOT ' if self.negated else ''}NULL"

    def of(self, row: Row) -> bool:
        return (self.inner.of(row) is None) != self.negated


@dataclass(frozen=True)
class In:
    """`IN` or `NOT IN` a list of values; a null in the list makes a miss unknown."""

    inner: Expression
    values: tuple[Literal, ...]
    negated: bool = False

    @property
    def sql(self) -> str:
        return f"{self.inner.sql} {'NOT ' if self.negated else ''}IN ({', '.join(v.sql for v in self.values)})"

    def of(self, row: Row) -> bool | None:
        value = self.inner.of(row)
        if value is None:
            return None
        if any(v.value is not None and compare(value, v.value) == 0 for v in self.values):
            return not self.negated
        return None if any(v.value is None for v in self.values) else self.negated


@dataclass(frozen=True)
class StartsWith:
    """`LIKE 'x%'` for a text without wildcards of its own."""

    inner: Expression
    start: str

    @property
    def sql(self) -> str:
        return f"{self.inner.sql} LIKE {literal_text(self.start + '%', 'string')}"

    def of(self, row: Row) -> bool | None:
        value = self.inner.of(row)
        return None if value is None else value.startswith(self.start)


@dataclass(frozen=True)
class Not:
    """The opposite; of unknown, unknown."""

    inner: Expression

    @property
    def sql(self) -> str:
        return f"NOT ({self.inner.sql})"

    def of(self, row: Row) -> bool | None:
        value = self.inner.of(row)
        return None if value is None else not value


@dataclass(frozen=True)
class Both:
    """`AND`: false when one is false, even if the other is unknown."""

    left: Expression
    right: Expression

    @property
    def sql(self) -> str:
        return f"({self.left.sql} AND {self.right.sql})"

    def of(self, row: Row) -> bool | None:
        values = (self.left.of(row), self.right.of(row))
        return False if False in values else None if None in values else True


@dataclass(frozen=True)
class Either:
    """`OR`: true when one is true, even if the other is unknown."""

    left: Expression
    right: Expression

    @property
    def sql(self) -> str:
        return f"({self.left.sql} OR {self.right.sql})"

    def of(self, row: Row) -> bool | None:
        values = (self.left.of(row), self.right.of(row))
        return True if True in values else None if None in values else False


# --- values ---


@dataclass(frozen=True)
class Arithmetic:
    """A sum, difference or product of whole numbers modulo `RANGE`; the sign is that of the result."""

    operator: str
    left: Expression
    right: Expression

    @property
    def sql(self) -> str:
        return f"({self.left.sql} {self.operator} {self.right.sql}) % {RANGE}"

    def of(self, row: Row) -> int | None:
        left, right = self.left.of(row), self.right.of(row)
        if left is None or right is None:
            return None
        result = {"+": left + right, "-": left - right, "*": left * right}[self.operator]
        return abs(result) % RANGE * (1 if result >= 0 else -1)


@dataclass(frozen=True)
class Upper:
    """Text in capitals."""

    inner: Expression

    @property
    def sql(self) -> str:
        return f"upper({self.inner.sql})"

    def of(self, row: Row) -> str | None:
        value = self.inner.of(row)
        return None if value is None else value.upper()


@dataclass(frozen=True)
class Concat:
    """Two texts as one; null when one of them is."""

    left: Expression
    right: Expression

    @property
    def sql(self) -> str:
        return f"concat({self.left.sql}, {self.right.sql})"

    def of(self, row: Row) -> str | None:
        left, right = self.left.of(row), self.right.of(row)
        return None if left is None or right is None else left + right


@dataclass(frozen=True)
class Case:
    """One value where a condition is true, another where it is false or unknown."""

    condition: Expression
    then: Expression
    otherwise: Expression

    @property
    def sql(self) -> str:
        return f"CASE WHEN {self.condition.sql} THEN {self.then.sql} ELSE {self.otherwise.sql} END"

    def of(self, row: Row) -> Any:
        return (self.then if self.condition.of(row) else self.otherwise).of(row)


@dataclass(frozen=True)
class Coalesce:
    """The first value that is not null."""

    first: Expression
    second: Expression

    @property
    def sql(self) -> str:
        return f"coalesce({self.first.sql}, {self.second.sql})"

    def of(self, row: Row) -> Any:
        value = self.first.of(row)
        return self.second.of(row) if value is None else value
