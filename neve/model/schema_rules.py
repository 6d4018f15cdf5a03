"""Rules for changes of columns: which types a column may change to, and which changes are rejected.

The format allows a change of type only if every stored value keeps its meaning.
"""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Any

from pyiceberg import types as ice
from pyiceberg.expressions.literals import AboveMax, BelowMin, literal
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform

from neve.errors import UserError
from neve.model.ddl import is_named_like_a_column
from neve.model.metadata import TableMetadata, check_schema_fits
from neve.model.pyiceberg_private import fields_by_id


def can_promote(from_type: ice.IcebergType, to_type: ice.IcebergType, format_version: int) -> bool:
    """Check whether a column may change from one type to another; a type may also stay as it is."""
    match from_type, to_type:
        case (ice.IntegerType(), ice.LongType()) | (ice.FloatType(), ice.DoubleType()):
            return True
        case ice.DecimalType(), ice.DecimalType():
            return from_type.scale == to_type.scale and from_type.precision <= to_type.precision
        case (ice.DateType(), ice.TimestampType() | ice.TimestampNanoType()) | (ice.UnknownType(), ice.PrimitiveType()):
            return format_version >= 3
    return from_type == to_type


def refuse_default(value: Any, kind: ice.IcebergType) -> None:
    """Reject a default that is no value of the type; PyIceberg would replace too large a number by the maximum."""
    if value is None:
        return
    if not kind.is_primitive:
        raise UserError(f"Cannot give a column of type {kind} a default value.")
    if isinstance(value, float) and not isfinite(value):
        raise UserError(f"Cannot take {value!r} as a default value: table metadata is JSON, which cannot hold it.")
    try:
        converted = literal(value).to(kind)
    except (TypeError, ValueError) as e:
        raise UserError(f"Cannot take {value!r} as a default value of type {kind}: {e}") from e
    fits = not isinstance(converted, AboveMax | BelowMin)
    if fits and isinstance(kind, ice.DecimalType):
        fits = len(Decimal(converted.value).as_tuple().digits) <= kind.precision
    elif fits and isinstance(kind, ice.IntegerType | ice.LongType) and isinstance(value, float | Decimal | str):
        fits = Decimal(str(value)) == converted.value
    if not fits:
        raise UserError(f"Cannot take {value!r} as a default value of type {kind}: it does not fit.")


def refuse_promotion(field: ice.NestedField, to_type: ice.IcebergType, metadata: TableMetadata) -> None:
    """Reject a change of type that would change the meaning of stored values."""
    what = f"Cannot change the column {field.name!r} from {field.field_type} to {to_type}"
    if not can_promote(field.field_type, to_type, metadata.format_version):
        raise UserError(f"{what}. Only wider types are possible: add a column of the new type instead.")
    if not isinstance(field.field_type, ice.DateType):
        return
    if field.initial_default is not None or field.write_default is not None:
        raise UserError(f"{what}: its default value is a date. Add a column of the new type instead.")
    for spec in metadata.specs().values():
        for part in spec.fields:
            if part.source_id == field.field_id and isinstance(part.transform, IdentityTransform | BucketTransform):
                raise UserError(
                    f"{what}: partition spec {spec.spec_id} has its dates in the field {part.name!r}, and their "
                    "meaning would change. Add a column of the new type instead."
                )


def refuse_unfit_schema(schema: Schema, metadata: TableMetadata) -> None:
    """Reject a schema that does not fit the version, the specs or the sort order of the table.

    A name clash that the current schema has already is accepted: the change did not cause it.
    """
    before = metadata.schema()
    check_schema_fits(schema, metadata.format_version)
    if not schema.fields:
        raise UserError("Cannot drop all columns: a table has at least one.")
    dropped = fields_by_id(before).keys() - fields_by_id(schema).keys()
    for part in metadata.spec().fields:
        if part.source_id in dropped and not isinstance(part.transform, VoidTransform):
            raise UserError(
                f"Cannot drop the column {before.find_column_name(part.source_id)!r}: the table is partitioned by it. "
                f"Drop the partition field first: evolve_partitions(drop=[{part.name!r}])."
            )
    for order in metadata.sort_order().fields:
        if order.source_id in dropped:
            raise UserError(
                f"Cannot drop the column {before.find_column_name(order.source_id)!r}: "
                "the table is sorted by it. Change the sort order first."
            )
    for spec in metadata.specs().values():
        for field in spec.fields:
            is_in_use = spec.spec_id == metadata.default_spec_id or field.source_id in fields_by_id(schema)
            is_new_clash = is_named_like_a_column(field, schema) and not is_named_like_a_column(field, before)
            if is_in_use and is_new_clash:
                raise UserError(
                    f"Cannot name a column {field.name!r}: partition spec {spec.spec_id} has a field of that name, "
                    "derived from another column. Choose another name."
                )
