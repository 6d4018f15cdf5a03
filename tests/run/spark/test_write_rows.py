"""Rows as callers have them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
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
    LongType,
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
from neve.run.spark.input_rows import as_dataframe, write_rows
from neve.run.spark.session import temporary_options
from neve.run.spark.write import write_dataframe
from neve.run.write import data_files
from tests.support.tables import written_rows

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "day", DateType()),
)
ROWS = [{"id": 1, "name": "a", "day": date(2026, 1, 1)}, {"id": 2, "name": None, "day": None}]


FORMS = {
    "dictionaries": ROWS,
    "table": pa.Table.from_pylist(ROWS),
    "batch": pa.RecordBatch.from_pylist(ROWS),
    "reader": None,  # can be read once, so it is made in the test
    "pandas": pd.DataFrame({"id": [1, 2], "name": ["a", None], "day": [date(2026, 1, 1), None]}),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_this_process_are_written_without_spark(form: str, aim: Any):
    given = pa.Table.from_pylist(ROWS).to_reader() if form == "reader" else FORMS[form]
    assert written_rows(write_rows(given, aim(SCHEMA))) == ROWS


@pytest.fixture
def many_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few rows are worth a thread."""
    monkeypatch.setattr(data_files, "_SHARE_BYTES", 1000)
    monkeypatch.setattr(data_files, "usable_cores", lambda: 4)


@pytest.mark.usefixtures("many_shares")
@pytest.mark.parametrize("partition_by", [(), [(2, "identity")]], ids=["one partition", "partitions"])
def test_a_large_table_is_written_in_shares(aim: Any, partition_by: Any):
    rows = [{"id": n, "name": "abc"[n % 3], "day": None} for n in range(1000)]
    target = aim(SCHEMA, partition_by)
    written = write_rows(pa.Table.from_pylist(rows, pa.Table.from_pylist(ROWS).schema), target)
    assert sorted(written_rows(written), key=lambda r: r["id"]) == rows
    assert len(written) == 4 * (3 if partition_by else 1)


@pytest.mark.usefixtures("many_shares")
def test_a_share_that_fails_takes_the_others_with_it(aim: Any):
    target = aim(Schema(NestedField(1, "id", IntegerType())))
    with pytest.raises(UserError, match="id"):
        write_rows(pa.table({"id": pa.array([*range(999), 1 << 40])}), target)
    assert not list(Path(target.location).rglob("*.parquet"))


def test_a_reader_is_written_as_its_batches_arrive(aim: Any):
    target = aim(Schema(NestedField(1, "id", LongType())), properties={"write.target-file-size-bytes": "20000"})
    started: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(40):
            started.append(len(list(Path(target.location).rglob("*.parquet"))))
            yield pa.record_batch({"id": np.random.default_rng(n).integers(0, 1 << 60, 20_000)})

    reader = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches())
    written = write_rows(reader, target)
    assert sum(written["record_count"].to_pylist()) == 800_000
    assert started[-1] > 1


def test_a_reader_that_fails_leaves_no_file(aim: Any):
    target = aim(Schema(NestedField(1, "id", LongType())))

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": list(range(100_000))})
        raise OSError("the connection is lost")

    with pytest.raises(OSError, match="the connection is lost"):
        write_rows(pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches()), target)
    assert not list(Path(target.location).rglob("*.parquet"))


def test_nanoseconds_stay_whole(aim: Any):
    schema = Schema(NestedField(1, "at", TimestampNanoType()))
    written = write_rows(pa.table({"at": pa.array([1, -1], pa.timestamp("ns"))}), aim(schema))
    read = pq.read_table(written["file_path"][0].as_py())
    assert read["at"].cast(pa.int64()).to_pylist() == [1, -1]


def test_a_local_time_that_the_session_skips_stays_as_it_is(spark: SparkSession, aim: Any):
    skipped = datetime(2026, 3, 8, 2, 30)  # clocks in New York went from two to three
    schema = Schema(NestedField(1, "at", TimestampType()))
    with temporary_options(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        written = write_dataframe(as_dataframe(spark, pa.table({"at": [skipped]}), schema), aim(schema))
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
    assert written_rows(write_rows([row, {}], aim(schema))) == [row, dict.fromkeys(row)]


def test_a_key_that_is_no_column_is_an_error_and_not_dropped(aim: Any):
    with pytest.raises(UnknownName, match="'nme'"):
        write_rows([{"id": 1}, {"id": 2, "nme": "x"}], aim(SCHEMA))


@pytest.mark.parametrize("given", [5, "text", [1, 2], None])
def test_what_is_not_rows_is_refused(given: Any, aim: Any):
    with pytest.raises(UserError, match="Cannot write rows given as"):
        write_rows(given, aim(SCHEMA))


def test_values_of_different_kinds_name_their_column(aim: Any):
    with pytest.raises(UserError, match="'id'"):
        write_rows([{"id": 1}, {"id": "x"}], aim(SCHEMA))
