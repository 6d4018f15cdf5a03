"""Version 4 tables once more in the spelling of version 3: other readers find the same files and vectors."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

import neve
from neve.catalog.metadata_files import read_metadata
from neve.errors import UserError
from neve.tree.entries import Content
from neve.tree.read import manifests_of, read_entries
from tests.support.metadata_tables import Kit, name_of
from tests.support.tables import local
from tests.tree.test_v4_golden import HISTORIES


def exported(t: Kit) -> str:
    return neve.connect(str(t.folder)).table("db.t").export_metadata()


@pytest.mark.parametrize("name", HISTORIES)
def test_pyiceberg_finds_the_files_of_a_version_4_table_in_its_export(name: str, tmp_path: Path):
    t = HISTORIES[name](tmp_path)
    peer = StaticTable.from_metadata(exported(t))
    assert peer.metadata.format_version == 3
    assert {name_of(task.file.file_path) for task in peer.scan().plan_files()} == t.names()


@pytest.mark.parametrize("name", ["row_delta", "second_vector", "born_with_vector", "upgrade"])
def test_vectors_become_entries_of_their_own(name: str, tmp_path: Path):
    t = HISTORIES[name](tmp_path)
    path = exported(t)
    metadata = read_metadata(t.io, path)
    entries = read_entries(t.io, manifests_of(t.io, metadata, metadata.current_snapshot()), t.specs, live_only=True)
    before = t.live()
    for content in (Content.DATA, Content.POSITION_DELETES):
        ours, theirs = (
            e.of_content(content).columns.drop(["manifest", "row", "status", "file_size_in_bytes"])
            for e in (before, entries)
        )
        order = [("file_path", "ascending"), ("content_offset", "ascending")]
        assert theirs.sort_by(order).to_pylist() == ours.sort_by(order).to_pylist()
    vectors = entries.of_content(Content.POSITION_DELETES)
    sizes = [local(p).stat().st_size for p in vectors["file_path"].to_pylist()]
    assert vectors["file_size_in_bytes"].to_pylist() == sizes


def test_a_table_that_was_emptied_is_exported(tmp_path: Path):
    t = neve.connect(tmp_path).create_table("db.t", "id bigint", format_version=4)
    t.append([{"id": 1}])
    t.delete().where("id = 1").execute()
    t.rewrite_manifests().execute()
    peer = StaticTable.from_metadata(t.refresh().export_metadata())
    assert [s.summary["total-data-files"] for s in peer.metadata.snapshots][-1] == "0"
    assert not list(peer.scan().plan_files())


def test_older_tables_and_other_versions_are_refused(tmp_path: Path):
    Kit.create(tmp_path, 2)
    t = neve.connect(str(tmp_path)).table("db.t")
    with pytest.raises(UserError, match="version 2 metadata as version 3"):
        t.export_metadata()
    with pytest.raises(UserError, match="as version 2"):
        t.upgrade(4).export_metadata(2)
