"""NaN is greater than every number and equal to itself; the bounds of a row group in a file leave it out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import neve

NAN = float("nan")


@pytest.mark.parametrize("where", ["d > 1e30", "d = double('NaN')", "s.f > 1e30", "s.f = float('NaN')", "NOT d <= 2"])
def test_a_condition_on_floats_finds_nan_in_a_row_group_whose_bounds_rule_it_out(
    where: str, spark: SparkSession, lake_dir: Path
):
    table = neve.connect(lake_dir, spark=spark).create_table("db.n", "id bigint, d double, s struct<f: float>")
    rows = [{"id": 1, "d": 1.5, "s": {"f": 1.0}}, {"id": 2, "d": NAN, "s": {"f": NAN}}]
    kinds = pa.schema([("id", pa.int64()), ("d", pa.float64()), ("s", pa.struct([("f", pa.float32())]))])
    table.append(pa.Table.from_pylist(rows, kinds))
    assert table.scan(where).to_arrow(engine="spark")["id"].to_pylist() == [2]
