"""Parse SQL conditions into expressions that prune files.

The text is Spark SQL. Comparisons of a column with constants become an expression. Everything else (functions,
subqueries, comparisons between columns) is unknown and prunes nothing. The expression matches every row that the text
matches; if the text consists only of comparisons with constants, it matches no other row and is exact.

>>> from pyiceberg.types import LongType, StringType
>>> schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "region", StringType()))
>>> parse("region IN ('eu', 'us') AND id > 5", schema).is_exact
True
>>> parse("upper(region) = 'EU' AND NOT id < 5", schema).expression
GreaterThanOrEqual(term=Reference(name='id'), literal=LongLiteral(5))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType
from sqlglot import exp

from neve.errors import UnknownName, UserError
from neve.predicate.column_names import find_reference
from neve.predicate.comparison import FALSE, NULL, TRUE, UNKNOWN, PredicateColumn, Ternary, conjunction, disjunction
from neve.predicate.constants import Constant, ConstantKind, parse_constant, parse_time_zone
from neve.predicate.normalize import MAX_DEPTH, normalize_expression
from neve.predicate.sql_text import column_references, name_parts, nesting_error, parse_sql, shorten_lists, syntax_error

COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
FLIPPED_OPERATORS = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
METADATA_COLUMNS = frozenset({"_file", "_pos", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"})


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on rows: a normalized expression that matches every row that satisfies the condition."""

    expression: BooleanExpression
    is_exact: bool  # the expression matches no other rows
    text: str | None = None  # the SQL text it was parsed from
    columns: tuple[str, ...] = ()  # the columns that the text names, nested ones with their full name


def parse(
    where: str | BooleanExpression | None,
    schema: Schema,
    *,
    case_sensitive: bool = True,
    time_zone: str = "UTC",
    alias: str | None = None,
    has_other_tables: bool = False,
) -> Predicate:
    """Parse SQL text or normalize a PyIceberg expression; None becomes a predicate that matches everything.

    Times without a zone are read in `time_zone`. `alias` is a name of the table that may qualify columns. With
    `has_other_tables` the condition is also about another table: columns that are not qualified with the alias are
    unknown, and prune nothing.
    """
    if where is None:
        return Predicate(AlwaysTrue(), True)
    if isinstance(where, BooleanExpression):
        return Predicate(normalize_expression(where, schema, case_sensitive=case_sensitive), True)
    if not isinstance(where, str):
        raise UserError(f"Give the condition as SQL text or a PyIceberg expression, not as {type(where).__name__}.")
    short = shorten_lists(where)
    reader = _Reader(schema, case_sensitive, parse_time_zone(time_zone), alias, has_other_tables, lists=short.lists)
    root = _parse_condition(short.text, where)
    names = tuple(filter(None, dict.fromkeys(reader.name_of(parts) for parts in column_references([root]))))
    condition = reader.condition(root)
    expression = condition.true
    if any("." in name for name in names):  # only conditions on fields in structs are not in normal form yet
        expression = normalize_expression(expression, schema)
    return Predicate(expression, condition.true_exact, where, names)


def pruning_expression(
    where: exp.Expression,
    schema: Schema,
    *,
    time_zone: str = "UTC",
    alias: str | None = None,
    has_other_tables: bool = False,
) -> BooleanExpression:
    """Return what a condition of a query requires of the rows of one table; its other parts prune nothing.

    Spark then evaluates the condition for rows, in which nanoseconds are rounded down.
    """
    reader = _Reader(schema, False, parse_time_zone(time_zone), alias, has_other_tables, cuts_nanos=True)
    return normalize_expression(reader.condition(where).true, schema)


def columns_of(text: str) -> tuple[str, ...]:
    """Return the columns that a condition names, as written, without those in subqueries."""
    root = _parse_condition(shorten_lists(text).text, text)
    return tuple(dict.fromkeys(".".join(parts) for parts in column_references([root])))


