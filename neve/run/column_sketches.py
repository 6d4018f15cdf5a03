"""Make a theta sketch of each of some columns, from batches of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from neve.io.theta import ThetaSketch
from neve.run.value_hashes import hash_values


def sketch_columns(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> list[ThetaSketch]:
    """Return the sketches of columns, or of fields in structs, by their full names."""
    sketches = [ThetaSketch() for _ in columns]
    for batch in batches:
        for number, name in enumerate(columns):
            sketches[number] = sketches[number].adding(hash_values(_values(batch, name)))
    return sketches


def _values(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name in batch.schema.names:
        return batch.column(name)
    first, *inner = name.split(".")
    return pc.struct_field(batch.column(first), inner)
