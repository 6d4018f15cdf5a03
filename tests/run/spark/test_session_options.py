"""Options set around calls: put back whatever happens, and whichever of several calls ends first."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import neve
from neve.run.spark.session import session_option, temporary_options

KNOWN, UNSET = "spark.sql.shuffle.partitions", "spark.neve.test.unset"


def said(spark: SparkSession) -> tuple[str | None, str | None]:
    return spark.conf.get(KNOWN), spark.conf.get(UNSET, None)


def test_options_are_put_back_when_the_call_fails(spark: SparkSession):
    before, during = said(spark), []

    def fail() -> None:
        with temporary_options(spark, {KNOWN: "7", UNSET: "x"}):
            during.append(said(spark))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert during == [("7", "x")] and said(spark) == before


def test_options_are_put_back_when_one_of_them_cannot_be_set(spark: SparkSession):
    before = said(spark)
    with (
        pytest.raises(Exception, match="many"),
        temporary_options(spark, {UNSET: "x", KNOWN: "many", "spark.neve.z": ""}),
    ):
        raise AssertionError("this is not reached")
    assert said(spark) == before


@pytest.mark.parametrize("is_first_out_first", [True, False])
def test_calls_that_overlap_leave_nothing_behind(spark: SparkSession, is_first_out_first: bool):
    before = said(spark)
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(temporary_options(spark, {KNOWN: "7", UNSET: "x"}))
        second.enter_context(temporary_options(another_object_for(spark), {KNOWN: "9", UNSET: "y"}))
        assert said(spark) == ("9", "y")
        assert (session_option(spark, KNOWN), session_option(spark, UNSET)) == before
        out, later, still = (first, second, ("9", "y")) if is_first_out_first else (second, first, ("7", "x"))
        out.close()
        assert said(spark) == still, "the call that still runs keeps what it has set"
        later.close()
        assert said(spark) == before


def another_object_for(spark: SparkSession) -> SparkSession:
    """The same session, as Python has it from elsewhere; the active one may be another that a test has used."""
    return SparkSession(spark.sparkContext, spark._jsparkSession)


def test_a_call_in_another_session_is_another_matter(spark: SparkSession):
    other = spark.newSession()
    with temporary_options(spark, {UNSET: "x"}):
        assert other.conf.get(UNSET, None) is None and session_option(other, UNSET) is None


def test_groups_sorted_at_once_leave_the_session_as_it_was(spark: SparkSession, lake_dir: Path):
    table = neve.connect(lake_dir, spark=spark).create_table("db.t", "id bigint, part bigint", ["part"])
    for start in (0, 10):
        table.append(pa.table({"id": range(start, start + 6), "part": range(6)}))
    before = spark.conf.getAll
    together = {"min-input-files": "2", "max-concurrent-file-group-rewrites": "6"}
    result = table.rewrite_data_files().sort("id").options(together).execute()
    assert result.files_added == 6
    assert spark.conf.getAll == before