@dataclass(frozen=True, slots=True)
class _Reader:
    schema: Schema
    case_sensitive: bool
    zone: tzinfo
    alias: str | None
    has_other_tables: bool = False
    cuts_nanos: bool = False
    lists: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # as in `ShortText`

    def condition(self, node: exp.Expression, depth: int = 0) -> Ternary:
        if depth > MAX_DEPTH:
            raise nesting_error("predicate")
        if isinstance(node, exp.Paren):
            return self.condition(node.this, depth + 1)
        if isinstance(node, exp.Not):
            return self.condition(node.this, depth + 1).negate()
        if isinstance(node, exp.And | exp.Or):
            join = conjunction if isinstance(node, exp.And) else disjunction
            return join([self.condition(part, depth + 1) for part in _operands(node)])
        condition = self.is_test(node, depth) if isinstance(node, exp.Is) else self.predicate(node)
        return condition.negate() if node.args.get("negate") else condition

    def predicate(self, node: exp.Expression) -> Ternary:
        if (operator := COMPARISONS.get(type(node))) is not None:
            return self.comparison(node.this, node.expression, operator)
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            same = self.null_safe_equality(node)
            return same if isinstance(node, exp.NullSafeEQ) else same.negate()
        if isinstance(node, exp.In | exp.Between):
            return self.in_list(node) if isinstance(node, exp.In) else self.between(node)
        return self.function(node) if isinstance(node, exp.Func | exp.Like) else self.truth(node)

    def comparison(self, left: exp.Expression, right: exp.Expression, operator: str) -> Ternary:
        value = parse_constant(right, self.zone)
        if value is None:
            left, right, operator = right, left, FLIPPED_OPERATORS[operator]
            value = parse_constant(right, self.zone)
        if value is None:
            return UNKNOWN
        if (column := self.column(left)) is not None:
            return column.compare(operator, value)
        if (column := self.day_of(left)) is not None:
            return column.compare_day(operator, value)
        other = parse_constant(left, self.zone)
        if other is not None and ConstantKind.NULL in {other.kind, value.kind}:
            return NULL
        # Two constants of one simple kind, as in `1 = 1`.
        is_simple = value.kind in {ConstantKind.INTEGER, ConstantKind.STRING, ConstantKind.BOOLEAN}
        if other is None or other.kind is not value.kind or not is_simple or operator not in {"=", "<>"}:
            return UNKNOWN
        return TRUE if (other.value == value.value) == (operator == "=") else FALSE

    def is_test(self, node: exp.Is, depth: int) -> Ternary:
        """Parse IS NULL, IS TRUE and IS FALSE."""
        column = self.column(node.this)
        if isinstance(node.expression, exp.Null):
            return UNKNOWN if column is None else column.null_condition()
        if not isinstance(node.expression, exp.Boolean):
            return UNKNOWN
        if column is not None:
            return column.null_safe_equal(Constant(ConstantKind.BOOLEAN, bool(node.expression.this)))
        inner = self.condition(node.this, depth + 1)
        tested = inner if node.expression.this else inner.negate()
        # The test is false where the condition has the opposite value or is null; no expression describes those rows.
        return Ternary(tested.true, AlwaysTrue(), tested.true_exact, False)

    def null_safe_equality(self, node: exp.Expression) -> Ternary:
        for left, right in ((node.this, node.expression), (node.expression, node.this)):
            column, value = self.column(left), parse_constant(right, self.zone)
            if column is not None and value is not None:
                return column.null_safe_equal(value)
        return UNKNOWN

    def in_list(self, node: exp.In) -> Ternary:
        column = self.column(node.this)
        if column is not None and len(node.expressions) == 1 and node.expressions[0].name in self.lists:
            return column.in_plain_list(self.lists[node.expressions[0].name])
        values = [parse_constant(v, self.zone) for v in node.expressions]
        if column is None or not values or node.args.get("query") or node.args.get("unnest"):
            return UNKNOWN
        constants = [v for v in values if v is not None]
        condition = column.in_list(constants)
        return condition if len(constants) == len(values) else disjunction([condition, UNKNOWN])

    def between(self, node: exp.Between) -> Ternary:
        if node.args.get("symmetric"):
            return UNKNOWN
        low, high = node.args["low"], node.args["high"]
        return conjunction([self.comparison(node.this, low, ">="), self.comparison(node.this, high, "<=")])

    def function(self, node: exp.Expression) -> Ternary:
        name, arguments = "", []
        if isinstance(node, exp.Anonymous):
            name, arguments = str(node.this).lower(), node.expressions
        elif isinstance(node, exp.Like | exp.StartsWith):
            name, arguments = type(node).__name__.lower(), [node.this, node.expression]
        elif isinstance(node, exp.IsNan):
            name, arguments = "isnan", [node.this]
        column = self.column(arguments[0]) if arguments else None
        if column is None:
            return UNKNOWN
        if name in {"isnull", "isnotnull"} and len(arguments) == 1:
            return column.null_condition() if name == "isnull" else column.null_condition().negate()
        if name == "isnan":
            return column.nan_condition()
        text = parse_constant(arguments[1], self.zone) if len(arguments) == 2 else None
        if text is None or text.kind is not ConstantKind.STRING or name not in {"like", "startswith"}:
            return UNKNOWN
        return column.like(text.value) if name == "like" else column.starts_with(text.value)

    def truth(self, node: exp.Expression) -> Ternary:
        """Parse a boolean column or constant that stands alone."""
        if isinstance(node, exp.Boolean):
            return TRUE if node.this else FALSE
        if isinstance(node, exp.Null):
            return NULL
        column = self.column(node)
        return UNKNOWN if column is None else column.compare("=", Constant(ConstantKind.BOOLEAN, True))

    def day_of(self, node: exp.Expression) -> PredicateColumn | None:
        """Return the column whose day is taken, by a cast or by date() or to_date()."""
        is_cast = isinstance(node, exp.Cast | exp.TryCast) and node.to.this == exp.DataType.Type.DATE
        is_call = isinstance(node, exp.TsOrDsToDate) and node.args.get("format") is None
        return self.column(node.this) if is_cast or is_call else None

    def column(self, node: exp.Expression) -> PredicateColumn | None:
        """Return the primitive column that an expression names, unless it is inside a list or map."""
        parts = name_parts(node.unnest())
        field = None if parts is None else self.field_of(parts)
        if field is None or not isinstance(field.field_type, PrimitiveType):
            return None
        try:
            self.schema.accessor_for_field(field.field_id)
        except ValueError:
            return None
        name = self.schema.find_column_name(field.field_id) or field.name
        is_nullable = not field.required or "." in name
        return PredicateColumn(name, field.field_type, is_nullable, self.zone, self.cuts_nanos)

    def name_of(self, parts: Sequence[str]) -> str:
        """Return the full name of a column; a column that does not exist is an error."""
        if (field := self.field_of(parts)) is not None:
            return self.schema.find_column_name(field.field_id) or field.name
        # m.key of a map, or a.b of a list of structs: the column exists, and Spark resolves what is inside
        parents = (self.field_of(parts[:n]) for n in range(len(parts) - 1, 0, -1))
        parent = next((f for f in parents if f is not None and not f.field_type.is_primitive), None)
        if parent is not None and not parent.field_type.is_struct:
            return self.schema.find_column_name(parent.field_id) or parent.name
        first = parts[1] if self._is_qualified(parts) else parts[0]
        if first in METADATA_COLUMNS:
            return first
        if self.has_other_tables:
            return ""
        raise UnknownName("column", ".".join(parts), self.schema.column_names)

    def field_of(self, parts: Sequence[str]) -> NestedField | None:
        # If there are other tables, only a column qualified with the alias certainly belongs to this one.
        return find_reference(self.schema, parts, self.case_sensitive, self.alias, only_qualified=self.has_other_tables)

    def _is_qualified(self, parts: Sequence[str]) -> bool:
        return len(parts) > 1 and self.alias is not None and parts[0].lower() == self.alias.lower()


def _parse_condition(text: str, original_text: str) -> exp.Expression:
    roots = parse_sql(text, "predicate", original_text=original_text)
    root: Any = roots[0] if len(roots) == 1 else None
    if not isinstance(root, exp.Condition) or isinstance(root, exp.Query):
        raise syntax_error("predicate", original_text, None, None, "it is not one condition. Give what follows WHERE")
    return root  # type: ignore[return-value]


def _operands(root: exp.Expression) -> list[Any]:
    """Return the operands of a chain of one operator, in order, without recursion."""
    kind, operands, waiting = type(root), [], [root]
    while waiting:
        node = waiting.pop().unnest()
        if type(node) is kind:
            waiting += [node.expression, node.this]
        else:
            operands.append(node)
    return operands
