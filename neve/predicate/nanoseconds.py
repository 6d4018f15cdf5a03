"""Compare times in nanoseconds exactly on Spark, which has them rounded down to microseconds.

Beside such a column, Spark gets one with the unscaled numbers. A comparison with any time `x` of Spark is then written
with the column rounded down (`t`, as Spark has it) and rounded up (`u`):

| condition        | exact                 |
|------------------|-----------------------|
| `t < x`, `t >= x`| the same              |
| `t <= x`, `t > x`| `u <= x`, `u > x`     |
| `t = x`          | `t = x AND u = x`     |
| `t <=> x`        | `t <=> x AND u <=> x` |

Both are null where the time is null, so SQL's logic of nulls is kept. Two columns of nanoseconds are compared by their
numbers. Functions, as in `year(t)`, see microseconds. What is computed from other nanoseconds, as in a subquery, is
rounded already and cannot be compared exactly: that is an error.

>>> from pyiceberg.types import TimestampNanoType
>>> schema = Schema(NestedField(1, "at", TimestampNanoType()))
>>> compare_exactly("id = 5", schema)
'id = 5'
>>> compare_exactly("at < since", Schema(*schema.fields, NestedField(2, "since", TimestampNanoType())))
'`__neve_nanos_1` < `__neve_nanos_2`'
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, StructType
from sqlglot import exp

from neve.errors import UnsupportedFeature
from neve.model.values import NANOS_TYPES
from neve.predicate.coercion import locate_constant
from neve.predicate.column_names import find_reference, quote_name
from neve.predicate.constants import parse_constant, parse_time_zone
from neve.predicate.sql_text import name_parts, parse_sql

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_FLIPPED: dict[type[Any], type[Any]] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}


def unscaled_name(field_id: int) -> str:
    """Return the name of the column with the unscaled numbers of a column of nanoseconds."""
    return f"__neve_nanos_{field_id}"


def nanos_columns(schema: Schema) -> list[NestedField]:
    """Return the columns of nanoseconds, and the structs that have such fields."""
    return [f for f in schema.fields if _has_nanos(f.field_type)]


def _has_nanos(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_nanos(field.field_type) for field in kind.fields)
    return isinstance(kind, NANOS_TYPES)


def unscaled_path(schema: Schema, field: NestedField) -> list[str]:
    """Return the names that lead to the numbers of a column of nanoseconds: one, or more for a field of a struct."""
    path = schema.find_column_name(field.field_id) or field.name
    top = max((f for f in schema.fields if f"{path}.".startswith(f"{f.name}.")), key=lambda f: len(f.name))
    return [unscaled_name(top.field_id), *filter(None, path.removeprefix(top.name).split("."))]


def compare_exactly(
    condition: str,
    schema: Schema,
    *,
    case_sensitive: bool = True,
    time_zone: str = "UTC",
    alias: str | None = None,
    other_alias: str | None = None,
    has_rounded_source: bool = False,
) -> str:
    """Return a condition for Spark that compares columns of nanoseconds exactly; the same text if it compares none.

    `alias` may qualify the columns of the schema, `other_alias` those of another table. With `has_rounded_source`, the
    times of the other table may have had nanoseconds.
    """
    if not nanos_columns(schema):
        return condition
    writer = _ExactWriter(schema, case_sensitive, parse_time_zone(time_zone), alias, other_alias, has_rounded_source)
    root = exp.Paren(this=parse_sql(condition, "predicate")[0])
    is_changed = False
    for node in reversed(list(root.find_all(*_COMPARISONS, exp.Between, exp.In))):  # inner ones first
        if (exact := writer.exact(node)) is not None:
            node.replace(exact)
            is_changed = True
    return root.this.sql(dialect="spark") if is_changed else condition


@dataclass(frozen=True)
class _TimeColumn:
    """A column of nanoseconds in Spark: rounded down, rounded up, and as a number."""

    field: NestedField
    floor: exp.Expr
    ceiling: exp.Expr
    number: exp.Expr


@dataclass(frozen=True)
class _ExactWriter:
    schema: Schema
    case_sensitive: bool
    zone: tzinfo
    alias: str | None
    other_alias: str | None
    has_rounded_source: bool

    def exact(self, node: exp.Expr) -> exp.Expr | None:
        """Return the same comparison without rounding; None if it is not about nanoseconds."""
        if node.find_ancestor(exp.Query) is not None:  # a subquery has columns of its own
            return None
        if (time := self.column(node.this)) is not None:
            return self.compare_with_each(node, time)
        time = self.column(node.expression) if isinstance(node, _COMPARISONS) else None
        return None if time is None else self.compare(_FLIPPED.get(type(node), type(node)), time, node.this)

    def compare_with_each(self, node: exp.Expr, time: _TimeColumn) -> exp.Expr:
        if isinstance(node, exp.Between):
            low, high = self.compare(exp.GTE, time, node.args["low"]), self.compare(exp.LTE, time, node.args["high"])
            return exp.paren(exp.and_(low, high))
        if not isinstance(node, exp.In):
            return self.compare(type(node), time, node.expression)
        if not node.expressions:
            raise _unsupported(time.field.name, "with a subquery")
        return exp.paren(exp.or_(*(self.compare(exp.EQ, time, value) for value in node.expressions)))

    def compare(self, kind: type[Any], time: _TimeColumn, other: exp.Expr) -> exp.Expr:
        if (number := self.number(other, time.field)) is not None:
            return kind(this=time.number.copy(), expression=number)
        if self.may_be_rounded(other):
            raise _unsupported(time.field.name, f"with {other.sql('spark')}")
        if kind in (exp.LT, exp.GTE, exp.LTE, exp.GT):
            side = time.floor if kind in (exp.LT, exp.GTE) else time.ceiling
            return kind(this=side.copy(), expression=other.copy())
        same = exp.NullSafeEQ if kind in (exp.NullSafeEQ, exp.NullSafeNEQ) else exp.EQ
        sides = (same(this=side.copy(), expression=other.copy()) for side in (time.floor, time.ceiling))
        equal = exp.paren(exp.and_(*sides))
        return equal if kind is same else exp.not_(equal)

    def number(self, other: exp.Expr, field: NestedField) -> exp.Expr | None:
        """Return the other side as a number if it has nanoseconds: another column, or a constant."""
        if (column := self.column(other)) is not None:
            if column.field.field_type != field.field_type:
                raise _unsupported(field.name, f"with {column.field.name} of type {column.field.field_type}")
            return column.number
        constant = parse_constant(other, self.zone)
        position = None if constant is None else locate_constant(constant, field.field_type, self.zone)
        if position is None or position.floor is None or position.floor.value % 1000 == 0:
            return None
        return exp.Literal.number(position.floor.value)

    def may_be_rounded(self, other: exp.Expr) -> bool:
        """Check whether an expression may be computed from nanoseconds, which Spark has rounded: it is not exact."""
        columns = [*other.find_all(exp.Column)]
        return (
            other.find(exp.Query) is not None
            or any(self.column(column) is not None for column in columns)
            or (self.has_rounded_source and bool(columns))
        )

    def column(self, node: exp.Expr) -> _TimeColumn | None:
        """Return the column of nanoseconds that an expression names."""
        parts = name_parts(node.unnest())
        if parts is None or (len(parts) > 1 and parts[0].lower() == (self.other_alias or "").lower()):
            return None
        field = find_reference(self.schema, parts, self.case_sensitive, self.alias)
        if field is None or not isinstance(field.field_type, NANOS_TYPES):
            return None
        path = unscaled_path(self.schema, field)
        text, number = map(_join, (parts, [*parts[: len(parts) - len(path)], *path]))
        step = f"IF(pmod({number}, 1000) = 0, INTERVAL '0' SECOND, INTERVAL '0.000001' SECOND)"
        return _TimeColumn(field, *(parse_sql(form)[0] for form in (text, f"({text} + {step})", number)))


def _join(parts: list[str]) -> str:
    return ".".join(map(quote_name, parts))


def _unsupported(column: str, where: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"Cannot compare {column} {where} on Spark: it has nanoseconds, which Spark would cut. Compare the column with "
        "times only, or cut it yourself, as in date_trunc('MICROSECOND', …)."
    )
