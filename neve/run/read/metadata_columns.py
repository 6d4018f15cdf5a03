"""The columns that tell where a row is and where it came from, made from its position in the file.

The columns every table has without storing them: where a row is, and where it came from.

A projected schema asks for one of them by its reserved field id; the name in the schema is the caller's choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from neve.model.partition import Specs, UnionField
from neve.run.read.array_builders import ColumnBuilder, ConstantColumn, RowRange, constant_column
from neve.run.read.tasks import FileTask
from neve.run.read.types import ArrowFlavor, arrow_type

PARTITION_ID = 2147483642
DELETE_PATH_ID = 2147483546  # the two columns of a position delete file
DELETE_POSITION_ID = 2147483545

FILE = NestedField(2147483646, "_file", StringType(), required=True)
POSITION = NestedField(2147483645, "_pos", LongType(), required=True)
SPEC_ID = NestedField(2147483643, "_spec_id", IntegerType(), required=True)
ROW_ID = NestedField(2147483540, "_row_id", LongType(), required=False)
LAST_UPDATED = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)
# No id is reserved for this one; it is taken from the reserved range and never written to a file.
DATA_SEQUENCE_NUMBER = NestedField(2147483600, "_data_sequence_number", LongType(), required=False)
# Nor for the place of the file in its plan, a short name of the file for the time of one job.
ORDINAL = NestedField(2147483599, "_ordinal", IntegerType(), required=True)

METADATA_IDS = frozenset(
    [
        PARTITION_ID,
        *(f.field_id for f in (FILE, POSITION, SPEC_ID, ROW_ID, LAST_UPDATED, DATA_SEQUENCE_NUMBER, ORDINAL)),
    ]
)


def metadata_columns(specs: Specs) -> dict[str, NestedField]:
    """All of them, by name."""
    columns = (FILE, POSITION, SPEC_ID, partition_column(specs), ROW_ID, LAST_UPDATED, DATA_SEQUENCE_NUMBER)
    return {field.name: field for field in columns}


def partition_column(specs: Specs) -> NestedField:
    """`_partition_constant`: the union tuple of all specs; a field the spec of a file does not have is null."""
    newest = {u.field.name.lower(): u.column for u in specs.union}
    # A name that several fields bore stays with the newest; the others show the column of the tuple they are in.
    taken = [newest[u.field.name.lower()] != u.column for u in specs.union]
    fields = [_renamed(u) if is_taken else u.field for u, is_taken in zip(specs.union, taken, strict=True)]
    return NestedField(PARTITION_ID, "_partition", StructType(*fields), required=True)


def _renamed(union: UnionField) -> NestedField:
    return union.field.model_copy(update={"name": f"{union.field.name}_{union.column}"})


@dataclass(frozen=True, slots=True)
class CountingColumn:
    """Consecutive numbers: the position of a row, plus a start."""

    start: int = 0

    def build(self, columns: Sequence[pa.Array], rows: RowRange) -> pa.Array:
        """The numbers of a stretch of rows."""
        start = self.start + rows.start
        return pa.array(np.arange(start, start + rows.count, dtype=np.int64))


def computed_columns(task: FileTask, schema: Schema, flavor: ArrowFlavor) -> dict[int, ColumnBuilder]:
    """The metadata columns whose values never come from the file."""
    columns: dict[int, ColumnBuilder] = {
        FILE.field_id: constant_column(task.path, StringType(), flavor),
        POSITION.field_id: CountingColumn(),
        SPEC_ID.field_id: constant_column(task.spec_id, IntegerType(), flavor),
        ORDINAL.field_id: constant_column(task.ordinal, IntegerType(), flavor),
        DATA_SEQUENCE_NUMBER.field_id: constant_column(task.sequence_number, LongType(), flavor),
    }
    if task.first_row_id is None:  # the file is older than row lineage: what such columns hold in it means nothing
        nothing = constant_column(None, LongType(), flavor)
        columns |= {ROW_ID.field_id: nothing, LAST_UPDATED.field_id: nothing}
    for field in schema.fields:
        if field.field_id == PARTITION_ID and isinstance(field.field_type, StructType):
            columns[PARTITION_ID] = _partition_constant(task, field.field_type, flavor)
    return columns


def lineage_columns(task: FileTask, flavor: ArrowFlavor) -> Mapping[int, ColumnBuilder]:
    """What rows inherit that do not carry their row id, or when they changed last."""
    if task.first_row_id is None:
        return {}
    changed = constant_column(task.sequence_number, LongType(), flavor)
    return {ROW_ID.field_id: CountingColumn(task.first_row_id), LAST_UPDATED.field_id: changed}


def _partition_constant(task: FileTask, kind: StructType, flavor: ArrowFlavor) -> ConstantColumn:
    union = task.union_tuple or [None] * len(kind.fields)
    values = [constant_column(v, f.field_type, flavor).value for v, f in zip(union, kind.fields, strict=True)]
    fields = list(arrow_type(kind, flavor))
    return ConstantColumn(
        pa.StructArray.from_arrays(values, fields=fields) if fields else pa.array([{}], pa.struct([]))
    )
