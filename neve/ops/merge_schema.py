"""Which columns a MERGE with schema evolution brings to a table: those its clauses take from the source by name."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, FloatType, IcebergType, IntegerType, StructType
from pyspark.sql import types as sp

from neve.ops.merge_clauses import Action, Clause

__all__ = ["wanted_columns"]

_WIDER = ((IntegerType, sp.LongType), (FloatType, sp.DoubleType))


def wanted_columns(schema: Schema, source: sp.StructType, clauses: Iterable[Clause]) -> sp.StructType:
    """The columns of the source that the table lacks, or has in a narrower type, and that some clause assigns."""
    named: set[str] = set()
    for clause in clauses:
        if clause.given is not None:
            named |= {column.split(".")[0].lower() for column, _ in clause.given}
        elif clause.action is not Action.DELETE:
            named |= {f.name.lower() for f in source.fields}
    taken = sp.StructType([f for f in source.fields if f.name.lower() in named])
    return _wider_struct(schema.as_struct(), taken) or sp.StructType([])


def _wider(ours: IcebergType, theirs: sp.DataType) -> sp.DataType | None:
    """The type that holds the values of both, when it is not ours already and the format allows the change."""
    match ours, theirs:
        case StructType(), sp.StructType():
            return _wider_struct(ours, theirs)
        case DecimalType(), sp.DecimalType() if ours.scale == theirs.scale and theirs.precision > ours.precision:
            return theirs
    return theirs if (type(ours), type(theirs)) in _WIDER else None


def _wider_struct(ours: StructType, theirs: sp.StructType) -> sp.StructType | None:
    """The fields that are new, or wider there; those we have stay as required as they are."""
    known = {f.name.lower(): f for f in ours.fields}
    changed = []
    for f in theirs.fields:
        mine = known.get(f.name.lower())
        if mine is None:
            changed.append(sp.StructField(f.name, f.dataType, True))
        elif (wider := _wider(mine.field_type, f.dataType)) is not None:
            changed.append(sp.StructField(mine.name, wider, not mine.required))
    return sp.StructType(changed) if changed else None
