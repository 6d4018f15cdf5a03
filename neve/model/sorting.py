"""Sort orders in words.

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

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder

from neve.errors import UserError
from neve.model.ddl import PartitionTerm

__all__ = ["order_of_terms"]

_TERM = re.compile(r"\s*(?P<term>.+?)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*", re.I | re.S)


def order_of_terms(terms: Sequence[str], schema: Schema, known: Iterable[SortOrder] = ()) -> SortOrder:
    """The order that terms say, as `ts`, `id DESC NULLS LAST` or `bucket(16, id)`.

    It has the number of the order among the known ones that says the same, and 0 when none does.
    """
    fields = tuple(_field(term, schema) for term in terms)
    number = next((order.order_id for order in known if order.fields and tuple(order.fields) == fields), 0)
    return SortOrder(*fields, order_id=number)


def _field(text: str, schema: Schema) -> SortField:
    found = _TERM.fullmatch(text)
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
