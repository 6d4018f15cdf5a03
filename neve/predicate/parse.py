"""SQL conditions as expressions to prune with.

The text is Spark's. What can be said of a column and constants becomes an expression; everything else, functions,
subqueries, columns beside columns, is unknown and prunes nothing. The expression lets through every row the text lets
through; when the text is nothing but comparisons with constants it lets through no other, and is exact.

>>> from pyiceberg.types import LongType, StringType
>>> schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "region", StringType()))
>>> parse("region IN ('eu', 'us') AND id > 5", schema).exact
True
>>> parse("upper(region) = 'EU' AND NOT id < 5", schema).expression
GreaterThanOrEqual(term=Reference(name='id'), literal=LongLiteral(5))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType
from sqlglot import exp

from neve.errors import UnknownName, UserError
from neve.predicate.column_names import find_column
from neve.predicate.comparison import FALSE, NULL, TRUE, UNKNOWN, PredicateColumn, Ternary, conjunction, disjunction
from neve.predicate.constants import Constant, ConstantKind, parse_constant, parse_time_zone
from neve.predicate.normalize import MAX_DEPTH, normalize_expression
from neve.predicate.sql_text import column_references, name_parts, nesting_error, parse_sql, syntax_error

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
    """A condition on rows: an expression in normal form that lets through all that satisfy it."""

    expression: BooleanExpression
    is_exact: bool  # the expression lets through no other rows
    text: str | None = None  # the SQL it was read from
    columns: tuple[str, ...] = ()  # the columns the text names, nested ones in full


def parse(
    where: str | BooleanExpression | None,
    schema: Schema,
    *,
    case_sensitive: bool = True,
    time_zone: str = "UTC",
    alias: str | None = None,
    has_other_tables: bool = False,
) -> Predicate:
    """The predicate of SQL text, or of a PyIceberg expression; nothing is a predicate that lets everything through.

    Times without a zone are read on a clock in `time_zone`. `alias` is a name of the table that columns may be
    qualified with. With `has_others` the condition is about another table too: columns that are not qualified with
    the alias are unknown, and prune nothing.
    """
    if where is None:
        return Predicate(AlwaysTrue(), True)
    if isinstance(where, BooleanExpression):
        return Predicate(normalize_expression(where, schema, case_sensitive=case_sensitive), True)
    if not isinstance(where, str):
        raise UserError(f"Give the condition as SQL text or a PyIceberg expression, not as {type(where).__name__}.")
    reader = _Reader(schema, case_sensitive, parse_time_zone(time_zone), alias, has_other_tables)
    root = _parse_condition(where)
    names = tuple(filter(None, dict.fromkeys(reader.name_of(parts) for parts in column_references([root]))))
    found = reader.condition(root)
    # only what is said of a field in a struct is not in normal form yet
    expression = normalize_expression(found.true, schema) if any("." in name for name in names) else found.true
    return Predicate(expression, found.true_exact, where, names)


def pruning_expression(
    where: exp.Expression,
    schema: Schema,
    *,
    time_zone: str = "UTC",
    alias: str | None = None,
    has_other_tables: bool = False,
) -> BooleanExpression:
    """What a condition of a query says about the rows of one table; what it says of anything else prunes nothing."""
    reader = _Reader(schema, False, parse_time_zone(time_zone), alias, has_other_tables)
    return normalize_expression(reader.condition(where).true, schema)


def columns_of(text: str) -> tuple[str, ...]:
    """The columns a condition names, as it names them, without those of subqueries."""
    return tuple(dict.fromkeys(".".join(parts) for parts in column_references([_parse_condition(text)])))


@dataclass(frozen=True, slots=True)
class _Reader:
    schema: Schema
    case_sensitive: bool
    zone: tzinfo
    alias: str | None
    has_other_tables: bool = False

    def condition(self, node: exp.Expression, depth: int = 0) -> Ternary:
        """A boolean expression as a condition."""
        if depth > MAX_DEPTH:
            raise nesting_error("predicate")
        if isinstance(node, exp.Paren):
            return self.condition(node.this, depth + 1)
        if isinstance(node, exp.Not):
            return self.condition(node.this, depth + 1).negate()
        if isinstance(node, exp.And | exp.Or):
            join = conjunction if isinstance(node, exp.And) else disjunction
            return join([self.condition(part, depth + 1) for part in _operands(node)])
        found = self.is_test(node, depth) if isinstance(node, exp.Is) else self.predicate(node)
        return found.negate() if node.args.get("negate") else found

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
        return self.compare_constants(parse_constant(left, self.zone), operator, value)

    @staticmethod
    def compare_constants(left: Constant | None, operator: str, right: Constant) -> Ternary:
        """Two constants of one simple kind, as in `1 = 1`."""
        if left is None or (left.kind is not right.kind and ConstantKind.NULL not in {left.kind, right.kind}):
            return UNKNOWN
        if ConstantKind.NULL in {left.kind, right.kind}:
            return NULL
        if left.kind not in {ConstantKind.INTEGER, ConstantKind.STRING, ConstantKind.BOOLEAN} or operator not in {
            "=",
            "<>",
        }:
            return UNKNOWN
        return TRUE if (left.value == right.value) == (operator == "=") else FALSE

    def is_test(self, node: exp.Is, depth: int) -> Ternary:
        """IS NULL, IS TRUE, IS FALSE."""
        column = self.column(node.this)
        if isinstance(node.expression, exp.Null):
            return UNKNOWN if column is None else column.null_condition()
        if not isinstance(node.expression, exp.Boolean):
            return UNKNOWN
        if column is not None:
            return column.null_safe_equal(Constant(ConstantKind.BOOLEAN, bool(node.expression.this)))
        inner = self.condition(node.this, depth + 1)
        wanted = inner if node.expression.this else inner.negate()
        # where it is not so, it is the opposite or null: nothing says which rows those are
        return Ternary(wanted.true, AlwaysTrue(), wanted.true_exact, False)

    def null_safe_equality(self, node: exp.Expression) -> Ternary:
        for left, right in ((node.this, node.expression), (node.expression, node.this)):
            column, value = self.column(left), parse_constant(right, self.zone)
            if column is not None and value is not None:
                return column.null_safe_equal(value)
        return UNKNOWN

    def in_list(self, node: exp.In) -> Ternary:
        column = self.column(node.this)
        values = [parse_constant(v, self.zone) for v in node.expressions]
        if column is None or not values or node.args.get("query") or node.args.get("unnest"):
            return UNKNOWN
        known = [v for v in values if v is not None]
        found = column.in_list(known)
        return found if len(known) == len(values) else conjunction([found.negate(), UNKNOWN]).negate()

    def between(self, node: exp.Between) -> Ternary:
        if node.args.get("symmetric"):
            return UNKNOWN
        low, high = node.args["low"], node.args["high"]
        return conjunction([self.comparison(node.this, low, ">="), self.comparison(node.this, high, "<=")])

    def function(self, node: exp.Expression) -> Ternary:
        name, arguments = _function_call(node)
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
        """A boolean column or constant standing alone."""
        if isinstance(node, exp.Boolean):
            return TRUE if node.this else FALSE
        if isinstance(node, exp.Null):
            return NULL
        column = self.column(node)
        return UNKNOWN if column is None else column.compare("=", Constant(ConstantKind.BOOLEAN, True))

    def day_of(self, node: exp.Expression) -> PredicateColumn | None:
        """The column whose day is taken, by a cast or by date() or to_date()."""
        is_cast = isinstance(node, exp.Cast | exp.TryCast) and node.to.this == exp.DataType.Type.DATE
        is_call = isinstance(node, exp.TsOrDsToDate) and node.args.get("format") is None
        return self.column(node.this) if is_cast or is_call else None

    def column(self, node: exp.Expression) -> PredicateColumn | None:
        """The primitive column an expression is, outside of lists and maps."""
        while isinstance(node, exp.Paren):
            node = node.this
        parts = name_parts(node)
        field = None if parts is None else self.field_of(parts)
        if field is None or not isinstance(field.field_type, PrimitiveType):
            return None
        try:
            self.schema.accessor_for_field(field.field_id)
        except ValueError:
            return None
        name = self.schema.find_column_name(field.field_id) or field.name
        return PredicateColumn(name, field.field_type, not field.required or "." in name, self.zone)

    def name_of(self, parts: Sequence[str]) -> str:
        """The full name of a column; one that does not exist is an error."""
        if (field := self.field_of(parts)) is not None:
            return self.schema.find_column_name(field.field_id) or field.name
        # m.key of a map, or a.b of a list of structs: the column exists, what is in it is Spark's matter
        shorter = (self.field_of(parts[:n]) for n in range(len(parts) - 1, 0, -1))
        found = next((f for f in shorter if f is not None and not f.field_type.is_primitive), None)
        if found is not None and not found.field_type.is_struct:
            return self.schema.find_column_name(found.field_id) or found.name
        own = parts[1:] if self._is_qualified(parts) else parts
        if own[0] in METADATA_COLUMNS:
            return own[0]
        if self.has_other_tables:
            return ""
        raise UnknownName("column", ".".join(parts), self.schema.column_names)

    def field_of(self, parts: Sequence[str]) -> NestedField | None:
        # What can be an alias is one, as in Spark. Beside another table only that is surely a column of this one.
        for names in (parts[1:] if self._is_qualified(parts) else (), () if self.has_other_tables else parts):
            if names and (found := find_column(self.schema, ".".join(names), self.case_sensitive)) is not None:
                return found
        return None

    def _is_qualified(self, parts: Sequence[str]) -> bool:
        return len(parts) > 1 and self.alias is not None and parts[0].lower() == self.alias.lower()


def _parse_condition(text: str) -> exp.Expression:
    roots = parse_sql(text, "predicate")
    root: Any = roots[0] if len(roots) == 1 else None
    if not isinstance(root, exp.Condition) or isinstance(root, exp.Query):
        raise syntax_error("predicate", text, None, None, "it is not one condition. Give what follows WHERE")
    return root  # type: ignore[return-value]


def _operands(root: exp.Expression) -> list[exp.Expression]:
    """The operands of a chain of one operator, in order, found without recursion."""
    kind, found, waiting = type(root), [], [root]
    while waiting:
        node = waiting.pop()
        while isinstance(node, exp.Paren):
            node = node.this
        if type(node) is kind:
            waiting += [node.expression, node.this]
        else:
            found.append(node)
    return found


def _function_call(node: exp.Expression) -> tuple[str, list[exp.Expression]]:
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower(), node.expressions
    if isinstance(node, exp.Like | exp.StartsWith):
        return type(node).__name__.lower(), [node.this, node.expression]
    return ("isnan", [node.this]) if isinstance(node, exp.IsNan) else ("", [])
