"""Data files in an object store: a real S3 server on loopback, through both of PyIceberg's file access libraries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from neve.errors import UserError
from neve.run.write.data_files import write_arrow_table, write_batches
from neve.run.write.partitioning import FileNames
from neve.run.write.target import WriteTarget
from tests.support.servers import ObjectStore

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
LIBRARIES = ["pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO"]


@pytest.fixture(params=LIBRARIES, ids=["pyarrow", "fsspec"])
def target(request: pytest.FixtureRequest, object_store: ObjectStore, aim: Any) -> WriteTarget:
    properties = {"py-io-impl": request.param, **object_store.properties}
    made: WriteTarget = aim(SCHEMA, [(2, "identity")])
    location = f"s3://lake/{request.node.name.replace('[', '-').replace(']', '')} #1"
    return replace(made, location=location, io_properties=properties)


def objects(store: ObjectStore, target: WriteTarget) -> set[str]:
    """The files of a table."""
    return {f"s3://lake/{key}" for key in store.objects(target.location.removeprefix("s3://lake/"))}


def test_files_in_an_object_store_are_whole_and_where_they_say(object_store: ObjectStore, target: WriteTarget):
    written = write_arrow_table(pa.table({"id": [1, 2, 3], "name": ["a b", "c%d", None]}), target)
    assert objects(object_store, target) == set(written["file_path"].to_pylist())
    for row in written.to_pylist():
        body = object_store.client.get_object(Bucket="lake", Key=row["file_path"].removeprefix("s3://lake/"))[
            "Body"
        ].read()
        assert len(body) == row["file_size_in_bytes"]
        assert pq.read_table(pa.BufferReader(body))["name"].to_pylist() == [row["p1000"]]


def test_a_failed_write_leaves_nothing_in_the_store(object_store: ObjectStore, target: WriteTarget):
    good = pa.RecordBatch.from_pydict({"id": list(range(70_000)), "name": ["x"] * 70_000})
    bad = pa.RecordBatch.from_pydict({"id": pa.array([None], pa.int64()), "name": ["y"]})
    small = target.with_options(target_file_size=100_000)
    with pytest.raises(UserError, match="'id'"):
        write_batches([good, good, bad], small, FileNames(0, 0, "w"), is_clustered=True)
    assert objects(object_store, target) == set()


def test_credentials_are_not_shown(target: WriteTarget):
    assert "secret" not in repr(target)
    assert load_file_io(dict(target.io_properties), target.location) is not None
