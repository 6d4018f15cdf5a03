"""An UPDATE of a few rows merge-on-read reads only the pages that hold them, and changes exactly these rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

import neve
from neve.table import Table
from tests.ops.conftest import use_engine

COUNT = 4000
KEYS = (7, 1234, 3999)
SMALL_PAGES = {"write.parquet.page-row-limit": "50", "write.parquet.page-size-bytes": "500"}


def rows(first: int) -> pa.Table:
    ids = range(first, first + COUNT)
    names, texts = [f"n{i % 9}" for i in ids], [str(i) for i in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": names, "text": texts})


def make_table(lake: neve.Lake, version: int, deletes: str) -> Table:
    table = lake.create_table(
        "db.t", "id bigint, name string, text string", format_version=version, properties=SMALL_PAGES
    )
    table.append(rows(0))
    table.evolve_partitions(add=["truncate(2, name)"])
    table.append(rows(COUNT))
    if deletes:
        table.delete().where(deletes).mode("merge-on-read").execute()
    return table.refresh()


@pytest.mark.parametrize("deletes", ["", "id IN (8, 1234) OR id BETWEEN 4000 AND 4010"])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_only_the_named_rows_change(
    spark_lake: neve.Lake, monkeypatch: pytest.MonkeyPatch, page_reads: list[int], version: int, deletes: str
):
    use_engine(monkeypatch, "process")
    table = make_table(spark_lake, version, deletes)
    wanted = [*KEYS, *(key + COUNT for key in KEYS)]
    before = {row["id"]: row for row in table.to_arrow().to_pylist()}
    keys = ", ".join(map(str, wanted))
    result = table.update().set("name", "concat(name, '!')").where(f"id IN ({keys})").mode("merge-on-read").execute()
    changed = [key for key in wanted if key in before]
    for key in changed:
        before[key] = {**before[key], "name": before[key]["name"] + "!"}
    assert {row["id"]: row for row in table.to_arrow().to_pylist()} == before
    assert result.rows_updated == len(changed) == sum(page_reads)


def test_rows_keep_their_identity(spark_lake: neve.Lake, monkeypatch: pytest.MonkeyPatch, page_reads: list[int]):
    use_engine(monkeypatch, "process")
    table = make_table(spark_lake, 3, "")
    lineage = ("id", "_row_id", "_last_updated_sequence_number")
    before = {row["id"]: row for row in table.scan(columns=lineage).to_arrow().to_pylist()}
    table.update().set("name", "'x'").where("id IN (7, 5234)").mode("merge-on-read").execute()
    after = {row["id"]: row for row in table.scan(columns=lineage).to_arrow().to_pylist()}
    assert {key: row["_row_id"] for key, row in after.items()} == {key: row["_row_id"] for key, row in before.items()}
    moved = {key for key, row in after.items() if row != before[key]}
    assert moved == {7, 5234} and sum(page_reads) == 2
