"""Branches and tags come and go; the snapshots they named stay."""

from __future__ import annotations

import pytest

import neve
from neve.errors import CommitError, UnknownName, UserError
from tests.support.tables import ids_of


@pytest.fixture
def table(lake: neve.Lake) -> neve.Table:
    t = lake.create_table("db.t", "id bigint, region string", ["region"])
    t.append([{"id": 1, "region": "eu"}])
    t.create_tag("v1").create_branch("audit")
    t.append([{"id": 2, "region": "eu"}])
    return t


def refs(t: neve.Table) -> dict[str, str]:
    return {row["name"]: row["type"].lower() for row in t.inspect.refs().to_pylist()}


def test_a_dropped_tag_is_gone_and_its_snapshot_is_not(table):
    first = table.inspect.snapshots()["snapshot_id"][0].as_py()
    assert ids_of(table, ref="v1") == [1]
    assert table.drop_tag("v1") is table
    assert refs(table) == {"main": "branch", "audit": "branch"}
    with pytest.raises(UnknownName, match="v1"):
        table.scan(ref="v1")
    assert ids_of(table, snapshot_id=first) == [1] and ids_of(table) == [1, 2]
    assert table.create_tag("v1").drop_tag("v1").drop_branch("audit") and refs(table) == {"main": "branch"}


def test_a_tag_is_dropped_as_a_tag_and_a_branch_as_a_branch(table):
    with pytest.raises(UnknownName, match=r"tag 'audit'.*'v1'"):
        table.drop_tag("audit")
    with pytest.raises(UnknownName, match="branch 'v1'"):
        table.drop_branch("v1")
    with pytest.raises(UserError, match="main"):
        table.drop_tag("main")
    assert refs(table) == {"main": "branch", "audit": "branch", "v1": "tag"}


def test_a_tag_that_another_writer_moved_meanwhile_stays(table, monkeypatch):
    """It names another snapshot than the one that was to lose its name."""
    other = neve.Table(table.context).refresh()
    other.drop_tag("v1").create_tag("v1")
    monkeypatch.setattr(table, "refresh", lambda: table)
    with pytest.raises(CommitError, match="v1"):
        table.drop_tag("v1")
    assert refs(other)["v1"] == "tag" and ids_of(other, ref="v1") == [1, 2]


def test_partitions_of_older_specs_are_not_overwritten(table):
    table.evolve_partitions(add=["bucket(1, id)"])
    table.append([{"id": 3, "region": "eu"}])
    table.overwrite_partitions([{"id": 4, "region": "eu"}])
    assert ids_of(table) == [1, 2, 4]
    table.overwrite([{"id": 5, "region": "eu"}], where="region = 'eu'")
    assert ids_of(table) == [5]


def test_a_table_that_was_dropped_meanwhile_is_unknown(table):
    table.context.catalog.drop_table(("db", "t"))
    with pytest.raises(UnknownName, match=r"db\.t"):
        table.scan()


def test_a_branch_is_published_by_moving_main_to_it(table):
    table.create_branch("work").append([{"id": 3, "region": "eu"}], branch="work")
    assert ids_of(table.fast_forward("main", "work")) == [1, 2, 3]
    assert ids_of(table.fast_forward("main", "work")) == [1, 2, 3]
    table.fast_forward("copy", "work")
    assert ids_of(table, ref="copy") == [1, 2, 3]


def test_a_branch_that_lacks_commits_is_not_published(table, lake):
    table.append([{"id": 3, "region": "eu"}], branch="audit")
    with pytest.raises(UserError, match="it has snapshots that 'audit' does not have"):
        lake.sql("CALL system.fast_forward('db.t', 'main', 'audit')")
    assert ids_of(table.refresh()) == [1, 2]
    for wrong in (("main", "nope"), ("v1", "main")):
        with pytest.raises(UserError):
            table.fast_forward(*wrong)
