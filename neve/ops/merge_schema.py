"""Which columns a MERGE with schema evolution brings to a table: those its clauses take from the source by name."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.schema import Schema
from pyspark.sql import types as sp

from neve.ops.merge_clauses import Action, Clause
from neve.run.spark.types import spark_type

__all__ = ["wanted_columns"]

_WIDER = ((sp.IntegerType, sp.LongType), (sp.FloatType, sp.DoubleType))


def wanted_columns(schema: Schema, source: sp.StructType, clauses: Iterable[Clause]) -> sp.StructType:
    """The columns of the source that the table lacks, or has in a narrower type, and that some clause assigns."""
    named: set[str] = set()
    for clause in clauses:
        if clause.action is not Action.DELETE:
            given = [f.name for f in source.fields] if clause.given is None else [c for c, _ in clause.given]
            named |= {name.split(".")[0].lower() for name in given}
    ours = {f.name.lower(): f for f in schema.fields}
    found = []
    for f in source.fields:
        if f.name.lower() not in named:
            continue
        known = ours.get(f.name.lower())
        if known is None:
            found.append(sp.StructField(f.name, f.dataType, True))
        elif (wider := _wider(spark_type(known.field_type), f.dataType)) is not None:
            found.append(sp.StructField(known.name, wider, True))
    return sp.StructType(found)


def _wider(ours: sp.DataType, theirs: sp.DataType) -> sp.DataType | None:
    """The type that holds the values of both, when it is not ours already and the format allows the change."""
    match ours, theirs:
        case sp.StructType(), sp.StructType():
            return _wider_struct(ours, theirs)
        case sp.DecimalType(), sp.DecimalType() if ours.scale == theirs.scale and theirs.precision > ours.precision:
            return theirs
    return theirs if (type(ours), type(theirs)) in _WIDER else None


def _wider_struct(ours: sp.StructType, theirs: sp.StructType) -> sp.StructType | None:
    known = {f.name.lower(): f for f in ours.fields}
    changed = []
    for f in theirs.fields:
        mine = known.get(f.name.lower())
        if mine is None:
            changed.append(sp.StructField(f.name, f.dataType, True))
        elif (wider := _wider(mine.dataType, f.dataType)) is not None:
            changed.append(sp.StructField(mine.name, wider, True))
    return sp.StructType(changed) if changed else None
