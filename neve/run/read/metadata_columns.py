"""Metadata columns: where a row is stored and where it came from. They are computed, mostly from its position.

Every table has them. A projected schema selects one by its reserved field id; the caller chooses the name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from neve.model.partition import Specs
from neve.run.read.array_builders import ColumnBuilder, ConstantColumn, FileRows, constant_column
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
# The same holds for the index of the file in its plan, which is a short name of the file within one job.
ORDINAL = NestedField(2147483599, "_ordinal", IntegerType(), required=True)

_FIXED_COLUMNS = (FILE, POSITION, SPEC_ID, ROW_ID, LAST_UPDATED, DATA_SEQUENCE_NUMBER, ORDINAL)
METADATA_IDS = frozenset([PARTITION_ID, *(field.field_id for field in _FIXED_COLUMNS)])


def metadata_columns(specs: Specs) -> dict[str, NestedField]:
    """Return all metadata columns that a scan can select, by name."""
    columns = (FILE, POSITION, SPEC_ID, partition_column(specs), ROW_ID, LAST_UPDATED, DATA_SEQUENCE_NUMBER)
    return {field.name: field for field in columns}


def partition_column(specs: Specs) -> NestedField:
    """Return `_partition`: the union tuple of all specs; a field that the spec of a file does not have is null."""
    newest = {u.field.name.lower(): u.column for u in specs.union}
    # If several fields had the same name, the newest keeps it; the others get the name of their tuple column added.
    fields = [
        u.field
        if newest[u.field.name.lower()] == u.column
        else u.field.model_copy(update={"name": f"{u.field.name}_{u.column}"})
        for u in specs.union
    ]
    return NestedField(PARTITION_ID, "_partition", StructType(*fields), required=True)


@dataclass(frozen=True, slots=True)
class CountingColumn:
    """The position of a row plus an offset."""

    start: int = 0

    def build(self, columns: Sequence[pa.Array], rows: FileRows) -> pa.Array:
        """Return the numbers of the rows."""
        return pa.array(self.start + rows.positions)


def computed_columns(task: FileTask, schema: Schema, flavor: ArrowFlavor) -> dict[int, ColumnBuilder]:
    """Return the metadata columns whose values never come from the file, by field id."""
    columns: dict[int, ColumnBuilder] = {
        FILE.field_id: constant_column(task.path, StringType(), flavor),
        POSITION.field_id: CountingColumn(),
        SPEC_ID.field_id: constant_column(task.spec_id, IntegerType(), flavor),
        ORDINAL.field_id: constant_column(task.ordinal, IntegerType(), flavor),
        DATA_SEQUENCE_NUMBER.field_id: constant_column(task.sequence_number, LongType(), flavor),
    }
    if task.first_row_id is None:  # the file is older than row lineage: its own columns of that name mean nothing
        null_column = constant_column(None, LongType(), flavor)
        columns |= {ROW_ID.field_id: null_column, LAST_UPDATED.field_id: null_column}
    for field in schema.fields:
        if field.field_id == PARTITION_ID and isinstance(field.field_type, StructType):
            parts = field.field_type.fields
            union = task.union_tuple or [None] * len(parts)
            values = [constant_column(v, f.field_type, flavor).value for v, f in zip(union, parts, strict=True)]
            arrow_fields = list(arrow_type(field.field_type, flavor))
            tuple_row = (
                pa.StructArray.from_arrays(values, fields=arrow_fields) if values else pa.array([{}], pa.struct([]))
            )
            columns[PARTITION_ID] = ConstantColumn(tuple_row)
    return columns


def lineage_columns(task: FileTask, flavor: ArrowFlavor) -> Mapping[int, ColumnBuilder]:
    """Return the lineage that rows inherit if they do not store their row id or their last change, by field id."""
    if task.first_row_id is None:
        return {}
    last_updated = constant_column(task.sequence_number, LongType(), flavor)
    return {ROW_ID.field_id: CountingColumn(task.first_row_id), LAST_UPDATED.field_id: last_updated}
