"""The smallest numbers, truncated, overflow: their partition is among those of the largest, and is found there."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from pyiceberg.types import LongType

import neve
from neve import Table
from neve.errors import UserError
from tests.support.tables import ids_of

LEAST_INT, LEAST_LONG = -(1 << 31), -(1 << 63)
WIDTH = 10


def made(lake: neve.Lake, kind: str, least: int) -> Table:
    table = lake.create_table("db.t", f"id bigint, n {kind}", [f"truncate({WIDTH}, n)"], format_version=2)
    table.append([{"id": i, "n": n} for i, n in enumerate([least, least + 1, 5, -least - 1])])
    return table.refresh()


@pytest.mark.parametrize(("kind", "least"), [("int", LEAST_INT), ("bigint", LEAST_LONG)])
def test_rows_of_the_smallest_numbers_are_found(lake: neve.Lake, kind: str, least: int):
    table = made(lake, kind, least)
    assert ids_of(table, f"n = {least}") == [0]
    assert ids_of(table, "n < 0") == [0, 1]
    assert ids_of(table, f"n <= {least}") == [0]
    assert ids_of(table, f"n IN ({least + 1}, 5)") == [1, 2]
    assert ids_of(table, f"n > {-least - WIDTH}") == [3]


def test_they_are_found_after_the_column_was_promoted(lake: neve.Lake):
    table = made(lake, "int", LEAST_INT)
    with table.evolve_schema() as change:
        change.update_column("n", LongType())
    assert ids_of(table.refresh(), "n < 0") == [0, 1]


def test_a_partition_that_may_hold_them_is_not_taken_for_one_of_the_largest(spark_lake: neve.Lake):
    """A whole file would be dropped that holds the one number that is to stay."""
    table = spark_lake.create_table("db.t", "n int", [f"truncate({WIDTH}, n)"])
    table.append([{"n": LEAST_INT}, {"n": 2147483646}])  # of one partition
    table.delete().where("n > 2147483000").execute()
    assert table.refresh().to_arrow()["n"].to_pylist() == [LEAST_INT]


def test_a_decimal_that_truncating_makes_longer_is_refused(tmp_path: Path, lake: neve.Lake):
    table = lake.create_table("db.t", "m decimal(9, 2)", ["truncate(50, m)"], format_version=2)
    with pytest.raises(UserError, match=r"10000000\.00 does not fit 'm_trunc', which is of type decimal\(9, 2\)"):
        table.append([{"m": Decimal("-9999999.99")}])
    assert not list(tmp_path.rglob("*.parquet")), "nothing is left behind"
    table.append([{"m": Decimal("9999999.99")}])
    assert table.refresh().scan().count() == 1
