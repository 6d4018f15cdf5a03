"""Decimals reach Python tasks with their values and types, whether they travel as integers or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from neve.run.spark.arrow_exchange import _to_decimal, from_ipc, map_in_arrow, to_ipc

Batches = Iterable[pa.RecordBatch]
TEXTS = ["0", "-0.01", "9999999999.99", "-9999999999.99", None]


def received(rows: DataFrame) -> pa.Table:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [to_ipc(pa.Table.from_batches([batch]))]})

    return pa.concat_tables(from_ipc(row.rows) for row in map_in_arrow(rows, run, "rows binary").collect())


def test_values_and_types_stay(spark: SparkSession):
    frame = spark.createDataFrame([(n, text) for n, text in enumerate(TEXTS)], "n int, text string")
    kinds = {"small": (12, 2), "longest": (18, 3), "too long": (19, 2), "huge": (38, 10)}
    casts = (f"CAST(text AS decimal({p}, {s})) AS `{name}`" for name, (p, s) in kinds.items())
    found = received(frame.selectExpr("n", *casts)).sort_by("n")
    for name, (precision, scale) in kinds.items():
        expected = pa.array([None if t is None else Decimal(t) for t in TEXTS], pa.decimal128(precision, scale))
        assert found[name].combine_chunks() == expected


def test_odd_names_and_names_that_differ_in_case(spark: SparkSession):
    one = "CAST(1.5 AS decimal(4, 1))"
    rows = spark.range(1).selectExpr(f"{one} AS `a.b`", f"{one} + 1 AS `c``d`", f"{one} AS e", "id AS E")
    found = received(rows)
    assert found.column_names == ["a.b", "c`d", "e", "E"]
    assert found.to_pylist() == [{"a.b": Decimal("1.5"), "c`d": Decimal("2.5"), "e": Decimal("1.5"), "E": 0}]


def test_a_slice_of_integers_becomes_its_own_decimals():
    digits = pa.array([1, 25, None, -40]).slice(1, 3)
    assert _to_decimal(digits, pa.decimal128(4, 1)).to_pylist() == [Decimal("2.5"), None, Decimal("-4.0")]
