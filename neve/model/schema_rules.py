"""What a change of columns may not do, and why: rules over schemas and metadata.

Which changes of a column's type the format allows: those under which every stored value keeps its meaning.
"""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Any

from pyiceberg.expressions.literals import AboveMax, BelowMin, literal
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    UnknownType,
)

from neve.errors import UserError
from neve.model.ddl import is_named_like_a_column
from neve.model.metadata import TableMetadata, check_schema_fits
from neve.model.pyiceberg_private import fields_by_id


def can_promote(from_type: IcebergType, to_type: IcebergType, format_version: int) -> bool:
    """Whether a column of one type may become one of another, or stays what it is."""
    match from_type, to_type:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return from_type.scale == to_type.scale and from_type.precision <= to_type.precision
        case (DateType(), TimestampType() | TimestampNanoType()) | (UnknownType(), PrimitiveType()):
            return format_version >= 3
    return from_type == to_type


def refuse_default(value: Any, kind: IcebergType) -> None:
    """Refuse a default that is no value of the type; PyIceberg cuts one that is too large to the largest there is."""
    if value is None:
        return
    if not kind.is_primitive:
        raise UserError(f"Cannot give a column of type {kind} a default value.")
    if isinstance(value, float) and not isfinite(value):
        raise UserError(f"Cannot take {value!r} as a default value: table metadata is JSON, which cannot hold it.")
    try:
        fitting = literal(value).to(kind)
    except (TypeError, ValueError) as e:
        raise UserError(f"Cannot take {value!r} as a default value of type {kind}: {e}") from e
    if isinstance(fitting, AboveMax | BelowMin) or not _fits_type(value, fitting.value, kind):
        raise UserError(f"Cannot take {value!r} as a default value of type {kind}: it does not fit.")


def _fits_type(value: Any, converted: Any, kind: IcebergType) -> bool:
    """Whether a type holds a number as it was given: without rounding, and in as many digits as it has."""
    if isinstance(kind, DecimalType):
        return len(Decimal(converted).as_tuple().digits) <= kind.precision
    if isinstance(kind, IntegerType | LongType) and isinstance(value, float | Decimal | str):
        return Decimal(str(value)) == converted
    return True


def refuse_promotion(field: NestedField, to_type: IcebergType, metadata: TableMetadata) -> None:
    """Refuse a change of type that would change what is stored already."""
    now, what = field.field_type, f"Cannot change the column {field.name!r} from {field.field_type} to {to_type}"
    if not can_promote(now, to_type, metadata.format_version):
        raise UserError(f"{what}. Only wider types are possible: add a column of the new type instead.")
    if not isinstance(now, DateType):
        return
    if field.initial_default is not None or field.write_default is not None:
        raise UserError(f"{what}: its default value is a date. Add a column of the new type instead.")
    for spec in metadata.specs().values():
        for part in spec.fields:
            if part.source_id == field.field_id and isinstance(part.transform, IdentityTransform | BucketTransform):
                raise UserError(
                    f"{what}: partition spec {spec.spec_id} has dates of it in the field {part.name!r}, which would "
                    "be other values. Add a column of the new type instead."
                )


def refuse_unfit_schema(schema: Schema, metadata: TableMetadata) -> None:
    """Refuse a schema that does not fit the version, the specs or the sort order of the table.

    What does not fit already is left alone: the change is not to blame for it.
    """
    check_schema_fits(schema, metadata.format_version)
    if not schema.fields:
        raise UserError("Cannot drop all columns: a table has at least one.")
    _refuse_dropped_sources(schema, metadata)
    for spec in metadata.specs().values():
        for field in spec.fields:
            matters = spec.spec_id == metadata.default_spec_id or field.source_id in fields_by_id(schema)
            is_new = is_named_like_a_column(field, schema) and not is_named_like_a_column(field, metadata.schema())
            if matters and is_new:
                raise UserError(
                    f"Cannot name a column {field.name!r}: partition spec {spec.spec_id} has a field of that name, "
                    "made from another column. Choose another name."
                )


def _refuse_dropped_sources(schema: Schema, metadata: TableMetadata) -> None:
    before = metadata.schema()
    dropped = fields_by_id(before).keys() - fields_by_id(schema).keys()
    for field in metadata.spec().fields:
        if field.source_id in dropped and not isinstance(field.transform, VoidTransform):
            raise UserError(
                f"Cannot drop the column {before.find_column_name(field.source_id)!r}: the table is partitioned by it. "
                f"Drop the partition field first: evolve_partitions(drop=[{field.name!r}])."
            )
    for order in metadata.sort_order().fields:
        if order.source_id in dropped:
            raise UserError(
                f"Cannot drop the column {before.find_column_name(order.source_id)!r}: "
                "the table is sorted by it. Change the sort order first."
            )
