"""Small promises of the surface: what is named is meant, what fails changes nothing, nobody is in the way of a name."""

from __future__ import annotations

import os
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import DecimalType, IntegerType

import neve
from neve import Table
from neve.catalog import LostRace
from neve.errors import CommitConflict, UserError
from neve.run.read import file_reader as files
from tests.support.tables import local


@pytest.fixture
def table(lake: neve.Lake) -> Table:
    made = lake.create_table("db.t", "id bigint, region string", ["region"], format_version=3)
    made.append([{"id": 1, "region": "eu"}])
    return made.refresh()


def test_a_look_at_the_first_rows_reads_no_more_than_these(lake: neve.Lake, monkeypatch: pytest.MonkeyPatch):
    """Also where Spark holds a column in another type and rows are read here however many there are."""
    made = lake.create_table("db.u", "id bigint, key uuid", format_version=3)
    for first in (0, 10, 20):
        made.append([{"id": first + n} for n in range(3)])
    opened: list[str] = []
    open_file = files.open_file
    monkeypatch.setattr(files, "open_file", lambda io, path, *rest: opened.append(path) or open_file(io, path, *rest))
    look = made.refresh().scan()
    assert (look.head(2).num_rows, len(opened)) == (2, 1)
    assert (look.head(4).num_rows, len(opened)) == (4, 3)
    assert (look.head(0).num_rows, look.head(100).num_rows, len(opened)) == (0, 9, 6)
    assert look.head(1).schema == look.to_arrow().schema


def test_a_condition_for_spark_alone_is_left_to_it_unless_it_would_round(lake: neve.Lake):
    for kind, is_read_here in (("uuid", False), ("timestamp_ns", True), ("struct<columns: uuid>", False)):
        made = lake.create_table(f"db.{kind[:4]}", f"id bigint, c {kind}", format_version=3)
        assert made.scan("id % 2 = 1")._runs_in_process("auto") is is_read_here
        assert made.scan("id = 1")._runs_in_process("auto")


def test_a_table_is_dropped_and_renamed_by_the_name_it_has(lake: neve.Lake, table: Table):
    """A namespace may be called as the catalog: its tables are found by their whole names first."""
    catalog = lake.catalog.name
    lake.create_table(f"{catalog}.db.t", "id bigint").append([{"id": 2}])
    lake.sql(f"ALTER TABLE {catalog}.db.t RENAME TO {catalog}.db.u")
    lake.sql(f"DROP TABLE {catalog}.db.u PURGE")
    assert lake.tables() == ["db.t"]
    assert lake.table("db.t").scan().to_arrow(engine="arrow")["id"].to_pylist() == [1]
    lake.sql(f"DROP TABLE {catalog}.db.t")
    assert lake.tables() == []


def test_a_property_that_is_refused_does_not_leave_the_table_upgraded(lake: neve.Lake, table: Table):
    with pytest.raises(UserError):
        lake.sql("ALTER TABLE db.t SET TBLPROPERTIES ('format-version' = '4', 'gc.enabled' = 'maybe')")
    assert table.refresh().context.metadata.format_version == 3


def test_the_format_version_is_no_property_but_an_upgrade(table: Table):
    with pytest.raises(UserError, match="from format version 3 to 2"):
        table.set_properties(**{"format-version": "2", "owner": "me"})
    assert "owner" not in table.refresh().context.metadata.properties
    metadata = table.set_properties(**{"format-version": "4", "owner": "me"}).context.metadata
    assert (metadata.format_version, metadata.properties.get("owner")) == (4, "me")
    assert "format-version" not in metadata.properties


def test_no_rows_replace_no_partitions(table: Table):
    assert table.overwrite_partitions([]).files_removed == 0
    assert table.refresh().scan().count() == 1


@pytest.mark.parametrize("doing", ["create_tag", "drop_tag", "rollback"])
def test_a_reference_is_changed_beside_a_writer(lake: neve.Lake, table: Table, doing: str, monkeypatch: Any):
    table.create_tag("old")
    table.create_branch("audit")
    first = table.refresh().context.metadata.current_snapshot_id
    _beside(lake, table, monkeypatch, branch="audit")
    if doing == "rollback":
        table.refresh().set_current_snapshot(first)
    else:
        getattr(table, doing)("new" if doing == "create_tag" else "old")
    refs = set(table.refresh().context.metadata.refs)
    assert refs == {"create_tag": {"main", "audit", "old", "new"}, "drop_tag": {"main", "audit"}}.get(
        doing, {"main", "audit", "old"}
    )


def test_a_reference_that_moved_meanwhile_is_a_conflict(lake: neve.Lake, table: Table, monkeypatch: Any):
    first = table.context.metadata.current_snapshot_id
    table.append([{"id": 2, "region": "us"}])
    _beside(lake, table, monkeypatch, branch="main")
    with pytest.raises(CommitConflict, match=r"'main' of table .* was moved by a concurrent writer"):
        table.refresh().rollback(first)
    assert table.refresh().scan().count() == 3


def _beside(lake: neve.Lake, table: Table, monkeypatch: Any, branch: str) -> None:
    """Have somebody else append right before the next change of the table's metadata, which then lost a race."""
    land, calls = type(lake.catalog).commit_table, []

    def late(catalog: Any, *arguments: Any) -> Any:
        if not calls:
            calls.append(1)
            lake.table(table.name).append([{"id": 9, "region": "eu"}], branch=branch)
            raise LostRace("Another writer changed the table first.", "file:///nowhere")
        return land(catalog, *arguments)

    monkeypatch.setattr(type(lake.catalog), "commit_table", late)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(DecimalType(5, 2), Decimal("123456.78")), (IntegerType(), 1.5), (IntegerType(), Decimal("2.5"))],
)
def test_a_default_that_would_be_another_value_is_refused(table: Table, kind: Any, value: Any):
    with pytest.raises(UserError, match="Cannot take"), table.evolve_schema() as change:
        change.add_column("x", kind, default_value=value)
    assert table.refresh().schema.column_names == ["id", "region"]


def test_a_metadata_file_is_registered_by_a_relative_path(lake: neve.Lake, table: Table, monkeypatch: Any):
    path = local(table.iceberg.metadata_location)
    monkeypatch.chdir(path.parent)
    lake.register_table("db.again", path.name)
    monkeypatch.chdir(os.sep)
    assert lake.table("db.again").scan().count() == 1


def test_the_audit_knows_files_of_nothing_but_nulls(lake: neve.Lake):
    table = lake.create_table("db.n", "id bigint, day date", ["days(day)", "bucket(4, day)"], format_version=2)
    table.append([{"id": 1, "day": None}])
    assert table.refresh().verify().is_sound


def test_a_property_that_another_engine_misspelt_does_not_fail_what_has_landed(lake: neve.Lake):
    table = lake.create_table("db.u", "id bigint")
    table.append([{"id": 1}])
    transaction = SqlCatalog(lake.catalog.name, **lake.catalog.properties).load_table("db.u").transaction()
    transaction.set_properties({"write.metadata.delete-after-commit.enabled": "yes"}).commit_transaction()
    assert "v1" in table.refresh().create_tag("v1").context.metadata.refs
