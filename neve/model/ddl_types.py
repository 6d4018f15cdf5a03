"""Column types in DDL text: Spark's names, and Iceberg's own names for types that Spark does not have.

>>> column_type(exp.DataType.build("array<fixed(16)>", dialect=DdlDialect), count(1))
ListType(type='list', element_id=1, element_type=FixedType(length=16), element_required=False)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count
from typing import Any

from pyiceberg import types as ice
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark

from neve.errors import UnknownName, UserError
from neve.model.v3_types import VariantType

_TYPES: dict[str, ice.IcebergType] = {
    "BOOLEAN": ice.BooleanType(),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT"), ice.IntegerType()),
    "BIGINT": ice.LongType(),
    "FLOAT": ice.FloatType(),
    "DOUBLE": ice.DoubleType(),
    "DATE": ice.DateType(),
    "TIME": ice.TimeType(),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"), ice.TimestamptzType()),
    "TIMESTAMPNTZ": ice.TimestampType(),
    "TIMESTAMP_NS": ice.TimestampNanoType(),
    "TIMESTAMP_S": ice.TimestamptzNanoType(),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR"), ice.StringType()),
    "UUID": ice.UUIDType(),
    **dict.fromkeys(("BINARY", "VARBINARY"), ice.BinaryType()),
    "VARIANT": VariantType(),
}
_TYPE_NAMES = [
    *("boolean", "int", "bigint", "float", "double", "decimal(p,s)", "string", "binary", "fixed(n)", "uuid"),
    *("date", "time", "timestamp", "timestamp_ntz", "timestamp_ns", "timestamptz_ns", "variant"),
    *("struct<…>", "array<…>", "map<…>"),
]
_MAX_FIXED_LENGTH = 2**31 - 1


class DdlDialect(Spark):
    """Spark's SQL with Iceberg's types. INT8 is no type name: systems disagree about its meaning."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokenizer with the names of Iceberg's types."""

        STRING_ESCAPES = ["\\", "'", '"']  # noqa: RUF012  a doubled quote is one, as in Spark since 4.0
        KEYWORDS = {  # noqa: RUF012  as sqlglot declares it
            **{word: token for word, token in Spark.Tokenizer.KEYWORDS.items() if word not in ("INT8", "FIXED")},
            "FIXED": TokenType.FIXEDSTRING,
            "TIMESTAMP_NS": TokenType.TIMESTAMP_NS,
            "TIMESTAMPTZ_NS": TokenType.TIMESTAMP_S,  # a token that Spark does not use: sqlglot has none for this type
        }


def column_fields(definitions: list[exp.ColumnDef], ids: count[int]) -> list[ice.NestedField]:
    """Return the columns of a table or a struct; they get their ids before the fields nested in them."""
    names = [d.name for d in definitions]
    for i, name in enumerate(names):
        refuse_duplicate_column(name, names[:i])
    field_ids = [next(ids) for _ in definitions]
    fields = []
    for field_id, definition in zip(field_ids, definitions, strict=True):
        name, constraints = definition.name, {type(c.kind): c.kind for c in definition.constraints}
        if unknown := set(constraints) - {exp.NotNullColumnConstraint, exp.CommentColumnConstraint}:
            raise UserError(f"Cannot use {unknown.pop().__name__} on column {name!r}: use NOT NULL or COMMENT.")
        comment, not_null = (constraints.get(c) for c in (exp.CommentColumnConstraint, exp.NotNullColumnConstraint))
        required = not_null is not None and not not_null.args.get("allow_null")  # set for a plain NULL
        doc = comment.this.name if comment else None
        fields.append(ice.NestedField(field_id, name, column_type(definition.kind, ids), required=required, doc=doc))
    return fields


def refuse_duplicate_column(name: str, other_names: Iterable[str]) -> None:
    """Reject a column name that equals, ignoring case, another name in the same struct."""
    if name.lower() in {other.lower() for other in other_names}:
        raise UserError(f"Cannot name two columns {name!r}: Spark ignores upper and lower case.")


def column_type(kind: Any, ids: count[int]) -> ice.IcebergType:
    """Return the Iceberg type of a parsed one; the fields nested in it take the next ids."""
    match bool(kind.args.get("nested")), kind.this.name, kind.expressions:
        case True, "STRUCT", [_, *_] as fields:
            return ice.StructType(*column_fields(fields, ids))
        case True, "ARRAY", [element]:
            return ice.ListType(next(ids), column_type(element, ids), element_required=False)
        case True, "MAP", [key, value]:
            key_id, value_id = next(ids), next(ids)
            return ice.MapType(key_id, column_type(key, ids), value_id, column_type(value, ids), value_required=False)
        case False, name, sizes if (primitive := _primitive_type(name, sizes)) is not None:
            return primitive
    text: str = kind.sql().lower()  # in sqlglot's names, which are not what the user wrote
    for word, ours in {"text": "string", "fixedstring": "fixed", "timestamp_s": "timestamptz_ns"}.items():
        text = re.sub(rf"\b{word}\b", ours, text)
    raise UnknownName("column type", text, _TYPE_NAMES)


def _primitive_type(name: str, sizes: list[Any]) -> ice.IcebergType | None:
    match name, [int(size.name) if size.name.isdecimal() else -1 for size in sizes]:
        case "DECIMAL", [] | [_] | [_, _] as numbers:
            precision, scale = numbers + [10, 0][len(numbers) :]
            if not 0 <= scale <= precision or not 0 < precision <= 38:
                reason = "a decimal has 1 to 38 digits, and no more after the point"
                raise UserError(f"Cannot make decimal({precision}, {scale}): {reason}.")
            return ice.DecimalType(precision, scale)
        case "FIXEDSTRING", [length] if 0 < length <= _MAX_FIXED_LENGTH:
            return ice.FixedType(length)
        case "CHAR" | "VARCHAR", [_]:
            return ice.StringType()
        case _, []:
            return _TYPES.get(name)
    return None
