"""Minus zero equals zero in SQL; no filter may lose it."""

from __future__ import annotations

import pytest

import neve

CONDITIONS = {
    "x = 0": [1, 2],
    "x >= 0": [1, 2, 3],
    "x <= 0": [1, 2, 4],
    "x IN (0, 9)": [1, 2],
    "x <> 0": [3, 4],
    "x < 0": [4],
}


@pytest.fixture(scope="module")
def table(tmp_path_factory, spark) -> neve.Table:
    lake = neve.connect(tmp_path_factory.mktemp("zero"), spark=spark)
    table = lake.create_table("db.t", "id int, x double")
    for row, value in enumerate((-0.0, 0.0, 1.5, -1.5), 1):
        table.append([{"id": row, "x": value}])  # one file each, so that row groups can be skipped
    return table


@pytest.mark.parametrize("engine", ["spark", "arrow"])
@pytest.mark.parametrize("where", CONDITIONS)
def test_both_zeros_are_found(table: neve.Table, where: str, engine: str):
    rows = table.scan(where).to_arrow(engine=engine)
    assert sorted(rows["id"].to_pylist()) == CONDITIONS[where]
