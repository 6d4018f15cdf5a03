"""Column types in DDL text: Spark's words, and Iceberg's own for what Spark does not have.

>>> from sqlglot import exp
>>> column_type(exp.DataType.build("array<fixed(16)>", dialect=Words), count(1))
ListType(type='list', element_id=1, element_type=FixedType(length=16), element_required=False)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count
from typing import Any

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark

from neve.errors import UnknownName, UserError

_TYPES: dict[str, IcebergType] = {
    "BOOLEAN": BooleanType(),
    "TINYINT": IntegerType(),
    "SMALLINT": IntegerType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "FLOAT": FloatType(),
    "DOUBLE": DoubleType(),
    "DATE": DateType(),
    "TIME": TimeType(),
    "TIMESTAMP": TimestamptzType(),
    "TIMESTAMPTZ": TimestamptzType(),
    "TIMESTAMPLTZ": TimestamptzType(),
    "TIMESTAMPNTZ": TimestampType(),
    "TIMESTAMP_NS": TimestampNanoType(),
    "TIMESTAMP_S": TimestamptzNanoType(),
    "TEXT": StringType(),
    "VARCHAR": StringType(),
    "CHAR": StringType(),
    "UUID": UUIDType(),
    "BINARY": BinaryType(),
    "VARBINARY": BinaryType(),
}
_TYPE_NAMES = [
    *("boolean", "int", "bigint", "float", "double", "decimal(p,s)", "string", "binary", "fixed(n)", "uuid"),
    *("date", "time", "timestamp", "timestamp_ntz", "timestamp_ns", "timestamptz_ns"),
    *("struct<…>", "array<…>", "map<…>"),
]
_MAX_FIXED_LENGTH = 2**31 - 1


class DdlDialect(Spark):
    """Spark's SQL with the types of Iceberg; words that mean different types elsewhere are not types here."""

    class Tokenizer(Spark.Tokenizer):
        """Its words."""

        KEYWORDS = {  # noqa: RUF012  as sqlglot declares it
            **{word: found for word, found in Spark.Tokenizer.KEYWORDS.items() if word not in ("INT8", "FIXED")},
            "FIXED": TokenType.FIXEDSTRING,
            "TIMESTAMP_NS": TokenType.TIMESTAMP_NS,
            "TIMESTAMPTZ_NS": TokenType.TIMESTAMP_S,  # sqlglot has no tokens for these; Spark has no words for theirs
        }


def column_fields(definitions: list[exp.ColumnDef], ids: count[int]) -> list[NestedField]:
    """The columns of a table or a struct; they are numbered before what is nested in them."""
    names = [d.name for d in definitions]
    for at, name in enumerate(names):
        refuse_duplicate_column(name, names[:at])
    numbered = [(next(ids), d) for d in definitions]
    return [_field(number, d, ids) for number, d in numbered]


def refuse_duplicate_column(name: str, other_names: Iterable[str]) -> None:
    """Refuse the name of a column that differs in case only, or not at all, from one beside it."""
    if name.lower() in {other.lower() for other in other_names}:
        raise UserError(f"Cannot name two columns {name!r}: Spark does not tell upper from lower case.")


def _field(number: int, definition: exp.ColumnDef, ids: count[int]) -> NestedField:
    constraints = {type(c.kind): c.kind for c in definition.constraints}
    if unknown := set(constraints) - {exp.NotNullColumnConstraint, exp.CommentColumnConstraint}:
        raise UserError(
            f"Cannot use {unknown.pop().__name__} on column {definition.name!r}: NOT NULL and COMMENT are understood."
        )
    comment, required = (constraints.get(c) for c in (exp.CommentColumnConstraint, exp.NotNullColumnConstraint))
    return NestedField(
        number,
        definition.name,
        column_type(definition.kind, ids),
        required=required is not None and not required.args.get("allow_null"),  # NULL is NOT NULL with a mark
        doc=comment.this.name if comment else None,
    )


def column_type(kind: Any, ids: count[int]) -> IcebergType:
    """The type that a parsed one means; what is nested in it takes the next ids."""
    found = _nested_type(kind, ids) if kind.args.get("nested") else _primitive_type(kind.this.name, kind.expressions)
    if found is None:
        raise UnknownName("column type", _type_text(kind), _TYPE_NAMES)
    return found


def _type_text(kind: Any) -> str:
    text: str = kind.sql().lower()
    for word, ours in {"text": "string", "fixedstring": "fixed", "timestamp_s": "timestamptz_ns"}.items():
        text = re.sub(rf"\b{word}\b", ours, text)
    return text


def _nested_type(kind: Any, ids: count[int]) -> IcebergType | None:
    match kind.this.name, kind.expressions:
        case "STRUCT", [_, *_] as fields:
            return StructType(*column_fields(fields, ids))
        case "ARRAY", [element]:
            return ListType(next(ids), column_type(element, ids), element_required=False)
        case "MAP", [key, value]:
            numbers = next(ids), next(ids)
            types = column_type(key, ids), column_type(value, ids)
            return MapType(numbers[0], types[0], numbers[1], types[1], value_required=False)
    return None


def _primitive_type(name: str, sizes: list[Any]) -> IcebergType | None:
    match name, [int(size.name) if size.name.isdecimal() else -1 for size in sizes]:
        case "DECIMAL", [] | [_] | [_, _] as numbers:
            return _decimal_type(*numbers)
        case "FIXEDSTRING", [length] if 0 < length <= _MAX_FIXED_LENGTH:
            return FixedType(length)
        case "CHAR" | "VARCHAR", [_]:
            return StringType()
        case _, []:
            return _TYPES.get(name)
    return None


def _decimal_type(precision: int = 10, scale: int = 0) -> DecimalType:
    if not 0 <= scale <= precision or not 0 < precision <= 38:
        raise UserError(
            f"Cannot make decimal({precision}, {scale}): a decimal has 1 to 38 digits, and no more behind the point."
        )
    return DecimalType(precision, scale)
