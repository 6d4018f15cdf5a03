"""Random sequences of steps: where tables start, which values rows hold, which statements are tried.

Values come from small pools, so that rows meet: conditions hit, keys match, partitions hold several rows. The pools
hold what tables of the world hold: nulls, NaN, minus zero, empty and long text, emoji, quotes, far dates.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from math import isfinite
from typing import Any

from hypothesis import strategies as st

from tests.support.expressions import (
    OPERATORS,
    Arithmetic,
    Both,
    Case,
    Coalesce,
    Column,
    Comparison,
    Concat,
    Either,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    SameAs,
    StartsWith,
    Upper,
    compare,
)
from tests.support.random_steps import (
    OP,
    TIMES,
    AddColumn,
    Append,
    Delete,
    DropColumn,
    Field,
    How,
    Merge,
    Promote,
    Rename,
    Repartition,
    SetProperties,
    Shape,
    Step,
    Update,
    Upgrade,
)
from tests.support.row_model import Clause, ColumnDef, Values

Draw = Callable[[st.SearchStrategy[Any]], Any]
Typed = tuple[Column, str]  # a column with its kind

_LONG = "long " * 60  # longer than bounds in manifests, and than the name of a folder may be
_TIMES = [
    datetime(1, 1, 1),
    datetime(1582, 10, 10, 12),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1970, 1, 1),
    datetime(2024, 2, 29, 10, 30),
    datetime(2024, 2, 29, 23, 0, 0, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
]
_DOUBLES = [float("nan"), -0.0, 0.0, 1.5, -2.25, float("inf"), float("-inf"), 5e-324, 1e300]
_TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "abc",
    "ß",
    "é🙂",
    "🙂🙂",
    "it's",
    "back\\slash",
    "null",
    "\U0010ffff" * 20,
    _LONG,
    _LONG + "!",
]
_DECIMALS = ["0.00", "1.25", "-1.25", "-99.99", "9999999.99"]

POOLS: dict[str, list[Any]] = {
    "bigint": [*range(12), -1, -7, 2**40, -(2**40)],
    "int": [0, 1, 2, 3, 7, -1, -5, 100, 999, -1000, 10**6],
    "string": _TEXTS,
    "double": _DOUBLES,
    "float": [x for x in _DOUBLES if x not in {5e-324, 1e300}],
    "date": [t.date() for t in _TIMES],
    "timestamp": [t.replace(tzinfo=UTC) for t in _TIMES],
    "timestamp_ntz": _TIMES,
    "decimal(9,2)": [Decimal(x) for x in _DECIMALS],
    "decimal(18,2)": [Decimal(x) for x in (*_DECIMALS, "1234567890123456.78")],
    "boolean": [True, False],
}
KINDS = tuple(POOLS)
KEYS = ("bigint", "bigint", "int", "string", "date", "double", "decimal(9,2)", "timestamp")
NAMES = ("id", "n", "s", "d", "day", "x", "y", "order", "a b", "größe")
PROMOTIONS = {"int": "bigint", "float": "double", "decimal(9,2)": "decimal(18,2)", "date": "timestamp_ntz"}

_WHOLE = ("identity", "bucket(4)", "bucket(3)", "truncate(10)")
TRANSFORMS: dict[str, tuple[str, ...]] = {
    "bigint": _WHOLE,
    "int": _WHOLE,
    "string": ("identity", "bucket(4)", "truncate(1)", "truncate(2)"),
    "double": ("identity",),
    "float": ("identity",),
    "date": ("identity", "bucket(4)", "years", "months", "days"),
    "timestamp": ("bucket(4)", *TIMES),
    "timestamp_ntz": ("bucket(4)", *TIMES),
    "decimal(9,2)": _WHOLE,
    "decimal(18,2)": _WHOLE,
    "boolean": ("identity",),
}
MODES = ("copy-on-write", "merge-on-read")
PROPERTIES = {
    "write.delete.mode": MODES,
    "write.update.mode": MODES,
    "write.merge.mode": MODES,
    "write.delete.granularity": ("file", "partition"),
    "write.update.distribution-mode": ("none", "hash", "range"),
    "write.merge.distribution-mode": ("none", "hash", "range"),
    "write.metadata.metrics.default": ("none", "counts", "truncate(3)", "full"),
    "write.spark.fanout.enabled": ("true", "false"),
    "commit.manifest.min-count-to-merge": ("2", "100"),
}


@dataclass(frozen=True)
class Life:
    """A table and what happens to it."""

    start: Shape
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        steps = "".join(f"\n  {number:2}. {step}" for number, step in enumerate(self.steps, 1))
        return f"\n  start: {self.start}{steps}\n"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # Hypothesis would print every field of every value


@st.composite
def lives(draw: Draw, version: int, length: int) -> Life:
    """A table of a version and about so many steps; the first is most often an append, so that there are rows."""
    keys = count(1)
    start = shape = draw(_starts(version, keys))
    steps: list[Step] = []
    for _ in range(length + 2):
        if (step := draw(_slot(shape, keys, is_first=not steps))) is not None:
            steps.append(step)
            shape = step.after(shape)
    return Life(start, tuple(steps))


@st.composite
def _slot(draw: Draw, shape: Shape, keys: count[int], *, is_first: bool) -> Step | None:
    """A step, or seldom nothing: the simplest thing to happen, so that a life that fails loses what does not matter."""
    if not draw(st.integers(0, 15)):
        return None
    if is_first and draw(st.integers(0, 7)):
        return _append(draw, shape)
    make = draw(st.sampled_from(WEIGHTED))
    return make(draw, shape, keys) or _update(draw, shape, keys)


@st.composite
def _starts(draw: Draw, version: int, keys: count[int]) -> Shape:
    kinds = ["bigint", "int", "string", *draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))]
    names = draw(st.permutations(NAMES[3:]))
    columns = [ColumnDef(name, kind, next(keys)) for name, kind in zip((*NAMES[:3], *names), kinds, strict=False)]
    shape = Shape(version, tuple(columns))
    return shape.partitioned(_fields(draw, shape, most=2, is_first=True), is_first=True)


# --- values and rows ---


def _rows(draw: Draw, columns: Sequence[ColumnDef], most: int) -> tuple[Values, ...]:
    """Rows from a seed: fewer draws than values of their own, and less to shrink."""
    chance = random.Random(draw(st.integers(0, 10_000)))
    rows = [{c.name: _value(chance, c.kind) for c in columns} for _ in range(most)]
    return tuple(rows[: draw(st.integers(1, most))])


def _value(chance: random.Random, kind: str) -> Any:
    return None if chance.random() < 0.15 else chance.choice(POOLS[kind])


def _literal(draw: Draw, kind: str) -> Literal:
    value = None if draw(st.integers(0, 24)) == 24 else draw(st.sampled_from(POOLS[kind]))
    return Literal(value, kind)


# --- expressions ---


def _typed(columns: Sequence[ColumnDef], side: str = "") -> list[Typed]:
    return [(Column(c.name, side), c.kind) for c in columns]


def _condition(draw: Draw, columns: Sequence[Typed], depth: int = 2) -> Expression:
    """A condition on the columns; a half of them are a single comparison."""
    shape = draw(st.sampled_from(["leaf", "leaf", "leaf", "and", "or", "not"])) if depth else "leaf"
    if shape == "leaf":
        return _leaf(draw, columns)
    if shape == "not":
        return Not(_condition(draw, columns, depth - 1))
    joined = Both if shape == "and" else Either
    return joined(_condition(draw, columns, depth - 1), _condition(draw, columns, depth - 1))


def _leaf(draw: Draw, columns: Sequence[Typed]) -> Expression:
    column, kind = draw(st.sampled_from(columns))
    return draw(st.sampled_from(LEAVES))(draw, column, kind, columns)


def _compared(draw: Draw, column: Column, kind: str, _: Sequence[Typed]) -> Expression:
    operator, value = draw(st.sampled_from(OPERATORS)), _literal(draw, kind)
    is_turned = draw(st.integers(0, 3)) == 3
    return Comparison(operator, value, column) if is_turned else Comparison(operator, column, value)


def _same(draw: Draw, column: Column, kind: str, _: Sequence[Typed]) -> Expression:
    return SameAs(column, _literal(draw, kind))


def _beside(draw: Draw, column: Column, kind: str, columns: Sequence[Typed]) -> Expression:
    alike = [c for c, k in columns if k == kind]
    return Comparison(draw(st.sampled_from(OPERATORS)), column, draw(st.sampled_from(alike)))


def _in(draw: Draw, column: Column, kind: str, _: Sequence[Typed]) -> Expression:
    values = draw(st.lists(st.sampled_from(POOLS[kind]), min_size=1, max_size=4))
    nulls = [None] if draw(st.integers(0, 5)) == 5 else []
    return In(column, tuple(Literal(v, kind) for v in (*values, *nulls)), draw(st.booleans()))


def _null(draw: Draw, column: Column, kind: str, _: Sequence[Typed]) -> Expression:
    return IsNull(column, draw(st.booleans()))


def _special(draw: Draw, column: Column, kind: str, columns: Sequence[Typed]) -> Expression:
    """What only columns of one kind have."""
    if kind == "string":
        return StartsWith(column, draw(st.sampled_from(["", "a", "ab", "é", "🙂", "long"])))
    if kind == "boolean":
        return column
    if kind in ("int", "bigint"):
        return Comparison(draw(st.sampled_from(OPERATORS)), _whole(draw, column), _literal(draw, kind))
    return _compared(draw, column, kind, columns)


LEAVES = (_compared, _compared, _compared, _in, _null, _same, _beside, _special)


def _whole(draw: Draw, column: Expression) -> Arithmetic:
    number = Literal(draw(st.integers(-50, 50)), "int")
    return Arithmetic(draw(st.sampled_from("+-*")), column, number)


def _expression(draw: Draw, kind: str, columns: Sequence[Typed], depth: int = 1) -> Expression:
    """An expression whose value a column of a kind can hold."""
    alike = [c for c, k in columns if k == kind]
    own = ["column", "column", "made"] if alike else []
    form = draw(st.sampled_from(["literal", "literal", *own, *(["case", "coalesce"] if depth else [])]))
    match form:
        case "literal":
            return _literal(draw, kind)
        case "case":
            return Case(_condition(draw, columns, 1), *(_expression(draw, kind, columns, 0) for _ in range(2)))
        case "coalesce":
            return Coalesce(*(_expression(draw, kind, columns, 0) for _ in range(2)))
    column = draw(st.sampled_from(alike))
    return column if form == "column" else _made(draw, column, kind, columns)


def _made(draw: Draw, column: Column, kind: str, columns: Sequence[Typed]) -> Expression:
    """What can be made of a column of one kind."""
    if kind in ("int", "bigint"):
        return _whole(draw, column)
    if kind == "string":
        ending = Literal(draw(st.sampled_from(["!", "é", "🙂"])), kind)
        return Upper(column) if draw(st.booleans()) else Concat(column, ending)
    return _condition(draw, columns, 1) if kind == "boolean" else column


def _assignments(
    draw: Draw, targets: Sequence[ColumnDef], columns: Sequence[Typed], most: int = 3
) -> dict[str, Expression]:
    chosen = draw(st.lists(st.sampled_from(targets), min_size=1, max_size=most, unique_by=lambda c: c.key))
    return {c.name: _expression(draw, c.kind, columns) for c in chosen}


# --- statements ---


def _append(draw: Draw, shape: Shape, _: count[int] | None = None) -> Step:
    return Append(shape.columns, _rows(draw, shape.columns, 25))


def _update(draw: Draw, shape: Shape, _: count[int]) -> Step:
    columns = _typed(shape.columns)
    where = None if draw(st.integers(0, 9)) == 9 else _condition(draw, columns)
    return Update(_assignments(draw, shape.columns, columns), where, _how(draw, shape, "update"))


def _delete(draw: Draw, shape: Shape, _: count[int]) -> Step:
    where = None if draw(st.integers(0, 15)) == 15 else _condition(draw, _typed(shape.columns))
    return Delete(where, _how(draw, shape, "delete"))


def _how(draw: Draw, shape: Shape, command: str) -> How:
    """A way to run a statement; version 1 has no merge-on-read."""
    mode = draw(st.sampled_from([None, *MODES]))
    effective = mode or shape.properties.get(f"write.{command}.mode", MODES[0])
    if shape.version == 1 and effective == "merge-on-read":
        mode = "copy-on-write"
    return How(mode, draw(st.sampled_from([None, "snapshot", "serializable"])))


def _merge(draw: Draw, shape: Shape, _: count[int]) -> Step:
    keys = [c for c in shape.columns if c.kind in KEYS]
    if not keys:
        return _append(draw, shape)
    key = draw(st.sampled_from(keys))
    rows = _rows(draw, (*shape.columns, ColumnDef(OP, "string", 0)), 10)
    same = draw(st.integers(0, 3)) == 3
    target, source = Column(key.name, "t"), Column(key.name, "s")
    on: Expression = SameAs(target, source) if same else Comparison("=", target, source)
    if draw(st.integers(0, 7)) < 7:
        rows = _told_apart(rows, key.name)
    sides = [*_typed(shape.columns, "t"), *_typed(shape.columns, "s")]
    if draw(st.integers(0, 2)) == 2:
        on = Both(on, _condition(draw, sides, 1))
    return Merge(shape.columns, rows, on, _clauses(draw, shape, sides), _how(draw, shape, "merge"))


def _told_apart(rows: tuple[Values, ...], key: str) -> tuple[Values, ...]:
    """The rows whose key no row before them has; several nulls may stay, most often they match nothing."""
    kept: list[Values] = []
    for row in rows:
        value = row[key]
        if value is None or all(k[key] is None or compare(k[key], value) for k in kept):
            kept.append(row)
    return tuple(kept)


def _clauses(draw: Draw, shape: Shape, both: Sequence[Typed]) -> tuple[Clause, ...]:
    mine, theirs = _typed(shape.columns, "t"), _typed(shape.columns, "s")
    seen = {"matched": both, "not matched": theirs, "not matched by source": mine}
    kinds = draw(st.lists(st.sampled_from([*seen, "matched", "not matched"]), min_size=1, max_size=4))
    last = {kind: at for at, kind in enumerate(kinds)}
    return tuple(_clause(draw, shape, kind, seen[kind], last[kind] == at) for at, kind in enumerate(kinds))


def _clause(draw: Draw, shape: Shape, kind: str, columns: Sequence[Typed], is_last: bool) -> Clause:
    """A clause; only the last of its kind may be without a condition."""
    condition = None if is_last and draw(st.booleans()) else _condition(draw, columns, 1)
    if kind == "not matched":
        if draw(st.booleans()):
            return Clause(kind, condition, is_all=True)
        return Clause(kind, condition, _assignments(draw, shape.columns, columns, most=6))
    action = draw(st.sampled_from(["update", "update", "delete", *(["all"] if kind == "matched" else [])]))
    if action == "delete":
        return Clause(kind, condition)
    if action == "all":
        return Clause(kind, condition, is_all=True)
    return Clause(kind, condition, _assignments(draw, shape.columns, columns))


# --- columns and the table ---


def _rename(draw: Draw, shape: Shape, _: count[int]) -> Step | None:
    column = draw(st.sampled_from(shape.columns))
    free = [n for n in NAMES if shape.is_free(n)]
    return Rename(column.key, column.name, draw(st.sampled_from(free))) if free else None


def can_be_default(value: Any) -> bool:
    """Whether JSON can hold a value."""
    return not isinstance(value, float) or isfinite(value)


def _add_column(draw: Draw, shape: Shape, keys: count[int]) -> Step | None:
    free = [n for n in NAMES if shape.is_free(n)]
    if not free or len(shape.columns) > 7:
        return None
    kind = draw(st.sampled_from(KINDS))
    has_default = shape.version >= 3 and draw(st.booleans())
    default = draw(st.sampled_from([v for v in POOLS[kind] if can_be_default(v)])) if has_default else None
    return AddColumn(ColumnDef(draw(st.sampled_from(free)), kind, next(keys), default))


def _drop_column(draw: Draw, shape: Shape, _: count[int]) -> Step | None:
    sources = {f.key for f in shape.fields}
    columns = [c for c in shape.columns if c.key not in sources]
    if len(shape.columns) < 3 or not columns:
        return None
    column = draw(st.sampled_from(columns))
    return DropColumn(column.key, column.name)


def _promote(draw: Draw, shape: Shape, _: count[int]) -> Step | None:
    columns = [c for c in shape.columns if _is_promotable(c, shape)]
    if not columns:
        return None
    column = draw(st.sampled_from(columns))
    return Promote(column.key, column.name, PROMOTIONS[column.kind])


def _is_promotable(column: ColumnDef, shape: Shape) -> bool:
    if column.kind != "date":
        return column.kind in PROMOTIONS
    fixed = {Field(column.key, "identity"), Field(column.key, "bucket(4)")}
    return shape.version >= 3 and column.default is None and not fixed & shape.past


def _repartition(draw: Draw, shape: Shape, _: count[int]) -> Step | None:
    drop = draw(st.lists(st.sampled_from(shape.fields), max_size=2, unique=True)) if shape.fields else []
    add = _fields(draw, shape, most=2)
    names = {c.key: c.name for c in shape.columns}
    return Repartition(add, tuple(drop), names) if add or drop else None


def _fields(draw: Draw, shape: Shape, most: int, *, is_first: bool = False) -> tuple[Field, ...]:
    """Fields to partition by, one for each column at most."""
    fitting = [Field(c.key, t) for c in shape.columns for t in TRANSFORMS[c.kind]]
    fitting = [f for f in fitting if shape.fits(f, is_first=is_first)]
    if not fitting:
        return ()
    return tuple(draw(st.lists(st.sampled_from(fitting), max_size=most, unique_by=lambda f: f.key)))


def _upgrade(draw: Draw, shape: Shape, _: count[int]) -> Step | None:
    return Upgrade(draw(st.integers(shape.version + 1, 4))) if shape.version < 4 else None


def _set_properties(draw: Draw, shape: Shape, _: count[int]) -> Step:
    names = draw(st.lists(st.sampled_from(list(PROPERTIES)), min_size=1, max_size=3, unique=True))
    return SetProperties({name: draw(st.sampled_from(PROPERTIES[name])) for name in names})


WEIGHTED: list[Callable[[Draw, Shape, count[int]], Step | None]] = [
    *(_append, _append, *4 * [_update], *4 * [_merge], *3 * [_delete], _repartition, _repartition),
    *(_rename, _add_column, _drop_column, _promote, _upgrade, _set_properties),
]
