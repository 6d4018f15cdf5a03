"""Some records of a file: those wanted are decoded, the others are stepped over."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from neve.errors import CorruptFile
from neve.io.avro import Projection, decode, encode
from neve.io.avro.jit import PYTHON_BACKEND, load_compiled

SCHEMA = {
    "type": "record",
    "name": "entry",
    "fields": [
        {"name": "status", "type": "int"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "counts", "type": ["null", {"type": "array", "items": "long"}]},
        {"name": "inner", "type": {"type": "record", "name": "i", "fields": [{"name": "x", "type": "double"}]}},
        {
            "name": "nested",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "n", "fields": [{"name": "b", "type": ["null", "bytes"]}]},
            },
        },
    ],
}
ROWS = 500


@pytest.fixture(scope="module")
def whole() -> tuple[bytes, pa.RecordBatch]:
    rng = np.random.default_rng(5)
    rows = [
        {
            "status": i % 3,
            "name": None if i % 7 == 0 else f"n{i}" * (i % 5),
            "counts": None if i % 11 == 0 else rng.integers(0, 1 << 40, i % 4).tolist(),
            "inner": {"x": i / 3},
            "nested": [{"b": None if j % 2 else bytes([j]) * i} for j in range(i % 3)],
        }
        for i in range(ROWS)
    ]
    data = encode(pa.Table.from_pylist(rows), SCHEMA, {}, block_bytes=2_000)
    return data, decode(data, "t")[0]


@pytest.mark.parametrize("backend", [PYTHON_BACKEND, load_compiled()], ids=["python", "compiled"])
@pytest.mark.parametrize("step", [1, 2, 7, 499])
@pytest.mark.parametrize("start", [0, 1, 250])
def test_wanted_records_are_those_of_the_whole_file(whole, backend, step, start):
    data, batch = whole
    rows = np.arange(start, ROWS, step)
    found, _ = decode(data, "t", backend=backend, rows=rows)
    assert found.to_pylist() == batch.take(pa.array(rows)).to_pylist()


def test_no_record_wanted_gives_an_empty_batch(whole):
    found, _ = decode(whole[0], "t", rows=np.array([], np.int64))
    assert found.num_rows == 0


def test_wanted_records_of_a_projection(whole):
    data, batch = whole
    found, _ = decode(data, "t", Projection(frozenset({"counts"})), rows=np.array([3, 9, 499]))
    assert found.to_pydict() == {"counts": batch.column("counts").take(pa.array([3, 9, 499])).to_pylist()}


@pytest.mark.parametrize("rows", [[ROWS], [5, 5], [7, 3]])
def test_records_that_cannot_be_wanted_are_refused(whole, rows):
    with pytest.raises(CorruptFile, match="ascending record numbers"):
        decode(whole[0], "t", rows=np.array(rows))
