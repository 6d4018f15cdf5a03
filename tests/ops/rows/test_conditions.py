"""Rows are changed where an expression of PyIceberg holds: the same rows as by SQL, in files that match in part."""

from __future__ import annotations

import pytest
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThan, In, LessThan, NotIn

import neve
from tests.support.coverage import own
from tests.support.tables import ids_of, sorted_rows

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


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name in CONDITIONS for mode in own(name, MODES)])
def test_rows_are_changed_where_an_expression_is_true(spark_lake: neve.Lake, name: str, mode: str):
    where, wanted = CONDITIONS[name]
    table = spark_lake.create_table("db.t", "id bigint, n int", format_version=3)
    table.append(ROWS)
    assert table.update().set("n", "0").where(where).mode(mode).execute().rows_updated == len(wanted)
    assert [r["id"] for r in sorted_rows(table.refresh(), engine="auto") if r["n"] == 0] == wanted
    again = table.rollback(table.context.metadata.snapshots[0].snapshot_id)
    assert again.delete().where(where).mode(mode).execute().rows_deleted == len(wanted)
    assert ids_of(again.refresh(), engine="auto") == [i for i in range(4) if i not in wanted]
    assert sorted(r["id"] for r in again.scan(where).to_spark().collect()) == []
