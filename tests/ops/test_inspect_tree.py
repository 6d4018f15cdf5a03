"""The metadata tree of a table as rows: what each node is, and each file once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import neve
from neve.cli.commands.inspect import overview_of

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


def test_what_a_leaf_hides_is_not_counted(tmp_path: Path):
    table = neve.connect(tmp_path).create_table(
        "db.t",
        "id bigint, region string",
        ["region"],
        format_version=4,
        properties={"neve.manifest-vectors.enabled": "true"},
    )
    table.append([{"id": i, "region": f"r{i}"} for i in range(8)])
    table.overwrite([{"id": 10, "region": "r0"}], where="region = 'r0'")
    root, *leaves = table.refresh().inspect.tree().to_pylist()
    assert (root["files"], sum(leaf["files"] for leaf in leaves)) == (8, 8)
    assert root["rows"] is None, "only the entries tell how many rows are left"
    assert overview_of(table.refresh())["manifests"] == len(leaves)
    assert table.refresh().scan().plan().stats.manifests == len(leaves)
