"""What the encoder accepts, casts and refuses, and what the files it writes look like."""

from __future__ import annotations

import decimal
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from neve.errors import UnsupportedFeature, UserError
from neve.io.avro import Projection, decode, encode
from neve.io.avro.jit import LARGE_FILE_BYTES, PYTHON_BACKEND, WARM_UP_BYTES, BackendChooser
from tests.support.avro_by_hand import record

ROOT = Path(__file__).resolve().parents[3]
PAIR = {"type": "record", "name": "kv", "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "long"}]}
SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        {"name": "contains_null", "type": "boolean", "field-id": 509},
        {"name": "contains_nan", "type": ["null", "boolean"], "field-id": 518},
        {"name": "lower_bound", "type": ["null", "bytes"], "field-id": 510},
    ],
}


def written_rows(batch: pa.RecordBatch | pa.Table, schema: dict[str, Any], **options: Any) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(encode(batch, schema, {}, **options))))


def test_field_and_element_ids_become_metadata_of_the_arrow_fields() -> None:
    items = {"type": "array", "items": SUMMARY, "element-id": 508}
    schema = {
        "type": "record",
        "name": "m",
        "fields": [{"name": "partitions", "type": ["null", items], "field-id": 507}],
    }
    field = decode(encode(pa.table({"partitions": [None]}), schema, {}), "f")[0].schema.field("partitions")
    element = field.type.value_field
    assert (field.metadata[b"field-id"], element.metadata[b"field-id"]) == (b"507", b"508")
    assert [f.metadata[b"field-id"] for f in element.type] == [b"509", b"518", b"510"]
    assert [f.nullable for f in (field, element, *element.type)] == [True, False, False, True, True]


def test_optional_fields_of_records_in_lists_are_written_and_read() -> None:
    rows = [
        {"p": [{"contains_null": True, "contains_nan": None, "lower_bound": b"a"}]},
        {"p": None},
        {"p": []},
        {"p": [{"contains_null": False, "contains_nan": True, "lower_bound": None}] * 3},
    ]
    schema = record(p=["null", {"type": "array", "items": SUMMARY}])
    batch = pa.RecordBatch.from_pylist(rows)
    assert written_rows(batch, schema) == rows
    assert decode(encode(batch, schema, {}), "f")[0].to_pylist() == rows


def test_skipped_numbers_are_counted_apart_from_an_optional_one_before_them() -> None:
    schema = record(a=["null", "int"], b="int", c=["null", "double"], d="double", z="string")
    table = pa.table({"a": [None, 1], "b": [2, 3], "c": [None, 0.5], "d": [1.5, 2.5], "z": ["x", "y"]})
    batch, _ = decode(encode(table, schema, {}), "f", Projection(frozenset({"z"})))
    assert batch.to_pydict() == {"z": ["x", "y"]}


def test_columns_are_found_by_name_and_may_be_missing_when_optional() -> None:
    table = pa.table({"b": [1, 2], "a": ["x", "y"]})
    assert written_rows(table, record(a="string", gone=["null", "long"], b="long")) == [
        {"a": "x", "gone": None, "b": 1},
        {"a": "y", "gone": None, "b": 2},
    ]


def test_columns_are_cast_when_nothing_is_lost() -> None:
    columns = {
        "i": pa.array([1, 2], pa.int64()),
        "s": pa.array(["x", "x"]).dictionary_encode(),
        "l": pa.array([[1], []], pa.large_list(pa.int16())),
        "m": pa.array([[(1, 2)], []], pa.map_(pa.int64(), pa.int32())),
        "e": pa.array(["B", "A"], pa.large_string()),
        "t": pa.chunked_array([[True], [False]]),
    }
    enum = {"type": "enum", "name": "e", "symbols": ["A", "B"]}
    lists, pairs = {"type": "array", "items": "long"}, {"type": "array", "items": PAIR, "logicalType": "map"}
    schema = record(i="int", s="string", l=lists, m=pairs, e=enum, t="boolean")
    assert written_rows(pa.table(columns), schema) == [
        {"i": 1, "s": "x", "l": [1], "m": [{"key": 1, "value": 2}], "e": "B", "t": True},
        {"i": 2, "s": "x", "l": [], "m": [], "e": "A", "t": False},
    ]


def test_values_below_a_null_are_neither_written_nor_checked() -> None:
    inner = pa.array([{"x": 1}, {"x": None}], pa.struct([("x", pa.int32())]))
    hidden = pa.StructArray.from_arrays([inner], names=["s"], mask=pa.array([False, True]))
    nested = record(x="int")
    schema = record(o=["null", {**record(s={**nested, "name": "s"}), "name": "o"}])
    assert written_rows(pa.table({"o": hidden}), schema) == [{"o": {"s": {"x": 1}}}, {"o": None}]


def test_dictionary_columns_below_a_null_may_have_an_empty_dictionary() -> None:
    enum = {"type": "enum", "name": "e", "symbols": ["A", "B"]}
    schema = record(o=["null", {**record(e=enum, s="string"), "name": "o"}])
    coded = pa.dictionary(pa.int32(), pa.string())
    column = pa.array([None], pa.struct([pa.field("e", coded, False), pa.field("s", coded, False)]))
    assert written_rows(pa.table({"o": column}), schema) == [{"o": None}]


