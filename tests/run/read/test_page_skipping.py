"""A condition on a sorted column reads the pages that may match, and finds the rows that Arrow finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import neve
from neve.table import Table

COUNT = 30_000
SMALL_PAGES = {"write.parquet.page-row-limit": "500", "write.parquet.page-size-bytes": "4000"}


def rows() -> pa.Table:
    ids = np.arange(COUNT)
    random = np.random.default_rng(3)
    values = pa.array(np.sort(random.normal(size=COUNT)), mask=random.random(COUNT) < 0.02)
    names = pa.array([f"n{n:05d}" if n % 50 else None for n in ids])
    shuffled = pa.array(random.permutation(ids))
    return pa.table({"id": pa.array(ids), "name": names, "value": values, "other": shuffled})


@pytest.fixture
def table(lake: neve.Lake) -> Table:
    made = lake.create_table(
        "db.t", "id bigint, name string, value double, other bigint", format_version=2, properties=SMALL_PAGES
    )
    made.append(rows())
    return made.refresh()


CONDITIONS: dict[str, tuple[pc.Expression, int]] = {  # what Arrow evaluates, and the most rows that are read
    "id = 12345": (pc.field("id") == 12345, 500),
    "id IN (3, 29999)": (pc.field("id").isin([3, 29999]), 1000),
    "id >= 29000": (pc.field("id") >= 29000, 1500),
    "id < 100 OR id > 29950": ((pc.field("id") < 100) | (pc.field("id") > 29950), 1000),
    "name = 'n01001'": (pc.field("name") == "n01001", 1000),
    "name LIKE 'n0100%' AND other >= 0": (pc.starts_with(pc.field("name"), "n0100"), 1000),
    "id BETWEEN 700 AND 900 AND name > 'n00800'": (
        (pc.field("id") >= 700) & (pc.field("id") <= 900) & (pc.field("name") > "n00800"),
        1000,
    ),
    "value < -3.2": (pc.field("value") < -3.2, COUNT),  # a page may hold NaN, which nobody counts
    "other = 5": (pc.field("other") == 5, COUNT),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_rows_are_those_of_the_whole_table(table: Table, page_reads: list[int], condition: str):
    expected, most = CONDITIONS[condition]
    found = table.scan(condition).to_arrow().sort_by("id")
    assert found.equals(rows().filter(expected).cast(found.schema))
    assert sum(page_reads) <= most and (most == COUNT or page_reads)


def test_files_of_other_writers_are_read_alike(tmp_path: Path, lake: neve.Lake, page_reads: list[int]):
    """Their row groups, page sizes and truncated bounds differ."""
    table = lake.create_table("db.t", "id bigint, name string, value double, other bigint", format_version=2)
    path = tmp_path / "other.parquet"
    pq.write_table(rows(), path, row_group_size=17_000, data_page_size=3000, write_page_index=True, use_dictionary=True)
    table.iceberg.add_files([str(path)])
    for condition, (expected, _) in CONDITIONS.items():
        found = table.refresh().scan(condition).to_arrow().sort_by("id")
        assert found.equals(rows().filter(expected).cast(found.schema)), condition
    assert page_reads
