"""Spark with Iceberg reads the statistics that Névé computes: sketches, distinct values, and counts of partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve import Table
from neve.io.puffin import read_footer
from tests.peers.engine_comparison import SharedLake
from tests.support.copied_tables import evolved, rows

NAMES = count()
VERSIONS = (1, 2, 3)


@pytest.fixture
def evolved_table(shared_lake: SharedLake) -> Iterator[Callable[[int], tuple[str, Table]]]:
    made = []

    def create(version: int) -> tuple[str, Table]:
        made.append(f"db.statistics{next(NAMES)}")
        return made[-1], evolved(shared_lake.lake, version, made[-1])

    yield create
    for name in made:
        shared_lake.lake.drop_table(name, purge=True)


def sketch_of(table: Table, field_id: int) -> bytes:
    """The sketch of a column in the newest statistics, as its bytes."""
    file = table.refresh().context.metadata.statistics[-1]
    [blob] = [b for b in read_footer(table.context.io, file.statistics_path).blobs if b.fields == (field_id,)]
    data = Path(urlparse(file.statistics_path).path).read_bytes()[blob.offset : blob.offset + blob.length]
    return bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read())


@pytest.mark.parametrize("many", [False, True], ids=["exact", "estimated"])
def test_spark_reads_our_sketches(shared_lake: SharedLake, evolved_table: Any, many: bool):
    name, t = evolved_table(2)
    if many:
        t.append(pa.table({"id": pa.array(range(20_000), pa.int64()), "region": ["eu"] * 20_000}))
    counts = t.compute_table_stats().distinct_values
    estimate = f"SELECT theta_sketch_estimate(X'{sketch_of(t, 1).hex()}') AS n"
    assert shared_lake.spark.sql(estimate).to_pylist() == [{"n": counts["id"]}]
    ours = sketch_of(t, 1).hex()
    shared_lake.spark.sql(f"CALL neve.system.compute_table_stats(table => '{name}')")
    theirs = sketch_of(t, 1).hex()
    union = f"SELECT theta_sketch_estimate(theta_union(X'{ours}', X'{theirs}')) AS n"
    assert abs(shared_lake.spark.sql(union).to_pylist()[0]["n"] / counts["id"] - 1) < (0.05 if many else 1e-9)


@pytest.mark.parametrize("version", VERSIONS)
def test_spark_plans_with_our_distinct_values(shared_lake: SharedLake, evolved_table: Any, version: int):
    name, t = evolved_table(version)
    assert shared_lake.spark.distinct_values(name) == {}
    t.compute_table_stats("region")
    assert shared_lake.spark.distinct_values(name) == {"region": 2}
    counts = t.compute_table_stats().distinct_values
    assert shared_lake.spark.distinct_values(name) == counts == {"id": len(t.scan().to_arrow()), "region": 2}


@pytest.mark.parametrize("version", VERSIONS)
def test_spark_goes_on_from_our_counts_of_partitions(shared_lake: SharedLake, evolved_table: Any, version: int):
    """Its procedure reads the last statistics, and adds what changed since."""
    name, t = evolved_table(version)
    ours = t.compute_partition_stats().partitions
    t.append([*rows([60, 61]), {"id": 62, "region": "asia"}])
    found = shared_lake.spark.sql(f"CALL neve.system.compute_partition_stats(table => '{name}')").to_pylist()
    theirs = partitions(found[0]["partition_statistics_file"])
    assert theirs == partitions(t.compute_partition_stats().path) and len(theirs) > ours


def partitions(path: str) -> list[dict[str, Any]]:
    return sorted(pq.read_table(urlparse(path).path).to_pylist(), key=lambda r: (r["spec_id"], str(r["partition"])))
