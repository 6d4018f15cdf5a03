"""The columns every table has without storing them: where a row is, and where it came from.

A projected schema asks for one of them by its reserved field id; the name in the schema is the caller's choice.
"""

from __future__ import annotations

from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from neve.model.partition import Specs, UnionField

__all__ = [
    "DATA_SEQUENCE_NUMBER",
    "DELETE_PATH_ID",
    "DELETE_POSITION_ID",
    "FILE",
    "LAST_UPDATED",
    "METADATA_IDS",
    "ORDINAL",
    "PARTITION_ID",
    "POSITION",
    "ROW_ID",
    "SPEC_ID",
    "metadata_columns",
    "partition_column",
]

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
    """`_partition`: the union tuple of all specs; a field the spec of a file does not have is null."""
    newest = {u.field.name.lower(): u.column for u in specs.union}
    # A name that several fields bore stays with the newest; the others show the column of the tuple they are in.
    taken = [newest[u.field.name.lower()] != u.column for u in specs.union]
    fields = [_renamed(u) if is_taken else u.field for u, is_taken in zip(specs.union, taken, strict=True)]
    return NestedField(PARTITION_ID, "_partition", StructType(*fields), required=True)


def _renamed(union: UnionField) -> NestedField:
    return union.field.model_copy(update={"name": f"{union.field.name}_{union.column}"})
