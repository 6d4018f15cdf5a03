r"""Columns, partition fields and sort orders as the SQL that creates them: the inverse of `neve.model.ddl`.

>>> from neve.model.ddl import schema_of_ddl, spec_of_terms
>>> schema = schema_of_ddl("id bigint not null, `date` date, at struct<x: double, y: double> comment 'place'")
>>> [column_text(column) for column in schema.fields]
['id BIGINT NOT NULL', '`date` DATE', "at STRUCT<x: DOUBLE, y: DOUBLE> COMMENT 'place'"]
>>> [term_text(field, schema) for field in spec_of_terms(["bucket(16, id)", "days(date)", "at.x"], schema).fields]
['bucket(16, id)', 'days(`date`)', 'at.x']
>>> string_text("it's\n")
"'it\\'s\\n'"
"""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, TruncateTransform

from neve.model.ddl_types import DdlDialect
from neve.model.pyiceberg_private import fields_by_id, parents_by_id
from neve.predicate.column_names import quote_name

_TYPE_NAMES: dict[type[ice.IcebergType], str] = {
    ice.IntegerType: "INT",
    ice.LongType: "BIGINT",
    ice.TimestampType: "TIMESTAMP_NTZ",
    ice.TimestamptzType: "TIMESTAMP",
    ice.UnknownType: "VOID",
}
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def name_text(name: str) -> str:
    """Return a name, in backticks if it is a keyword or no plain identifier."""
    is_plain = name.isidentifier() and name.isascii() and name.upper() not in DdlDialect.Tokenizer.KEYWORDS
    return name if is_plain else quote_name(name)


def path_text(field_id: int, schema: Schema) -> str:
    """Return the dotted name of a column or nested field, each part in backticks if it needs them."""
    fields, parents, names, at = fields_by_id(schema), parents_by_id(schema), list[str](), field_id
    while at in fields:
        names.insert(0, name_text(fields[at].name))
        at = parents.get(at, -1)
    return ".".join(names) or quote_name(f"column {field_id}")


def string_text(text: str) -> str:
    """Return a string literal."""
    return f"'{text.translate(_ESCAPES)}'"


def column_text(column: ice.NestedField, separator: str = " ") -> str:
    """Return the definition of a column, or of a field of a struct with the separator `: `."""
    default = None if column.write_default is None else constant_text(column.write_default)
    clauses = (
        "NOT NULL" if column.required else "",
        f"DEFAULT {default}" if default else "",
        f"COMMENT {string_text(column.doc)}" if column.doc else "",
    )
    definition = f"{name_text(column.name)}{separator}{type_text(column.field_type)}"
    return " ".join([definition, *filter(None, clauses)])


def type_text(kind: ice.IcebergType) -> str:
    """Return the name of a type: Spark's, or Iceberg's own for a type that Spark does not have."""
    match kind:
        case ice.StructType():
            return f"STRUCT<{', '.join(column_text(field, ': ') for field in kind.fields)}>"
        case ice.ListType():
            return f"ARRAY<{type_text(kind.element_type)}>"
        case ice.MapType():
            return f"MAP<{type_text(kind.key_type)}, {type_text(kind.value_type)}>"
        case ice.DecimalType():
            return f"DECIMAL({kind.precision},{kind.scale})"
        case ice.FixedType():
            return f"FIXED({kind.root})"
    return _TYPE_NAMES.get(type(kind)) or str(kind).upper()


def constant_text(value: Any) -> str | None:
    """Return the literal of a default value; None if SQL has none for its type."""
    text = None
    match value:
        case bool() | int() | float() | Decimal():
            text = str(value).upper()
        case str() | time() | UUID():
            text = string_text(str(value))
        case bytes():
            text = f"X'{value.hex().upper()}'"
        case datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
            text = f"{kind} '{value.isoformat(sep=' ')}'"
        case date():
            text = f"DATE '{value.isoformat()}'"
    return text


def term_text(field: PartitionField | SortField, schema: Schema) -> str:
    """Return the column or the transform of a partition or sort field: `region`, `days(ts)`, `bucket(16, id)`."""
    column = path_text(field.source_id, schema)
    match field.transform:
        case IdentityTransform():
            return column
        case BucketTransform(num_buckets=size):
            return f"bucket({size}, {column})"
        case TruncateTransform(width=size):
            return f"truncate({size}, {column})"
        case TimeTransform():
            return f"{field.transform}s({column})"
    return f"{field.transform}({column})"


def sort_order_text(order: SortOrder, schema: Schema) -> str:
    """Return the fields of a sort order, with their direction and the position of nulls."""
    return ", ".join(f"{term_text(f, schema)} {f.direction.name} {f.null_order}" for f in order.fields)
