"""Tables described in Spark's words: schemas as DDL text, partition fields as transforms of columns.

>>> schema_of_ddl("id bigint not null, ts timestamp").find_field("ts").field_type
TimestamptzType()
>>> PartitionTerm.parse("bucket(16, id)")
PartitionTerm(transform=BucketTransform(num_buckets=16), source='id', alias=None)

Sort orders in words.

>>> from pyiceberg.types import LongType, NestedField, TimestampType
>>> schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "ts", TimestampType()))
>>> print(order_of_terms(["days(ts) DESC", "id"], schema))
[
  day(2) DESC NULLS LAST
  1 ASC NULLS FIRST
]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import sqlglot
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from sqlglot import exp

from neve.errors import UnknownName, UserError
from neve.model.ddl_types import DdlDialect, column_fields
from neve.model.pyiceberg_private import ids_by_name

_PLAIN_TRANSFORMS: dict[str, Transform[Any, Any]] = {
    **dict.fromkeys(("year", "years"), YearTransform()),
    **dict.fromkeys(("month", "months"), MonthTransform()),
    **dict.fromkeys(("day", "days", "date"), DayTransform()),
    **dict.fromkeys(("hour", "hours", "date_hour"), HourTransform()),
    "identity": IdentityTransform(),
    "void": VoidTransform(),
}
_SIZED_TRANSFORMS: dict[str, type[BucketTransform[Any]] | type[TruncateTransform[Any]]] = {
    "bucket": BucketTransform,
    "truncate": TruncateTransform,
}

_NAME = r"(?:`(?:[^`]|``)+`|[^\W\d][\w]*)(?:\.(?:`(?:[^`]|``)+`|[^\W\d][\w]*))*"
_ALIAS = r"(?:\s+(?i:AS)\s+(?P<alias>`(?:[^`]|``)+`|[^\W\d][\w]*))?"
_TERM = re.compile(rf"\s*(?:(?P<column>{_NAME})|(?P<transform>\w+)\s*\(\s*(?P<arguments>.*?)\s*\)){_ALIAS}\s*")


def schema_of_ddl(text: str) -> Schema:
    """The schema that DDL text describes, such as `id bigint not null, at struct<x: double, y: double>`."""
    try:
        parsed = sqlglot.parse_one(f"CREATE TABLE t ({text})", dialect=DdlDialect)
    except (sqlglot.ParseError, sqlglot.TokenError) as e:
        errors = getattr(e, "errors", [])
        place = f" at {errors[0]['highlight']!r}" if errors else ""
        raise UserError(
            f"Cannot read the schema {text!r}{place}. Write columns as 'name type [not null]', with types of Spark or "
            "Iceberg; for others give a PyIceberg Schema."
        ) from None
    definitions = parsed.this.expressions if isinstance(parsed.this, exp.Schema) else []
    if not definitions or not all(isinstance(d, exp.ColumnDef) and d.kind for d in definitions):
        raise UserError(f"Cannot read the schema {text!r}: every column needs a name and a type.")
    return Schema(*column_fields(definitions, count(1)))


@dataclass(frozen=True, slots=True)
class PartitionTerm:
    """A partition field before it has a name and an id: a transform of a column."""

    transform: Transform[Any, Any]
    source: str
    alias: str | None = None  # the name to give the field

    @classmethod
    def parse(cls, text: str) -> PartitionTerm:
        """Read a term in Spark's words: `region`, `days(ts)`, `bucket(16, id)`, `truncate(4, name) AS initials`."""
        found = _TERM.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise UserError(f"Cannot read the partition field {text!r}. Write a column or a transform: {_EXAMPLES}.")
        if found["column"]:
            term = cls(IdentityTransform(), _unquote_name(found["column"]))
        else:
            term = cls._parse_transform(text, found["transform"].lower(), found["arguments"])
        return term if found["alias"] is None else replace(term, alias=_unquote_name(found["alias"]))

    @classmethod
    def _parse_transform(cls, text: str, name: str, arguments: str) -> PartitionTerm:
        parts = [p.strip() for p in arguments.split(",")]
        if name in _PLAIN_TRANSFORMS and len(parts) == 1 and re.fullmatch(_NAME, parts[0]):
            return cls(_PLAIN_TRANSFORMS[name], _unquote_name(parts[0]))
        if name in _SIZED_TRANSFORMS and len(parts) == 2:
            size, column = parts if parts[0].isdecimal() else reversed(parts)
            if size.isdecimal() and 0 < int(size) < 2**31 and re.fullmatch(_NAME, column):
                return cls(_SIZED_TRANSFORMS[name](int(size)), _unquote_name(column))
        if name not in _PLAIN_TRANSFORMS | _SIZED_TRANSFORMS:
            raise UnknownName("partition transform", name, [*_PLAIN_TRANSFORMS, *_SIZED_TRANSFORMS])
        raise UserError(f"Cannot read the partition field {text!r}. Examples: {_EXAMPLES}.")

    def field(self, schema: Schema, field_id: int, name: str) -> PartitionField:
        """The partition field of a schema; an unknown column or a type the transform cannot take is refused."""
        source_id = self.source_id(schema)
        source = schema.find_field(source_id)
        if not source.field_type.is_primitive or not self.transform.can_transform(source.field_type):
            raise UserError(
                f"Cannot partition by {self.transform} of column {self.source!r}: it is {source.field_type}."
            )
        return PartitionField(source_id, field_id, self.transform, name)

    def source_id(self, schema: Schema) -> int:
        """The id of the source column in a schema."""
        try:
            return schema.find_field(self.source).field_id
        except ValueError:
            raise UnknownName("column", self.source, schema.column_names) from None

    def default_name(self, with_size: bool = False) -> str:
        """The name Iceberg gives the field: `ts_day`, `id_bucket`; one added later carries its size, `id_bucket_16`.

        A name that was asked for comes first.
        """
        if self.alias is not None:
            return self.alias
        match self.transform:
            case IdentityTransform():
                return self.source
            case BucketTransform(num_buckets=size):
                return f"{self.source}_bucket_{size}" if with_size else f"{self.source}_bucket"
            case TruncateTransform(width=size):
                return f"{self.source}_trunc_{size}" if with_size else f"{self.source}_trunc"
            case VoidTransform():
                return f"{self.source}_null"
            case other:
                return f"{self.source}_{other}"


