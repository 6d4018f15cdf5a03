"""What a scan returns: exactly the columns asked for, whatever else its condition looks at, and in whichever case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import neve
from neve import Table
from neve.errors import UnknownName

COLUMNS = "id bigint, s struct<a: int, b: int, in: struct<x: int, y: string>>, l array<struct<p: int, q: int>>"
ROWS: list[dict[str, Any]] = [
    {"id": 1, "s": {"a": 1, "b": 2, "in": {"x": 5, "y": "v"}}, "l": [{"p": 1, "q": 2}, None]},
    {"id": 2, "s": {"a": 1, "b": None, "in": None}, "l": []},
    {"id": 3, "s": {"a": 7, "b": 8, "in": {"x": None, "y": None}}, "l": None},
    {"id": 4, "s": None, "l": [{"p": 3, "q": None}]},
]
Row = dict[str, Any]


@pytest.fixture
def table(spark: SparkSession, lake_dir: Path) -> Table:
    found = neve.connect(lake_dir, spark=spark).create_table("db.t", COLUMNS)
    found.append(ROWS)
    return found


def only(row: Row | None, *names: str) -> Row | None:
    """The part of a struct that has some names."""
    return None if row is None else {name: row[name] for name in names}


WANTED = {
    "a sibling": ("s.a = 1", ["id", "s.b"], lambda r: {"id": r["id"], "s": only(r["s"], "b")}),
    "one further in": ("s.in.x = 5", ["s.in.y"], lambda r: {"s": {"in": only(r["s"]["in"], "y")}}),
    "one further out": ("s.a = 1", ["s.in.y"], lambda r: {"s": {"in": only(r["s"]["in"], "y")}}),
    "a struct that is null": ("s.a IS NULL", ["s.b", "id"], lambda r: {"s": only(r["s"], "b"), "id": r["id"]}),
    "the whole of it as well": ("s.a = 7", ["s.b", "s"], lambda r: {"s": r["s"]}),
    "none of it": ("s.a = 1", ["id"], lambda r: {"id": r["id"]}),
    "fields of elements": ("id < 5", ["l.element.q"], lambda r: {"l": r["l"] and [only(e, "q") for e in r["l"]]}),
}
MEETS = {
    "s.a = 1": (1, 2),
    "s.in.x = 5": (1,),
    "s.a IS NULL": (4,),
    "s.a = 7": (3,),
    "id < 5": (1, 2, 3, 4),
    "size(l) > 0": (1, 4),
}


@pytest.mark.parametrize("engine", ["arrow", "spark"])
@pytest.mark.parametrize("name", WANTED)
def test_a_condition_adds_nothing_to_the_result(table: Table, name: str, engine: Any):
    where, columns, expected = WANTED[name]
    found = table.scan(where, columns=columns).to_arrow(engine=engine)
    assert found.to_pylist() == [expected(r) for r in ROWS if r["id"] in MEETS[where]]


def test_elements_lose_what_only_a_condition_of_spark_needs(table: Table):
    found = table.scan("size(l) > 0", columns=["id", "l.element.q"]).to_arrow()
    assert found.to_pylist() == [{"id": 1, "l": [{"q": 2}, None]}, {"id": 4, "l": [{"q": None}]}]


@pytest.mark.parametrize("engine", ["arrow", "spark"])
@pytest.mark.parametrize(("name", "column"), [("ID", "id"), ("S.B", "s"), ("s.B", "s"), ("L", "l"), ("_pos", "_pos")])
def test_a_name_in_another_case_is_found_where_case_does_not_count(table: Table, name: str, column: str, engine: Any):
    found = table.scan("S.A = 1", columns=[name], case_sensitive=False).to_arrow(engine=engine)
    assert found.column_names == [column] and found.num_rows == 2
    if name != "_pos":
        with pytest.raises(UnknownName, match=name):
            table.scan(columns=[name])
