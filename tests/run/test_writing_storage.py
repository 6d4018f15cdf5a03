"""Data files in an object store: a real S3 server on loopback, through both of PyIceberg's file access libraries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from neve.errors import UserError
from neve.run.writing.layout import FileNames
from neve.run.writing.local import write_arrow
from neve.run.writing.sink import write_batches
from neve.run.writing.target import WriteTarget

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
LIBRARIES = ["pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO"]


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", **KEYS)
    client.create_bucket(Bucket="lake")
    yield client
    server.stop()


@pytest.fixture(params=LIBRARIES, ids=["pyarrow", "fsspec"])
def target(request: pytest.FixtureRequest, store: Any, aim: Any) -> WriteTarget:
    properties = {
        "py-io-impl": request.param,
        "s3.endpoint": store.meta.endpoint_url,
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.region": "us-east-1",
    }
    made: WriteTarget = aim(SCHEMA, [(2, "identity")])
    location = f"s3://lake/{request.node.name.replace('[', '-').replace(']', '')} #1"
    return replace(made, location=location, io_properties=properties)


def objects(store: Any, target: WriteTarget) -> set[str]:
    """The files of a table; Arrow leaves an empty marker where the last file of a folder was."""
    prefix = target.location.removeprefix("s3://lake/")
    keys = [o["Key"] for o in store.list_objects_v2(Bucket="lake", Prefix=prefix).get("Contents", [])]
    return {f"s3://lake/{key}" for key in keys if not key.endswith("/")}


def test_files_in_an_object_store_are_whole_and_where_they_say(store: Any, target: WriteTarget):
    written = write_arrow(pa.table({"id": [1, 2, 3], "name": ["a b", "c%d", None]}), target)
    assert objects(store, target) == set(written["file_path"].to_pylist())
    for row in written.to_pylist():
        body = store.get_object(Bucket="lake", Key=row["file_path"].removeprefix("s3://lake/"))["Body"].read()
        assert len(body) == row["file_size_in_bytes"]
        assert pq.read_table(pa.BufferReader(body))["name"].to_pylist() == [row["p1000"]]


def test_a_failed_write_leaves_nothing_in_the_store(store: Any, target: WriteTarget):
    good = pa.RecordBatch.from_pydict({"id": list(range(70_000)), "name": ["x"] * 70_000})
    bad = pa.RecordBatch.from_pydict({"id": pa.array([None], pa.int64()), "name": ["y"]})
    small = target.with_options(target_file_size=100_000)
    with pytest.raises(UserError, match="'id'"):
        write_batches([good, good, bad], small, FileNames(0, 0, "w"), is_clustered=True)
    assert objects(store, target) == set()


def test_credentials_are_not_shown(target: WriteTarget):
    assert "secret" not in repr(target)
    assert load_file_io(dict(target.io_properties), target.location) is not None