DECIMAL = {"type": "fixed", "size": 2, "name": "d", "logicalType": "decimal", "precision": 10, "scale": 0}
REFUSED: dict[str, tuple[pa.Table, dict[str, Any], str]] = {
    "null in a required field": (pa.table({"a": [1, None]}), record(a="long"), "required field 'a' has null"),
    "a missing required column": (pa.table({"b": [1]}), record(a="long", b="long"), "required field 'a' has no column"),
    "a column without a field": (pa.table({"a": [1], "b": [1]}), record(a="long"), "has no field 'b'"),
    "an int of 33 bits": (pa.table({"a": [2**31]}), record(a="int"), "field 'a'"),
    "text for a number": (pa.table({"a": ["x"]}), record(a="int"), "field 'a'"),
    "a number for a record": (pa.table({"a": [1]}), record(a=PAIR), "field 'a'"),
    "null in a required field of an item": (
        pa.table({"a": [[{"key": 1, "value": None}]]}),
        record(a={"type": "array", "items": PAIR}),
        "required field 'a.value' has null",
    ),
    "an unknown symbol": (
        pa.table({"a": ["C"]}),
        record(a={"type": "enum", "name": "e", "symbols": ["A"]}),
        "not among its symbols",
    ),
    "a decimal too wide for its fixed": (
        pa.table({"a": pa.array([decimal.Decimal(40_000)], pa.decimal128(10, 0))}),
        record(a=DECIMAL),
        "decimals over 2 bytes",
    ),
    "a union of two types": (pa.table({"a": [1]}), record(a=["int", "string"]), "not supported"),
    "no record": (pa.table({"a": [1]}), {"type": "array", "items": "int"}, "is a record"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_the_schema_cannot_hold_is_refused(case: str) -> None:
    table, schema, words = REFUSED[case]
    with pytest.raises(UserError, match=words):
        encode(table, schema, {})


def test_a_codec_nobody_can_write_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="'lzo'"):
        encode(pa.table({"a": [1]}), record(a="long"), {}, "lzo")


def test_blocks_hold_about_as_many_bytes_as_asked() -> None:
    table = pa.table({"a": [bytes(98)] * 1000})  # 100 bytes with the length in front
    data = encode(table, record(a="bytes"), {}, "null", block_bytes=1000)
    counts = [block.num_records for block in fastavro.block_reader(io.BytesIO(data))]
    assert counts == [10] * 100
    one = encode(table.slice(0, 3), record(a="bytes"), {}, "null", block_bytes=1)
    assert [block.num_records for block in fastavro.block_reader(io.BytesIO(one))] == [1, 1, 1]


def test_no_rows_make_a_file_without_blocks() -> None:
    empty = pa.table({"a": pa.array([], pa.int64())})
    batch, _ = decode(encode(empty, record(a="long"), {}), "f")
    assert (batch.num_rows, batch.schema.names) == (0, ["a"])
    assert written_rows(empty, record(a="long")) == []


def test_zstandard_is_written() -> None:
    table = pa.table({"a": list(range(5000))})
    data = encode(table, record(a="long"), {}, "zstandard")
    batch, header = decode(data, "f")
    assert (header.codec, batch.column("a").to_pylist()) == ("zstandard", list(range(5000)))


@pytest.mark.parametrize("branches", [["null", "string"], ["string", "null"]])
def test_encoded_bytes_of_an_optional_field_say_themselves_whether_they_are_null(branches: list[str]) -> None:
    schema = record(a=branches, b="int")
    data = encode(pa.table({"a": ["x", None], "b": [1, 2]}), schema, {})
    raw, _ = decode(data, "f", Projection(None, frozenset({"a"})))
    assert raw.schema.field("a") == pa.field("a", pa.binary(), nullable=False)
    assert written_rows(raw, schema, encoded_fields=frozenset({"a"})) == [{"a": "x", "b": 1}, {"a": None, "b": 2}]


def test_a_uuid_and_a_nanosecond_timestamp_keep_their_types() -> None:
    uuid = {"type": "fixed", "size": 16, "name": "u", "logicalType": "uuid"}
    nanos = {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False}
    table = pa.table({"u": pa.array([bytes(16)], pa.binary(16)), "t": pa.array([123], pa.timestamp("ns"))})
    batch, _ = decode(encode(table, record(u=uuid, t=nanos), {}), "f")
    assert batch.to_pydict() == table.to_pydict()
    assert batch.schema.types == [pa.binary(16), pa.timestamp("ns")]


def test_without_numba_and_libdeflate_files_are_read_and_written_all_the_same(tmp_path: Path) -> None:
    schema = record(a="long", b=["null", "string"])
    table = pa.table({"a": [1, -(2**63), 2**63 - 1], "b": ["x", None, "é"]})
    (tmp_path / "in.avro").write_bytes(encode(table, schema, {}))
    script = """
import sys
sys.modules["numba"] = sys.modules["deflate"] = None  # importing them fails
from pathlib import Path
from neve.io.avro import decode, encode
from neve.io.avro.jit import PYTHON_BACKEND, load_compiled
assert load_compiled() is PYTHON_BACKEND
batch, header = decode(Path("in.avro").read_bytes(), "in.avro")
Path("out.avro").write_bytes(encode(batch, header.schema, {}))
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, env={"PYTHONPATH": str(ROOT)})
    assert decode((tmp_path / "out.avro").read_bytes(), "f")[0].to_pydict() == table.to_pydict()


def test_compiled_kernels_are_for_a_process_that_reads_much() -> None:
    small = BackendChooser()
    assert all(small.backend_for(WARM_UP_BYTES // 16) is PYTHON_BACKEND for _ in range(16))
    assert small.backend_for(1) is not PYTHON_BACKEND
    assert small.backend_for(1) is small.load_compiled()


def test_compiled_kernels_are_for_a_large_file_at_once() -> None:
    large = BackendChooser()
    assert large.backend_for(LARGE_FILE_BYTES) is PYTHON_BACKEND
    assert large.backend_for(LARGE_FILE_BYTES + 1) is not PYTHON_BACKEND
