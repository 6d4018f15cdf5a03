"""Data files where tables keep them: an object store, reached through either of PyIceberg's file layers."""

from __future__ import annotations

import io as streams
import json
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, ListType, LongType, MapType, NestedField, StringType, StructType

from neve.errors import MissingFile
from neve.run.read.file_reader import FileTask, ReadTarget, read_batches
from neve.run.read.tasks import DeleteFile
from tests.support.servers import ObjectStore

ROWS = [{"id": i, "s": f"v{i}"} for i in range(3000)]
TARGET = ReadTarget(
    Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "s", StringType(), required=False))
)
NAME = "a b%2F#?é"  # what URIs would encode, or cut off


def table() -> pa.Table:
    fields = [
        pa.field(n, t, True, {"PARQUET:field_id": str(i), "iceberg.id": str(i)})
        for i, (n, t) in enumerate((("id", pa.int64()), ("s", pa.string())), 1)
    ]
    return pa.Table.from_pylist(ROWS, schema=pa.schema(fields))


def encoded(kind: str) -> bytes:
    sink = streams.BytesIO()
    if kind == "parquet":
        pq.write_table(table(), sink, row_group_size=500)
    elif kind == "orc":
        orc.write_table(table(), sink)
    else:
        fields = [{"name": n, "type": t, "field-id": i} for i, n, t in ((1, "id", "long"), (2, "s", "string"))]
        fastavro.writer(sink, {"type": "record", "name": "r", "fields": fields}, ROWS, sync_interval=5_000)
    return sink.getvalue()


def deletes(path: str) -> bytes:
    fields = [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
    sink = streams.BytesIO()
    pq.write_table(pa.table([[path] * 2, [0, 2999]], schema=pa.schema(fields)), sink)
    return sink.getvalue()


@pytest.fixture(scope="module")
def store(object_store: ObjectStore) -> tuple[dict[str, str], Any]:
    client = object_store.client
    for kind in ("parquet", "orc", "avro"):
        client.put_object(Bucket="lake", Key=f"t/{NAME}.{kind}", Body=encoded(kind))
        client.put_object(Bucket="lake", Key=f"t/del-{kind}", Body=deletes(f"s3a://lake/t/{NAME}.{kind}"))
    return object_store.properties, client


@pytest.mark.parametrize("layer", [PyArrowFileIO, FsspecFileIO])
@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_every_format_is_read_from_an_object_store(
    store: tuple[dict[str, str], Any], layer: type[FileIO], kind: str
) -> None:
    task = FileTask(
        f"s3://lake/t/{NAME}.{kind}",
        kind.upper(),
        len(encoded(kind)) if kind != "avro" else None,  # its sync marker is drawn anew, its size may differ
        len(ROWS),
        deletes=(DeleteFile(f"s3://lake/t/del-{kind}"),),
    )
    batches = read_batches(layer(store[0]), task, TARGET)
    assert [row for batch in batches for row in batch.to_pylist()] == ROWS[1:-1]


@pytest.mark.parametrize("layer", [PyArrowFileIO, FsspecFileIO])
def test_an_object_that_is_gone_is_missing(store: tuple[dict[str, str], Any], layer: type[FileIO]) -> None:
    with pytest.raises(MissingFile, match="nowhere"):
        list(read_batches(layer(store[0]), FileTask("s3://lake/t/nowhere"), TARGET))


AVRO_NESTED = {
    "type": "record",
    "name": "table",
    "fields": [
        {
            "name": "by_number",
            "field-id": 1,
            "type": {
                "type": "array",
                "logicalType": "map",
                "items": {
                    "type": "record",
                    "name": "k2_v3",
                    "fields": [
                        {"name": "key", "type": "int", "field-id": 2},
                        {"name": "value", "type": ["null", "string"], "field-id": 3},
                    ],
                },
            },
        },
        {
            "name": "by_name",
            "field-id": 4,
            "type": ["null", {"type": "map", "values": "int", "key-id": 5, "value-id": 6}],
        },
        {
            "name": "points",
            "field-id": 7,
            "type": {
                "type": "array",
                "element-id": 8,
                "items": {
                    "type": "record",
                    "name": "r8",
                    "fields": [
                        {"name": "x", "type": "int", "field-id": 9},
                        {"name": "y", "type": ["null", "long"], "field-id": 10},
                    ],
                },
            },
        },
        {
            "name": "price",
            "field-id": 11,
            "type": {
                "type": "fixed",
                "name": "f4",
                "size": 4,
                "logicalType": "decimal",
                "precision": 9,
                "scale": 2,
            },
        },
    ],
}


def test_nested_avro_is_matched_by_id_and_its_maps_of_numbers_are_maps(tmp_path: Any) -> None:
    from decimal import Decimal

    rows = [
        {
            "by_number": [{"key": k, "value": None if k % 2 else str(k)} for k in range(i % 4)],
            "by_name": None if i % 3 == 0 else {"a": i},
            "points": [{"x": i, "y": None}, {"x": -i, "y": i}][: i % 3],
            "price": Decimal(i).scaleb(-2),
        }
        for i in range(50)
    ]
    path = tmp_path / "nested.avro"
    with path.open("wb") as out:
        fastavro.writer(out, json.loads(json.dumps(AVRO_NESTED)), rows)
    point = StructType(
        NestedField(10, "why", LongType(), required=False), NestedField(9, "ex", LongType(), required=True)
    )
    schema = Schema(
        NestedField(7, "p", ListType(8, point, True), required=False),
        NestedField(1, "numbers", MapType(2, LongType(), 3, StringType(), False), required=False),
        NestedField(4, "names", MapType(5, StringType(), 6, LongType(), True), required=False),
        NestedField(11, "cost", DecimalType(20, 2), required=False),
    )
    found = [
        r for b in read_batches(PyArrowFileIO(), FileTask(str(path), "AVRO"), ReadTarget(schema)) for r in b.to_pylist()
    ]
    assert found == [
        {
            "p": [{"why": p["y"], "ex": p["x"]} for p in row["points"]],
            "numbers": [(pair["key"], pair["value"]) for pair in row["by_number"]],
            "names": row["by_name"] and list(row["by_name"].items()),
            "cost": row["price"],
        }
        for row in rows
    ]
