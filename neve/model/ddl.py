"""Schemas, partition fields and sort orders written as Spark DDL text.

>>> schema_of_ddl("id bigint not null, ts timestamp").find_field("ts").field_type
TimestamptzType()
>>> PartitionTerm.parse("bucket(16, id)")
PartitionTerm(transform=BucketTransform(num_buckets=16), source='id', alias=None)
>>> print(sort_order_of_terms(["days(ts) DESC", "id"], schema_of_ddl("id bigint, ts timestamp")))
[
  day(2) DESC NULLS LAST
  1 ASC NULLS FIRST
]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import sqlglot
from pyiceberg import transforms
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import Transform
from pyiceberg.types import NestedField
from sqlglot import exp

from neve.errors import UnknownName, UserError
from neve.model.ddl_types import DdlDialect, column_fields
from neve.model.pyiceberg_private import ids_by_name

_PLAIN_TRANSFORMS: dict[str, Transform[Any, Any]] = {
    **dict.fromkeys(("year", "years"), transforms.YearTransform()),
    **dict.fromkeys(("month", "months"), transforms.MonthTransform()),
    **dict.fromkeys(("day", "days", "date"), transforms.DayTransform()),
    **dict.fromkeys(("hour", "hours", "date_hour"), transforms.HourTransform()),
    "identity": transforms.IdentityTransform(),
    "void": transforms.VoidTransform(),
}
_SIZED_TRANSFORMS: dict[str, type[transforms.BucketTransform[Any]] | type[transforms.TruncateTransform[Any]]] = {
    "bucket": transforms.BucketTransform,
    "truncate": transforms.TruncateTransform,
}

_NAME = r"(?:`(?:[^`]|``)+`|[^\W\d][\w]*)(?:\.(?:`(?:[^`]|``)+`|[^\W\d][\w]*))*"
_EXAMPLES = "region, days(ts), hours(ts), bucket(16, id), truncate(4, name)"
_ALIAS = r"(?:\s+(?i:AS)\s+(?P<alias>`(?:[^`]|``)+`|[^\W\d][\w]*))?"
_TERM = re.compile(rf"\s*(?:(?P<column>{_NAME})|(?P<transform>\w+)\s*\(\s*(?P<arguments>.*?)\s*\)){_ALIAS}\s*")


def schema_of_ddl(text: str) -> Schema:
    """Return the schema that DDL text describes, such as `id bigint not null, at struct<x: double, y: double>`."""
    try:
        parsed = sqlglot.parse_one(f"CREATE TABLE t ({text})", dialect=DdlDialect)
    except (sqlglot.ParseError, sqlglot.TokenError) as e:
        errors = getattr(e, "errors", [])
        position = f" at {errors[0]['highlight']!r}" if errors else ""
        raise UserError(
            f"Cannot read the schema {text!r}{position}. Write columns as 'name type [not null]', with types of Spark "
            "or Iceberg. For other types pass a PyIceberg Schema."
        ) from None
    definitions = parsed.this.expressions if isinstance(parsed.this, exp.Schema) else []
    if not definitions or not all(isinstance(d, exp.ColumnDef) and d.kind for d in definitions):
        raise UserError(f"Cannot read the schema {text!r}: every column needs a name and a type.")
    return Schema(*column_fields(definitions, count(1)))


@dataclass(frozen=True, slots=True)
class PartitionTerm:
    """A transform of a column: what a partition field is before it has a name and an id."""

    transform: Transform[Any, Any]
    source: str
    alias: str | None = None  # the name to give the field

    @classmethod
    def parse(cls, text: str) -> PartitionTerm:
        """Parse a term as Spark writes it: `region`, `days(ts)`, `bucket(16, id)`, `truncate(4, name) AS initials`."""
        match = _TERM.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise UserError(f"Cannot read the partition field {text!r}. Write a column or a transform: {_EXAMPLES}.")
        alias = None if match["alias"] is None else _unquote_name(match["alias"])
        if match["column"]:
            return cls(transforms.IdentityTransform(), _unquote_name(match["column"]), alias)
        name, parts = match["transform"].lower(), [p.strip() for p in match["arguments"].split(",")]
        if name in _PLAIN_TRANSFORMS and len(parts) == 1 and re.fullmatch(_NAME, parts[0]):
            return cls(_PLAIN_TRANSFORMS[name], _unquote_name(parts[0]), alias)
        if name in _SIZED_TRANSFORMS and len(parts) == 2:
            size, column = parts if parts[0].isdecimal() else reversed(parts)
            if size.isdecimal() and 0 < int(size) < 2**31 and re.fullmatch(_NAME, column):
                return cls(_SIZED_TRANSFORMS[name](int(size)), _unquote_name(column), alias)
        if name not in _PLAIN_TRANSFORMS | _SIZED_TRANSFORMS:
            raise UnknownName("partition transform", name, [*_PLAIN_TRANSFORMS, *_SIZED_TRANSFORMS])
        raise UserError(f"Cannot read the partition field {text!r}. Examples: {_EXAMPLES}.")

    def field(self, schema: Schema, field_id: int, name: str) -> PartitionField:
        """Return the partition field of a schema; see `source_field` for what is rejected."""
        return PartitionField(self.source_field(schema, "partition").field_id, field_id, self.transform, name)

    def source_field(self, schema: Schema, action: str) -> NestedField:
        """Return the source column in a schema. Rejects an unknown column, and a type the transform cannot take."""
        source = schema.find_field(self.source_id(schema))
        if not source.field_type.is_primitive or not self.transform.can_transform(source.field_type):
            raise UserError(
                f"Cannot {action} by {self.transform} of column {self.source!r}: it is {source.field_type}."
            )
        return source

    def source_id(self, schema: Schema) -> int:
        """Return the id of the source column in a schema."""
        try:
            return schema.find_field(self.source).field_id
        except ValueError:
            raise UnknownName("column", self.source, schema.column_names) from None

    def default_name(self, with_size: bool = False) -> str:
        """Return the alias, or else the name Iceberg gives the field: `ts_day`, `id_bucket`.

        The name of a field that is added to an existing table includes its size: `id_bucket_16`.
        """
        if self.alias is not None:
            return self.alias
        match self.transform:
            case transforms.IdentityTransform():
                return self.source
            case transforms.BucketTransform(num_buckets=size):
                return f"{self.source}_bucket_{size}" if with_size else f"{self.source}_bucket"
            case transforms.TruncateTransform(width=size):
                return f"{self.source}_trunc_{size}" if with_size else f"{self.source}_trunc"
            case transforms.VoidTransform():
                return f"{self.source}_null"
            case other:
                return f"{self.source}_{other}"


def spec_of_terms(terms: list[str] | tuple[str, ...], schema: Schema) -> PartitionSpec:
    """Return the first partition spec of a new table."""
    parsed = [PartitionTerm.parse(t) for t in terms]
    refuse_redundant_times(parsed)
    fields = [term.field(schema, 1000 + i, term.default_name()) for i, term in enumerate(parsed)]
    names = [f.name for f in fields]
    if repeated := {n for n in names if names.count(n) > 1}:
        raise UserError(f"Cannot partition twice by the same field: {sorted(repeated)}.")
    refuse_names_of_columns(fields, schema)
    return PartitionSpec(*fields, spec_id=0)


def refuse_names_of_columns(fields: list[PartitionField], schema: Schema) -> None:
    """Reject a partition field that has the name of a column whose values it does not hold."""
    for field in fields:
        if is_named_like_a_column(field, schema):
            raise UserError(f"Cannot name a partition field {field.name!r}: the table has a column of that name.")


def is_named_like_a_column(field: PartitionField, schema: Schema) -> bool:
    """Check whether a partition field has the name of a column whose values it does not hold."""
    column = ids_by_name(schema).get(field.name)
    return column is not None and (column != field.source_id or str(field.transform) not in {"identity", "void"})


def refuse_redundant_times(terms: list[PartitionTerm]) -> None:
    """Reject two time units of one column in one call.

    Adding a finer unit to an existing coarser one is allowed: this is how a table moves to the finer unit.
    """
    times = [t.source for t in terms if isinstance(t.transform, transforms.TimeTransform)]
    if twice := {s for s in times if times.count(s) > 1}:
        raise UserError(
            f"Cannot partition by two time units of the column {sorted(twice)[0]!r} at once: the finer one is enough."
        )


def _unquote_name(name: str) -> str:
    return ".".join(
        part[1:-1].replace("``", "`") if part.startswith("`") else part
        for part in re.findall(r"`(?:[^`]|``)+`|[^.`]+", name)
    )


_SORT_TERM = re.compile(
    r"\s*(?P<term>.+?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*", re.I | re.S
)


def sort_order_of_terms(terms: Sequence[str], schema: Schema, existing_orders: Iterable[SortOrder] = ()) -> SortOrder:
    """Return the sort order of terms such as `ts`, `id DESC NULLS LAST` or `bucket(16, id)`.

    It has the id of the existing order with the same fields, or 0 if there is none.
    """
    fields = []
    for text in terms:
        match = _SORT_TERM.fullmatch(text)
        if match is None:
            raise UserError(f"Cannot read the sort field {text!r}. Write a column or a transform, as in 'ts DESC'.")
        term = PartitionTerm.parse(match["term"])
        source_id = term.source_field(schema, "sort").field_id
        is_descending = (match["direction"] or "").lower() == "desc"
        nulls_last = match["nulls"].lower() == "last" if match["nulls"] else is_descending
        direction = SortDirection.DESC if is_descending else SortDirection.ASC
        null_order = NullOrder.NULLS_LAST if nulls_last else NullOrder.NULLS_FIRST
        fields.append(SortField(source_id, term.transform, direction, null_order))
    order_id = next((order.order_id for order in existing_orders if order.fields and list(order.fields) == fields), 0)
    return SortOrder(*fields, order_id=order_id)
