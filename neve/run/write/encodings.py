"""Choose the columns of a data file that get a dictionary: those where it pays.

A dictionary stores each distinct value once, and a short number for every row. It makes a column of few values smaller
and faster to read. A column of many values pays for hashing on every write, and readers pay for two encodings, because
the writer gives up only when the dictionary is full.

The choice is made when a file is begun, from its first row group, and holds for the whole file. A sample of rows at
equal distances tells how many distinct values the row group has, if values repeat at random. Rows sorted by a key that
repeats in neighbours look distinct in such a sample, and the column is stored plainly: it compresses well that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, inf, log2

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import BooleanType, DecimalType, PrimitiveType

from neve.run.write.metrics import LeafColumn, leaf_values

_SAMPLE_ROWS, _SAMPLE_BYTES = 8192, 8 << 20
_MAX_SHARE = 0.6  # of the plain size: a dictionary that saves less costs more than it saves
_ALL_DISTINCT = 0.995  # of the sample; beyond it, the number of distinct values cannot be estimated


def dictionary_columns(rows: pa.Table, leaves: Sequence[LeafColumn], dictionary_limit: int) -> list[str]:
    """Return the Parquet paths of the columns that get a dictionary of at most `dictionary_limit` bytes."""
    count = min(_SAMPLE_ROWS, _SAMPLE_BYTES * rows.num_rows // max(rows.nbytes, 1) + 1)
    sample = rows.take(pa.array(np.arange(0, rows.num_rows, max(rows.num_rows // count, 1))))
    scale = rows.num_rows / max(sample.num_rows, 1)
    return [
        leaf.parquet_path
        for leaf in leaves
        if not isinstance(leaf.kind, BooleanType)
        and _saves_space(leaf_values(sample, leaf.path), leaf.kind, scale, dictionary_limit)
    ]


def _saves_space(sample: pa.ChunkedArray, kind: PrimitiveType, scale: float, dictionary_limit: int) -> bool:
    """Return whether a dictionary makes a column chunk smaller that has `scale` times the values of a sample."""
    values = sample.drop_null()
    if not len(values):
        return True  # only nulls: nothing is stored either way
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.cast(values.type.storage_type)
    distinct = _estimate_distinct(len(values), pc.count_distinct(values).as_py())
    value_bytes = 8 if isinstance(kind, DecimalType) else values.nbytes / len(values)  # most decimals are long integers
    dictionary_bytes = min(distinct, len(values) * scale) * value_bytes
    index_bytes = ceil(log2(max(distinct, 2))) / 8 if distinct < inf else value_bytes
    share = (dictionary_bytes + len(values) * scale * index_bytes) / (len(values) * scale * value_bytes)
    return dictionary_bytes <= dictionary_limit and share <= _MAX_SHARE


def _estimate_distinct(sampled: int, seen: int) -> float:
    """Estimate how many distinct values there are if a random sample of some values has `seen` distinct ones."""
    if seen > sampled * _ALL_DISTINCT:
        return inf
    low, high = float(seen), float(sampled) ** 2  # the expected number seen grows with the number there is
    while high - low > 0.01 * low:
        middle = (low + high) / 2
        if middle * (1 - exp(-sampled / middle)) < seen:
            low = middle
        else:
            high = middle
    return high
