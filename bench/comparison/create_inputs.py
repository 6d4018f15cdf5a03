"""Create the inputs: lines of orders with changes of them, wide rows, nested rows, and tables of many files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from bench.comparison.inputs import FOREIGN_ROWS, LINES_PER_ORDER, PARTS, Inputs, Lines
from bench.lineitem import lineitem
from bench.metadata import table_with_usual_manifests
from neve.run.spark.session import local_session

WIDE_COLUMNS = {
    f"c{n:02}": ("bigint", "double", "string", "date")[n % 4] if n > 2 else "bigint"  # c01 is changed, c02 selects
    for n in range(1, 100)
}
WIDE_DDL = "id bigint, " + ", ".join(f"{name} {kind}" for name, kind in WIDE_COLUMNS.items())
NESTED_DDL = """
    id bigint, placed timestamp, paid timestamp, country string, note string,
    customer struct<name: string, email: string, address: struct<street: string, city: string, code: int>>,
    items array<struct<sku: string, amount: int, price: decimal(12, 2)>>, labels map<string, string>
"""
WIDE_VALUES = {
    "bigint": "abs(xxhash64(id, {n})) % 100",
    "double": "abs(xxhash64(id, {n})) % 1000000 / 7",
    "string": "substring(hex(xxhash64(id, {n})), 1, 8)",
    "date": "date_add(DATE '2020-01-01', CAST(abs(xxhash64(id, {n})) % 1000 AS int))",
}


def create_inputs(inputs: Inputs, small: Inputs) -> None:
    """Create the inputs of both sizes in plain Parquet, and the tables of many files."""
    spark = local_session("local[2]", {"spark.driver.memory": "4g"})
    for one in (small, inputs):
        for lines in (one.whole, one.third):
            _write_lines(spark, lines)
        wide_rows(spark, one.few_rows).write.parquet(one.parquet("wide"))
        nested_rows(spark, one.few_rows).write.parquet(one.parquet("nested"))
        _write_foreign_files(one)
    spark.stop()
    for files in inputs.growth:
        folder = inputs.table_of(files)
        folder.mkdir(parents=True)
        (folder / "metadata.txt").write_text(table_with_usual_manifests(folder, files))
    inputs.lake.mkdir()


def _write_foreign_files(inputs: Inputs) -> None:
    """Write small files without field ids into the folders of a hundred partitions."""
    ids = pa.array(range(FOREIGN_ROWS), pa.int64())
    texts = ids.cast(pa.string())
    for number in range(inputs.foreign_files):
        folder = inputs.foreign_folder / f"region=r{number % 100:02}"
        folder.mkdir(parents=True, exist_ok=True)
        rows = {"id": pc.add(ids, number * FOREIGN_ROWS), "price": pc.divide(ids, 7.0), "note": texts}
        pq.write_table(pa.table(rows), folder / f"{number}.parquet")


def _write_lines(spark: SparkSession, lines: Lines) -> None:
    rows = lineitem(spark, lines.rows)
    for part in range(PARTS):
        rows.where(f"l_partkey % {PARTS} = {part}").write.parquet(lines.part(part))
    changed = rows.where("l_orderkey % 100 = 7")
    prices = changed.selectExpr("l_orderkey", "l_linenumber", "CAST(l_extendedprice + 1 AS decimal(12, 2)) AS price")
    prices.coalesce(2).write.parquet(lines.changes)
    change_stream(changed, lines.rows // LINES_PER_ORDER).coalesce(2).write.parquet(lines.stream)


def change_stream(rows: DataFrame, orders: int) -> DataFrame:
    """Return one delete, two updates and one insert for every order; inserts have keys after the last order."""
    op = "element_at(array('D', 'U', 'U', 'I'), l_linenumber + 1)"
    return rows.selectExpr("*", f"{op} AS op").withColumns(
        {
            "l_orderkey": expr(f"IF(op = 'I', l_orderkey + {orders}, l_orderkey)"),
            "l_extendedprice": expr("CAST(l_extendedprice + 1 AS decimal(12, 2))"),
        }
    )


def wide_rows(spark: SparkSession, rows: int) -> DataFrame:
    """Return rows of a hundred columns: numbers, texts and dates."""
    values = [f"{WIDE_VALUES[kind].format(n=n)} AS {name}" for n, (name, kind) in enumerate(WIDE_COLUMNS.items(), 1)]
    return spark.range(0, rows, 1, 4).selectExpr("id", *values)


def nested_rows(spark: SparkSession, rows: int) -> DataFrame:
    """Return orders of thirty days: a struct in a struct, an array of structs, a map, texts and timestamps."""
    chance, text = "abs(xxhash64(id, {}))", "substring(hex(xxhash64(id, {})), 1, {})"
    placed = f"timestamp_micros(1704067200000000 + {chance.format(1)} % 2592000000000)"
    item = (
        "named_struct('sku', concat('sku-', (id * 7 + n) % 10000), 'amount', CAST(n AS int), "
        "'price', CAST((id + n) % 10000 / 100 AS decimal(12, 2)))"
    )
    return spark.range(0, rows, 1, 4).selectExpr(
        "id",
        f"{placed} AS placed",
        f"{placed} + INTERVAL 90 SECONDS AS paid",
        f"element_at(array('CH', 'DE', 'FR', 'IT', 'PT'), CAST({chance.format(2)} % 5 + 1 AS int)) AS country",
        f"concat_ws(' ', {', '.join(text.format(n, 6) for n in range(3, 9))}) AS note",
        f"named_struct('name', {text.format(9, 10)}, 'email', concat({text.format(10, 8)}, '@example.org'), "
        f"'address', named_struct('street', {text.format(11, 12)}, 'city', {text.format(12, 5)}, "
        f"'code', CAST({chance.format(13)} % 9000 + 1000 AS int))) AS customer",
        f"transform(sequence(1, CAST({chance.format(14)} % 4 + 1 AS int)), n -> {item}) AS items",
        f"map('channel', element_at(array('web', 'shop'), CAST(id % 2 + 1 AS int)), 'code', {text.format(15, 4)}) "
        "AS labels",
    )
