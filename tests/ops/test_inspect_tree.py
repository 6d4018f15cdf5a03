"""The metadata tree of a table as rows: what each node is, and each file once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import neve

LIST = ["manifest list", "data manifest"]


@pytest.mark.parametrize(
    ("version", "properties", "kinds"),
    [
        (2, {}, [*LIST, "delete manifest"]),
        (3, {}, [*LIST, "delete manifest"]),
        (4, {}, ["root", "leaf"]),
        (4, {"neve.root.inline-files": "100"}, ["root", "rows of the root"]),
    ],
)
def test_nodes_have_the_names_of_their_version(
    spark: SparkSession, tmp_path: Path, version: int, properties: dict[str, str], kinds: list[str]
):
    lake = neve.connect(tmp_path, spark=spark)
    table = lake.create_table("db.t", "id bigint", format_version=version, properties=properties)
    table.append([{"id": i} for i in range(5)])
    table.delete().where("id = 3").mode("merge-on-read").execute()
    nodes = table.inspect.tree()
    assert nodes["kind"].to_pylist() == kinds
    assert nodes["rows"][0].as_py() == 5
