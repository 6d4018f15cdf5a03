"""Shredded variants that Spark writes: put together again, they are what Spark reads."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import VariantVal

from neve.run.read.types import VARIANT
from neve.run.read.variants import read_variants
from neve.run.spark.input_rows import create_dataframe

FIELDS = ("a", "b", "c", "ü", "a longer name")
SCALARS: tuple[Sequence[Any], ...] = (
    [None],
    [True, False],
    [0, -1, 127, 128, -40000, 2**31, -(2**62)],
    ["", "x", "é" * 31, "y" * 64, "z" * 70000],
    [1.5, -0.25, 1e300, 12345.678],
    range(1000),
)
SHREDDED = (  # how all variants are shredded: a type for Spark, by which only values of this type are
    "bigint",
    "string",
    "array<bigint>",
    "struct<a bigint, b string>",
    "struct<c struct<a struct<b bigint>, `ü` array<struct<a string, c boolean>>>, `a longer name` double>",
    "array<array<struct<b decimal(9, 2)>>>",
)
PART = pa.struct({"value": pa.binary(), "typed_value": pa.int64()})
PIECES = (b"", b"\x01", b"\x01\x02\x00\x01\x02ab", b"\xff\xff\xff\xff", b"\x02\x00\x00", b"\x02\x01\x00\x00\x01\x00")
TYPED = """
    SELECT to_variant_object(struct(
        CAST(id AS tinyint) AS i8, CAST(id AS smallint) AS i16, CAST(id AS int) AS i32, id AS i64, id % 2 = 0 AS yes,
        CAST(id / 3 AS float) AS single, CAST(id / 7 AS double) AS more, CAST(id / 3 AS decimal(5, 2)) AS d4,
        CAST(-id / 3 AS decimal(18, 9)) AS d8, CAST(id AS decimal(38, 3)) AS d16,
        date_add(DATE '1969-12-30', CAST(id AS int)) AS day, timestamp_micros(id * 123456789 - 1000000) AS at,
        CAST(timestamp_micros(id * 987654321) AS timestamp_ntz) AS local,
        CAST(repeat('é', id * 20) AS string) AS text, CAST(repeat('b', id) AS binary) AS bytes,
        transform(sequence(0, id * 30), x -> IF(x % 3 = 0, NULL, x)) AS many
    )) AS v FROM range(20)
"""


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(len(SCALARS) + 3 if depth < 4 else len(SCALARS))
    if kind < len(SCALARS):
        return rng.choice(SCALARS[kind])
    if kind == len(SCALARS):
        return [random_value(rng, depth + 1) for _ in range(rng.choice([0, 1, 3]))]
    return {name: random_value(rng, depth + 1) for name in rng.sample(FIELDS, rng.randrange(len(FIELDS) + 1))}


def written(rows: DataFrame, folder: Path, shredded: str | None) -> pa.Table:
    """The column that Spark has written, as Arrow reads it."""
    options = {"spark.sql.variant.writeShredding.enabled": "true", "spark.sql.variant.inferShreddingSchema": "true"}
    if shredded is not None:
        options |= {"spark.sql.variant.forceShreddingSchemaForTest": shredded}
    spark = rows.sparkSession
    for name, value in options.items():
        spark.conf.set(name, value)
    try:
        rows.coalesce(1).write.parquet(str(folder))
    finally:
        for name in options:
            spark.conf.unset(name)
    [file] = folder.glob("*.parquet")
    return pq.read_table(file)


def shown(variants: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in variants.select(F.to_json("v"), F.schema_of_variant("v")).collect()]


def assert_same(spark: SparkSession, folder: Path, table: pa.Table) -> None:
    pieces = [read_variants(chunk) for chunk in table["v"].chunks]
    ours = create_dataframe(spark, pa.table({"v": pa.chunked_array(pieces, VARIANT)}))
    assert shown(ours) == shown(spark.read.parquet(str(folder)))


@pytest.fixture(autouse=True)
def _whole_variants(spark: SparkSession) -> Any:
    """Without compiled code, as in these tests, Spark 4.1 cannot read parts of variants."""
    name = "spark.sql.variant.pushVariantIntoScan"
    before = spark.conf.get(name)
    spark.conf.set(name, "false")
    yield
    spark.conf.set(name, before)


@pytest.mark.parametrize("shredded", SHREDDED)
def test_random_values(spark: SparkSession, tmp_path: Path, shredded: str):
    rng = random.Random(shredded)
    texts = [json.dumps(random_value(rng)) for _ in range(150)]
    rows = create_dataframe(spark, pa.table({"j": pa.array([None, *texts])})).select(F.parse_json("j").alias("v"))
    table = written(rows, tmp_path / "files", shredded)
    assert "typed_value" in str(table.schema)
    assert_same(spark, tmp_path / "files", table)


def test_values_of_all_types(spark: SparkSession, tmp_path: Path):
    table = written(spark.sql(TYPED), tmp_path / "files", None)
    assert "typed_value" in str(table.schema)
    assert_same(spark, tmp_path / "files", table)


def test_names_may_be_twice_in_the_metadata():
    """Objects name their fields by numbers, and two numbers may have one name."""
    metadata, value = b"\x01\x04\x00\x01\x02\x03\x04aacb", b"\x02\x01\x02\x00\x02\x0c\x07"
    kind = pa.struct({"metadata": pa.binary(), "value": pa.binary(), "typed_value": pa.struct({"b": PART})})
    group = {"metadata": metadata, "value": value, "typed_value": {"b": {"typed_value": 5}}}
    [found] = read_variants(pa.array([group], kind)).to_pylist()
    assert VariantVal(found["value"], found["metadata"]).toJson() == '{"b":5,"c":7}'


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.large_string(), ["é"], '"é"'),
        (pa.string_view(), ["a longer text than twelve"], '"a longer text than twelve"'),
        (pa.large_binary(), [b"abc"], '"YWJj"'),
        (pa.dictionary(pa.int8(), pa.string()), ["x"], '"x"'),
        (pa.large_list(PART), [[{"typed_value": 1}, {"value": b"\x04"}]], "[1,true]"),
    ],
    ids=["large text", "text view", "large bytes", "dictionary", "large list"],
)
def test_types_that_a_note_in_the_file_asks_for(kind: pa.DataType, values: list[Any], expected: str):
    typed = (
        pa.array(values, pa.string()).dictionary_encode() if pa.types.is_dictionary(kind) else pa.array(values, kind)
    )
    group = pa.StructArray.from_arrays([pa.array([b"\x01\x00\x00"]), typed], ["metadata", "typed_value"])
    [found] = read_variants(group).to_pylist()
    assert json.loads(VariantVal(found["value"], found["metadata"]).toJson()) == json.loads(expected)


def test_damaged_values_are_one_error():
    """Bytes of a foreign file: each either has a meaning or is an error that the reader expects."""
    rng, refused = random.Random(7), 0
    kind = pa.struct({"metadata": pa.binary(), "value": pa.binary(), "typed_value": pa.struct({"a": PART, "b": PART})})
    for _ in range(400):
        metadata, value = (rng.choice(PIECES) + rng.randbytes(rng.randrange(9)) for _ in range(2))
        group = {"metadata": metadata, "value": value, "typed_value": {"a": {"typed_value": 1}, "b": {"value": b"\0"}}}
        try:
            assert len(read_variants(pa.array([group], kind))) == 1
        except pa.ArrowInvalid:
            refused += 1
    assert 200 < refused < 400
