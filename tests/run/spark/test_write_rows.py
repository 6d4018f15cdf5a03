"""Rows as callers have them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    IntegerType,
    ListType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql import SparkSession

from neve.errors import UnknownName, UserError
from neve.run.spark import input_rows as module
from neve.run.spark.input_rows import as_dataframe, write_rows
from neve.run.spark.session import temporary_options
from tests.support.tables import written_rows

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "day", DateType()),
)
ROWS = [{"id": 1, "name": "a", "day": date(2026, 1, 1)}, {"id": 2, "name": None, "day": None}]


def no_spark() -> SparkSession:
    raise AssertionError("Spark was asked for")


FORMS = {
    "dictionaries": ROWS,
    "table": pa.Table.from_pylist(ROWS),
    "batch": pa.RecordBatch.from_pylist(ROWS),
    "reader": None,  # can be read once, so it is made in the test
    "pandas": pd.DataFrame({"id": [1, 2], "name": ["a", None], "day": [date(2026, 1, 1), None]}),
}


@pytest.mark.parametrize("form", FORMS)
def test_small_rows_are_written_without_spark(form: str, aim: Any):
    given = pa.Table.from_pylist(ROWS).to_reader() if form == "reader" else FORMS[form]
    assert written_rows(write_rows(given, aim(SCHEMA), no_spark)) == ROWS


def test_rows_beyond_the_limit_go_to_spark(spark: SparkSession, aim: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LOCAL_BYTES", 10)
    written = write_rows(pa.Table.from_pylist(ROWS), aim(SCHEMA), lambda: spark)
    assert sorted(written_rows(written), key=lambda r: r["id"]) == ROWS


def test_nanoseconds_stay_whole_whatever_their_number(aim: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LOCAL_BYTES", 0)
    schema = Schema(NestedField(1, "at", TimestampNanoType()))
    written = write_rows(pa.table({"at": pa.array([1, -1], pa.timestamp("ns"))}), aim(schema), no_spark)
    read = pq.read_table(written["file_path"][0].as_py())
    assert read["at"].cast(pa.int64()).to_pylist() == [1, -1]


def test_a_local_time_that_the_session_skips_stays_as_it_is(
    spark: SparkSession, aim: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "LOCAL_BYTES", 0)
    skipped = datetime(2026, 3, 8, 2, 30)  # clocks in New York went from two to three
    schema = Schema(NestedField(1, "at", TimestampType()))
    with temporary_options(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        written = write_rows(pa.table({"at": [skipped]}), aim(schema), lambda: spark)
    assert written_rows(written) == [{"at": skipped}]


def test_a_data_frame_of_either_kind_becomes_one_of_spark(spark: SparkSession):
    from_arrow = as_dataframe(spark, pa.Table.from_pylist(ROWS), SCHEMA)
    assert [r.asDict() for r in from_arrow.collect()] == ROWS
    assert as_dataframe(spark, from_arrow, SCHEMA) is from_arrow


def test_dictionaries_take_their_types_from_the_table(aim: Any):
    schema = Schema(
        NestedField(1, "u", UUIDType()),
        NestedField(2, "price", DecimalType(9, 2)),
        NestedField(3, "tags", ListType(4, StringType(), False)),
        NestedField(5, "s", StructType(NestedField(6, "x", IntegerType()))),
        NestedField(7, "at", TimestamptzType()),
    )
    at = datetime(2026, 1, 1, tzinfo=UTC)
    row = {"u": UUID(int=3), "price": Decimal("1.50"), "tags": [], "s": {"x": 1}, "at": at}
    assert written_rows(write_rows([row, {}], aim(schema), no_spark)) == [row, dict.fromkeys(row)]


def test_a_key_that_is_no_column_is_an_error_and_not_dropped(aim: Any):
    with pytest.raises(UnknownName, match="'nme'"):
        write_rows([{"id": 1}, {"id": 2, "nme": "x"}], aim(SCHEMA), no_spark)


@pytest.mark.parametrize("given", [5, "text", [1, 2], None])
def test_what_is_not_rows_is_refused(given: Any, aim: Any):
    with pytest.raises(UserError, match="Cannot write rows given as"):
        write_rows(given, aim(SCHEMA), no_spark)


def test_values_of_different_kinds_name_their_column(aim: Any):
    with pytest.raises(UserError, match="'id'"):
        write_rows([{"id": 1}, {"id": "x"}], aim(SCHEMA), no_spark)
