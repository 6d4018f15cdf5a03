"""How columns of Parquet metadata are encoded: by what their values do, of which some say nothing."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.io.parquet_by_field_id import encode_parquet

RANDOM = np.random.default_rng(1)
LEAVES, FILES = 2000, 200  # of a root: first the rows of leaves, then those of files
DICTIONARY, DELTA, SPLIT, PLAIN = "RLE_DICTIONARY", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"


def encoded(values: pa.Array) -> pq.ColumnChunkMetaData:
    data = encode_parquet(pa.table({"a": values}), {})
    return pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        pytest.param(pa.array(RANDOM.integers(0, 20, 3000)), DICTIONARY, id="few values come back"),
        pytest.param(pa.array([7] * 3000), DICTIONARY, id="one value"),
        pytest.param(pa.array(np.arange(3000) // 10), DELTA, id="values follow themselves only"),
        pytest.param(pa.array(RANDOM.integers(0, 1 << 60, 3000)), DELTA, id="no value twice"),
        pytest.param(pa.array(RANDOM.random(3000)), SPLIT, id="floating point"),
        pytest.param(
            pa.array([1.5] * LEAVES + list(RANDOM.random(FILES))), SPLIT, id="all leaves alike, every file another"
        ),
        pytest.param(
            pa.array([None] * LEAVES + list(range(0, FILES * 999, 999)), pa.int64()), DELTA, id="told of files only"
        ),
        pytest.param(pa.array(["eu", "eu", "us"] * 1000), DICTIONARY, id="text that comes back"),
        pytest.param(pa.array([f"p{n // 4:05d}" for n in range(3000)]), DICTIONARY, id="text that follows itself"),
        pytest.param(pa.array([f"p{n:05d}" for n in range(3000)]), PLAIN, id="no text twice"),
        pytest.param(pa.array([True, False, None] * 1000), DICTIONARY, id="truth"),
        pytest.param(pa.nulls(3000, pa.int64()), PLAIN, id="nothing"),
    ],
)
def test_encoding_by_what_values_do(values: Any, wanted: str):
    found = encoded(values).encodings
    if pa.types.is_boolean(values.type):
        wanted = "RLE"  # Parquet has no dictionary of two values
    assert wanted in found
    assert wanted == DICTIONARY or DICTIONARY not in found
