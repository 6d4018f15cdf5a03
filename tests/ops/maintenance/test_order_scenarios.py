"""Compactions that put rows in order: sorted files whose ranges do not overlap, z-order that narrows every column."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FixedType, LongType, NestedField

from neve import Table
from neve.errors import UnknownName, UserError
from neve.model.ddl import schema_of_ddl
from tests.support.compaction_tables import ALL, COLUMNS, NEWEST, Place, some_rows
from tests.support.coverage import on_versions
from tests.support.tables import append, delete_rows, files_of, local, per_partition, rows_of, unchanged

BY_AMOUNT = SortOrder(
    SortField(3, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST),
    SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST),
    order_id=1,
)


def shuffled(rows: list[Any], seed: int = 7) -> list[Any]:
    return random.Random(seed).sample(rows, len(rows))


def made(place: Place, version: int, by: tuple[str, ...] = (), files: int = 6, **options: Any) -> Table:
    """Rows of all ids in no order, over some files."""
    rows = shuffled(some_rows(0, 240))
    return place.table(version, *(rows[n::files] for n in range(files)), by=by, **options)


def columns_of(path: str, *names: str) -> list[tuple[Any, ...]]:
    table = pq.read_table(local(path))
    return list(zip(*(table[n].to_pylist() for n in names), strict=True))


def in_table_order(row: tuple[Any, ...]) -> Any:
    amount, number = row
    return (amount is None, -(amount or 0), number)


def is_sorted(rows: list[Any], key: Any) -> bool:
    return [key(r) for r in rows] == sorted(key(r) for r in rows)


@on_versions(1, NEWEST)
def test_compact_sort_table_order(place: Place, version: int):
    table = made(place, version, by=("region",), sort_order=BY_AMOUNT)
    before = rows_of(table)
    result = table.rewrite_data_files().sort().execute()
    assert rows_of(table) == before and table.verify().is_sound
    assert len(result.groups) == 3 and set(per_partition(table).values()) == {1}
    files = files_of(table)
    assert files["sort_order_id"].to_pylist() == [1, 1, 1]
    for path in files["file_path"].to_pylist():
        assert is_sorted(columns_of(path, "amount", "id"), in_table_order)


def test_a_compaction_that_does_not_sort_claims_no_order(place: Place):
    table = made(place, 2, sort_order=BY_AMOUNT)
    table.rewrite_data_files().execute()
    (order,) = files_of(table)["sort_order_id"].to_pylist()
    assert order in (None, 0)


def test_compact_sort_without_an_order_is_refused(place: Place):
    table = made(place, 2, files=1)
    with unchanged(table), pytest.raises(UserError, match="no sort order"):
        table.rewrite_data_files().sort().execute()


SORTS = {
    "an order the table knows": (("amount DESC", "id"), [1], in_table_order),
    "the same with its nulls elsewhere": (
        ("amount DESC NULLS FIRST", "id"),
        [None, 0],
        lambda row: (row[0] is not None, -(row[0] or 0), row[1]),
    ),
    "an order of its own": (("id DESC",), [None, 0], lambda row: -row[1]),
    "a transform": (("truncate(100, id) DESC", "amount"), [None, 0], lambda row: (-(row[1] // 100), _first(row[0]))),
}


def _first(amount: float | None) -> tuple[Any, ...]:
    return (amount is not None, amount or 0)


@pytest.mark.parametrize("what", SORTS)
def test_compact_sort_custom_order(place: Place, what: str):
    terms, orders, key = SORTS[what]
    table = place.again("custom", lambda: made(place, NEWEST, sort_order=BY_AMOUNT))
    if NEWEST > 2:
        delete_rows(table, 17)
    before = rows_of(table)
    table.rewrite_data_files().sort(*terms).execute()
    (path,) = files_of(table)["file_path"].to_pylist()
    assert is_sorted(columns_of(path, "amount", "id"), key) and rows_of(table) == before
    assert files_of(table)["sort_order_id"].to_pylist()[0] in orders


def test_compact_sort_by_an_unknown_column_is_refused(place: Place):
    table = place.again("custom", lambda: made(place, NEWEST, sort_order=BY_AMOUNT))
    for terms in (("amuont",), ("id sideways",), ("bucket(4, nope)",)):
        with unchanged(table), pytest.raises(UserError):
            table.rewrite_data_files().sort(*terms).execute()


def test_the_files_of_a_sorted_group_do_not_overlap(place: Place):
    """One order over the whole group: each file ends before the next begins, also with slices for each."""
    rows = shuffled(some_rows(0, 6000))
    table = place.table(2, *(rows[n::5] for n in range(5)))
    target = sum(files_of(table)["file_size_in_bytes"].to_pylist()) // 4
    options = {"target-file-size-bytes": target, "shuffle-partitions-per-file": 2, **ALL}
    table.rewrite_data_files().options(options).sort("id").execute()
    ranges = [
        (ids[0][0], ids[-1][0]) for ids in (columns_of(p, "id") for p in files_of(table)["file_path"].to_pylist())
    ]
    assert len(ranges) >= 3 and all(end < start for (_, end), (start, _) in pairwise(sorted(ranges)))
    assert sum(files_of(table)["record_count"].to_pylist()) == 6000


def test_compact_sort_after_spec_change(place: Place):
    table = made(place, NEWEST, by=("region",), sort_order=BY_AMOUNT)
    table.evolve_partitions(drop=["region"], add=["bucket(2, id)"])
    append(table, some_rows(240, 10))
    before = rows_of(table)
    table.rewrite_data_files().sort().upgrade_spec().execute()
    assert rows_of(table) == before and table.verify().is_sound
    assert {spec for spec, _ in per_partition(table)} == {1}
    moved = [f for f in files_of(table).columns.to_pylist() if f["record_count"] > 10]
    assert {f["sort_order_id"] for f in moved} == {1}
    assert all(is_sorted(columns_of(f["file_path"], "amount", "id"), in_table_order) for f in moved)


# --- z-order ---

EVERY_TYPE = Schema(
    *schema_of_ddl(
        "b boolean, i int, l bigint, f float, d double, dec decimal(20,4), day date, t timestamp_ntz, z timestamp, "
        "s string, bin binary, u uuid, tm time, lst array<int>, st struct<x: int, y: string>"
    ).fields,
    NestedField(101, "fx", FixedType(4), required=False),
)
EVERY_PRIMITIVE = ("b", "i", "l", "f", "d", "dec", "day", "t", "z", "s", "bin", "u", "tm", "fx", "st.x")


def every_type(n: int) -> dict[str, Any]:
    if n % 11 == 0:
        return {f.name: None for f in EVERY_TYPE.fields}
    at = dt.datetime(2020, 1, 1) + dt.timedelta(hours=n)
    return {
        "b": n % 2 == 0,
        "i": -n,
        "l": n * 10**12,
        "f": float("nan") if n % 7 == 0 else n / 2,
        "d": -0.0 if n % 5 == 0 else n / 3,
        "dec": Decimal(n) / 4,
        "day": at.date(),
        "t": at,
        "z": at.replace(tzinfo=dt.UTC),
        "s": f"é{n}",
        "bin": bytes([n % 256, 0]),
        "u": bytes([n % 256]) * 16,
        "tm": at.time(),
        "fx": bytes([n % 256]) * 4,
        "lst": [n, None],
        "st": {"x": n, "y": None},
    }


def typed_table(place: Place, version: int) -> Table:
    def make() -> Table:
        table = place.create(version, columns=EVERY_TYPE)
        for file in range(5):
            append(table, [every_type(10 * file + n) for n in range(10)])
        return table

    return place.again(("every type", version), make)


@on_versions(2, NEWEST)
def test_compact_zorder(place: Place, version: int):
    """By all primitive types at once; the rows are also summed up before and after."""
    table = typed_table(place, version)
    before = rows_of(table)
    result = table.rewrite_data_files().zorder(*EVERY_PRIMITIVE).verify_rows().execute()
    assert rows_of(table) == before and table.verify().is_sound
    assert (result.files_rewritten, result.files_added) == (5, 1)
    assert files_of(table)["sort_order_id"].to_pylist()[0] in (None, 0)


def test_compact_zorder_of_wrong_columns_is_refused(place: Place):
    table = made(place, 2, by=("region",), files=1)
    wrong = {("amuont",): UnknownName, ("region",): UserError, (): UserError}
    for columns, error in wrong.items():
        with unchanged(table), pytest.raises(error):
            table.rewrite_data_files().options(ALL).zorder(*columns).execute()
    typed = typed_table(place, 2)
    with unchanged(typed), pytest.raises(UnknownName, match="'lst'"):
        typed.rewrite_data_files().zorder("lst").execute()


def test_zorder_goes_by_the_spec_that_files_keep(place: Place):
    """The table is partitioned by the column by now, the files are not: they hold many values of it."""
    table = made(place, 2, files=2)
    table.refresh().evolve_partitions(add=["region"])
    with unchanged(table), pytest.raises(UserError, match="one value of it"):
        table.refresh().rewrite_data_files().options(ALL).zorder("region").execute()
    table.refresh().rewrite_data_files().options(ALL).keep_spec().zorder("region").execute()
    [path] = files_of(table)["file_path"].to_pylist()
    found = pq.read_table(local(path))["region"].to_pylist()
    assert found == sorted(found) and len(set(found)) > 1


def test_zorder_narrows_both_columns(place: Place):
    """Of 8 files each holds about a third of the range of either column; unsorted each holds all of both."""
    points = shuffled([{"x": n % 64, "y": n // 64} for n in range(4096)])
    table = place.create(NEWEST, columns="x bigint, y bigint, pad string")
    kind = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("pad", pa.string())])
    for n in range(4):
        rows = [{**p, "pad": f"{p['x'] * 7919 + p['y'] * 104729:x}"} for p in points[n::4]]
        table.append(pa.Table.from_pylist(rows, kind))
    before = rows_of(table)
    assert {c: widest(table, c) for c in ("x", "y")} == {"x": 63, "y": 63}
    target = sum(files_of(table)["file_size_in_bytes"].to_pylist()) // 8
    table.rewrite_data_files().options({**ALL, "target-file-size-bytes": target}).zorder("x", "y").execute()
    assert rows_of(table) == before and 6 <= len(files_of(table)) <= 12
    assert mean_width(table, "x") < 40 and mean_width(table, "y") < 40


def widths(table: Table, column: str) -> list[int]:
    """How far the bounds of a column in each file are apart."""
    number = table.schema.find_field(column).field_id
    files = files_of(table).columns.to_pylist()
    return [bound(f["upper_bounds"], number) - bound(f["lower_bounds"], number) for f in files]


def bound(bounds: Any, number: int) -> int:
    return next(from_bytes(LongType(), b["value"]) for b in bounds if b["key"] == number)


def widest(table: Table, column: str) -> int:
    return max(widths(table, column))


def mean_width(table: Table, column: str) -> float:
    found = widths(table, column)
    return sum(found) / len(found)


def test_columns_of_the_tables_here_are_the_usual_ones(place: Place):
    assert [f.name for f in made(place, 2, files=1).schema.fields] == [c.split()[0] for c in COLUMNS.split(", ")]
