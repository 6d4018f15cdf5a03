"""Rows like those of TPC-H's lineitem, made by Spark."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

FILES = 10

DDL = """
    l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity decimal(12, 2),
    l_extendedprice decimal(12, 2), l_discount decimal(12, 2), l_tax decimal(12, 2), l_returnflag string,
    l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string,
    l_shipmode string, l_comment string
"""


def lineitem(spark: SparkSession, rows: int) -> DataFrame:
    """Rows like TPC-H's: orders of four lines, few and many distinct values, comments that do not compress away."""
    numbers = spark.range(0, rows, 1, FILES)
    chance = {n: F.abs(F.xxhash64("id", F.lit(n))) for n in range(12)}

    def one_of(n: int, *words: str) -> Column:
        return F.element_at(F.array(*map(F.lit, words)), (chance[n] % len(words) + 1).cast("int"))

    def amount(n: int, most: int) -> Column:
        return ((chance[n] % (most * 100)) / 100).cast("decimal(12, 2)")

    shipped = F.date_add(F.lit("1992-01-01").cast("date"), (chance[5] % 2500).cast("int"))
    words = [F.substring(F.hex(chance[n]), 1, 6) for n in (6, 7, 8, 9)]
    columns = {
        "l_orderkey": F.shiftright("id", 2),
        "l_partkey": chance[0] % 2_000_000,
        "l_suppkey": chance[1] % 100_000,
        "l_linenumber": (F.col("id") % 4).cast("int"),
        "l_quantity": amount(2, 50),
        "l_extendedprice": amount(3, 100_000),
        "l_discount": amount(4, 1),
        "l_tax": amount(10, 1),
        "l_returnflag": one_of(2, "A", "N", "R"),
        "l_linestatus": one_of(3, "O", "F"),
        "l_shipdate": shipped,
        "l_commitdate": F.date_add(shipped, (chance[6] % 60).cast("int")),
        "l_receiptdate": F.date_add(shipped, (chance[7] % 30).cast("int")),
        "l_shipinstruct": one_of(8, "DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"),
        "l_shipmode": one_of(9, "AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"),
        "l_comment": F.concat_ws(" ", *words),
    }
    return numbers.select(*(column.alias(name) for name, column in columns.items()))
