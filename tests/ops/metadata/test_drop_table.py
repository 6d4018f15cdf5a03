"""A dropped table is forgotten; a purged one takes its files along, and no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import neve
from neve.catalog.sql import EmbeddedCatalog
from neve.commit.actions import Append
from neve.errors import MissingFile, UnknownName, UserError
from neve.ops.metadata.drop_table import drop_table
from tests.support.metadata_tables import NAME, Kit
from tests.support.servers import rest_server
from tests.support.tables import local


def lived(lake: neve.Lake, name: str = "db.t", version: int = 2, **properties: str) -> neve.Table:
    """Two specs, replaced files, a tag on an old snapshot."""
    t = lake.create_table(name, "id bigint, region string", ["region"], format_version=version, properties=properties)
    t.append([{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}])
    t.create_tag("first")
    t.evolve_partitions(drop=["region"])
    t.append([{"id": 3, "region": "eu"}])
    t.overwrite([{"id": 1, "region": "eu"}], where="region = 'eu'")
    return t


def files_below(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and "catalog.db" not in p.name}


def test_dropping_keeps_the_files(lake, tmp_path):
    lived(lake)
    before = files_below(tmp_path)
    assert lake.drop_table("db.t") == neve.DropResult(0, {})
    assert lake.tables() == [] and files_below(tmp_path) == before


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_purging_deletes_what_the_metadata_leads_to(lake, tmp_path, version):
    lived(lake, version=version)
    lived(lake, "db.other")
    other = {f for f in files_below(tmp_path) if "/other/" in f}
    stray = tmp_path / "lake/db/t/data/not-of-the-table.parquet"
    stray.write_bytes(b"kept")
    mine = files_below(tmp_path) - other - {str(stray.relative_to(tmp_path))}
    done = lake.drop_table("db.t", purge=True)
    assert (done.files_deleted, done.files_kept) == (len(mine), {})
    assert files_below(tmp_path) == other | {str(stray.relative_to(tmp_path))}
    assert lake.tables() == ["db.other"] and lake.table("db.other").verify().is_sound


def test_sql_says_purge(lake, tmp_path):
    lived(lake)
    lake.sql("DROP TABLE db.t PURGE")
    assert lake.tables() == [] and files_below(tmp_path) == set()


def test_places_the_table_was_told_to_write_to_are_its_own(lake, tmp_path):
    places = {"write.data.path": f"file://{tmp_path}/elsewhere", "write.metadata.path": f"file://{tmp_path}/meta"}
    lived(lake, **places)
    assert len(files_below(tmp_path / "elsewhere")) == 4 and files_below(tmp_path / "meta")
    lake.drop_table("db.t", purge=True)
    assert files_below(tmp_path) == set()


def test_a_table_that_must_not_collect_garbage_is_not_purged(lake, tmp_path):
    lived(lake, **{"gc.enabled": "false"})
    before = files_below(tmp_path)
    with pytest.raises(UserError, match=r"db\.t.*gc\.enabled is false"):
        lake.drop_table("db.t", purge=True)
    assert lake.tables() == ["db.t"] and files_below(tmp_path) == before


def test_what_cannot_be_read_is_noticed_before_anything_is_done(lake, tmp_path):
    t = lived(lake)
    manifest = local(t.inspect.manifests()["path"][0].as_py())
    manifest.unlink()
    before = files_below(tmp_path)
    with pytest.raises(MissingFile, match=manifest.name):
        lake.drop_table("db.t", purge=True)
    assert lake.tables() == ["db.t"] and files_below(tmp_path) == before


def test_files_brought_in_from_elsewhere_stay_and_are_named(tmp_path):
    kit = Kit.create(tmp_path / "lake")
    foreign, own = tmp_path / "imported.parquet", tmp_path / "lake/db/t/data/own.parquet"
    own.parent.mkdir(exist_ok=True)
    for file in (foreign, own):
        file.write_bytes(b"PAR1")
    kit.ok(Append(kit.data("own")))
    kit.ok(Append(kit.data("x").with_columns(file_path=[f"file://{foreign}"])))
    done = drop_table(kit.catalog, NAME, purge=True)
    assert done.files_kept == {f"file://{foreign}": "it is outside the table"}
    assert foreign.exists() and not own.exists() and files_below(tmp_path / "lake") == set()


def test_a_link_that_leads_out_of_the_table_is_not_followed(lake, tmp_path):
    t = lived(lake)
    data, outside = tmp_path / "lake/db/t/data", tmp_path / "outside"
    os.rename(data, outside)
    data.symlink_to(outside)
    done = lake.drop_table("db.t", purge=True)
    assert len(done.files_kept) == 4 and len(files_below(outside)) == 4
    assert all("symbolic link" in why for why in done.files_kept.values())
    with pytest.raises(UnknownName):
        t.refresh()


def test_a_rest_server_is_asked_to_delete_the_files(tmp_path):
    with rest_server(EmbeddedCatalog(tmp_path / "lake")) as server:
        lake = neve.connect(catalog="rest", type="rest", uri=server.uri)
        lake.create_table("db.t", "id bigint")
        lake.create_table("db.kept", "id bigint", properties={"gc.enabled": "false"})
        asked: list[str] = []

        def watching(handler, method: str, path: str) -> bool:
            asked.append(f"{method} {handler.path}")
            return False

        server.fault = watching
        lake.drop_table("db.t", purge=True)
        with pytest.raises(UserError, match=r"gc\.enabled"):
            lake.drop_table("db.kept", purge=True)
        assert [a for a in asked if a.startswith("DELETE")] == ["DELETE /v1/namespaces/db/tables/t?purgeRequested=True"]
        assert lake.tables() == ["db.kept"]