_EXAMPLES = "region, days(ts), hours(ts), bucket(16, id), truncate(4, name)"


def spec_of_terms(terms: list[str] | tuple[str, ...], schema: Schema) -> PartitionSpec:
    """The first spec of a new table from partition text."""
    parsed = [PartitionTerm.parse(t) for t in terms]
    refuse_redundant_times(parsed)
    fields = [t.field(schema, 1000 + at, t.default_name()) for at, t in enumerate(parsed)]
    names = [f.name for f in fields]
    if repeated := {n for n in names if names.count(n) > 1}:
        raise UserError(f"Cannot partition twice by the same field: {sorted(repeated)}.")
    refuse_names_of_columns(fields, schema)
    return PartitionSpec(*fields, spec_id=0)


def refuse_names_of_columns(fields: list[PartitionField], schema: Schema) -> None:
    """Refuse a partition field that is named like a column whose values it does not hold."""
    for field in fields:
        if is_named_like_a_column(field, schema):
            raise UserError(f"Cannot name a partition field {field.name!r}: the table has a column of that name.")


def is_named_like_a_column(field: PartitionField, schema: Schema) -> bool:
    """Whether a column other than the one whose values it holds has the name of a field."""
    column = ids_by_name(schema).get(field.name)
    return column is not None and (column != field.source_id or str(field.transform) not in {"identity", "void"})


def refuse_redundant_times(terms: list[PartitionTerm]) -> None:
    """Refuse two time units of one column in one go; to move to a finer one later it may be added to the coarser."""
    times = [t.source for t in terms if isinstance(t.transform, TimeTransform)]
    if twice := {s for s in times if times.count(s) > 1}:
        raise UserError(
            f"Cannot partition by two time units of the column {sorted(twice)[0]!r} at once: the finer one says it all."
        )


def _unquote_name(name: str) -> str:
    return ".".join(
        part[1:-1].replace("``", "`") if part.startswith("`") else part
        for part in re.findall(r"`(?:[^`]|``)+`|[^.`]+", name)
    )


_SORT_TERM = re.compile(
    r"\s*(?P<term>.+?)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*", re.I | re.S
)


def sort_order_of_terms(terms: Sequence[str], schema: Schema, existing_orders: Iterable[SortOrder] = ()) -> SortOrder:
    """The order that terms say, as `ts`, `id DESC NULLS LAST` or `bucket(16, id)`.

    It has the number of the order among the known ones that says the same, and 0 when none does.
    """
    fields = tuple(_sort_field(term, schema) for term in terms)
    number = next((order.order_id for order in existing_orders if order.fields and tuple(order.fields) == fields), 0)
    return SortOrder(*fields, order_id=number)


def _sort_field(text: str, schema: Schema) -> SortField:
    found = _SORT_TERM.fullmatch(text)
    if found is None:
        raise UserError(f"Cannot read the sort field {text!r}. Write a column or a transform, as in 'ts DESC'.")
    term = PartitionTerm.parse(found["term"])
    source = schema.find_field(term.source_id(schema))
    if not source.field_type.is_primitive or not term.transform.can_transform(source.field_type):
        raise UserError(f"Cannot sort by {term.transform} of column {term.source!r}: it is {source.field_type}.")
    way = SortDirection.DESC if (found["way"] or "").lower() == "desc" else SortDirection.ASC
    usual = NullOrder.NULLS_LAST if way is SortDirection.DESC else NullOrder.NULLS_FIRST
    nulls = {"first": NullOrder.NULLS_FIRST, "last": NullOrder.NULLS_LAST}.get((found["nulls"] or "").lower(), usual)
    return SortField(source_id=source.field_id, transform=term.transform, direction=way, null_order=nulls)
