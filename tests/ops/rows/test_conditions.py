"""Rows are changed where an expression of PyIceberg holds: the same rows as by SQL, in files that match in part."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThan, In, LessThan, NotIn
from pyspark.sql import SparkSession

import neve

MODES = ("copy-on-write", "merge-on-read")
LARGEST = 2**31 - 1
ROWS = [{"id": i, "n": n} for i, n in enumerate([None, 5, LARGEST, -1])]

CONDITIONS: dict[str, tuple[BooleanExpression, list[int]]] = {  # and the ids of rows for which they are true
    "equal": (EqualTo("n", 5), [1]),
    "and": (And(GreaterThan("n", 0), LessThan("id", 2)), [1]),
    "below more than it can hold": (LessThan("n", 2**40), [1, 2, 3]),
    "in more than it can hold": (In("n", {2**40, 5}), [1]),
    "not in more than it can hold": (NotIn("n", {2**40, 5}), [2, 3]),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CONDITIONS)
def test_rows_are_changed_where_an_expression_is_true(tmp_path: Path, spark: SparkSession, name: str, mode: str):
    where, wanted = CONDITIONS[name]
    table = neve.connect(tmp_path, spark=spark).create_table("db.t", "id bigint, n int", format_version=3)
    table.append(ROWS)
    assert table.update().set("n", "0").where(where).mode(mode).execute().rows_updated == len(wanted)
    assert [r["id"] for r in _rows(table) if r["n"] == 0] == wanted
    again = table.rollback(table.context.metadata.snapshots[0].snapshot_id)
    assert again.delete().where(where).mode(mode).execute().rows_deleted == len(wanted)
    assert [r["id"] for r in _rows(again)] == [i for i in range(4) if i not in wanted]
    assert sorted(r["id"] for r in again.scan(where).to_spark().collect()) == []


def _rows(table: neve.Table) -> list[dict[str, int | None]]:
    return sorted(table.refresh().to_arrow().to_pylist(), key=lambda row: row["id"])
