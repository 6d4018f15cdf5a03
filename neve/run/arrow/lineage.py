"""The columns that tell where a row is and where it came from, made from its position in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, StringType, StructType

from neve.run.arrow.build import Column, Constant, Rows, constant
from neve.run.arrow.columns import (
    DATA_SEQUENCE_NUMBER,
    FILE,
    LAST_UPDATED,
    ORDINAL,
    PARTITION_ID,
    POSITION,
    ROW_ID,
    SPEC_ID,
)
from neve.run.arrow.tasks import FileTask
from neve.run.arrow.types import Carrier, arrow_type

__all__ = ["computed_columns", "lineage_columns"]


@dataclass(frozen=True, slots=True)
class Counter:
    """Consecutive numbers: the position of a row, plus a start."""

    first: int = 0

    def build(self, columns: Sequence[pa.Array], rows: Rows) -> pa.Array:
        """The numbers of a stretch of rows."""
        start = self.first + rows.start
        return pa.array(np.arange(start, start + rows.count, dtype=np.int64))


def computed_columns(task: FileTask, schema: Schema, carrier: Carrier) -> dict[int, Column]:
    """The metadata columns whose values never come from the file."""
    columns: dict[int, Column] = {
        FILE.field_id: constant(task.path, StringType(), carrier),
        POSITION.field_id: Counter(),
        SPEC_ID.field_id: constant(task.spec_id, IntegerType(), carrier),
        ORDINAL.field_id: constant(task.ordinal, IntegerType(), carrier),
        DATA_SEQUENCE_NUMBER.field_id: constant(task.sequence_number, LongType(), carrier),
    }
    if task.first_row_id is None:  # the file is older than row lineage: what such columns hold in it means nothing
        nothing = constant(None, LongType(), carrier)
        columns |= {ROW_ID.field_id: nothing, LAST_UPDATED.field_id: nothing}
    for field in schema.fields:
        if field.field_id == PARTITION_ID and isinstance(field.field_type, StructType):
            columns[PARTITION_ID] = _partition(task, field.field_type, carrier)
    return columns


def lineage_columns(task: FileTask, carrier: Carrier) -> Mapping[int, Column]:
    """What rows inherit that do not carry their row id, or when they changed last."""
    if task.first_row_id is None:
        return {}
    changed = constant(task.sequence_number, LongType(), carrier)
    return {ROW_ID.field_id: Counter(task.first_row_id), LAST_UPDATED.field_id: changed}


def _partition(task: FileTask, kind: StructType, carrier: Carrier) -> Constant:
    union = task.union or [None] * len(kind.fields)
    values = [constant(v, f.field_type, carrier).value for v, f in zip(union, kind.fields, strict=True)]
    fields = list(arrow_type(kind, carrier))
    return Constant(pa.StructArray.from_arrays(values, fields=fields) if fields else pa.array([{}], pa.struct([])))
