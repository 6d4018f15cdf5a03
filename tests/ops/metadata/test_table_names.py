"""Tables by their names and places: what is named anew keeps its files, and wrong names and places are one error."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import neve
from neve.commit.environment import Phase
from neve.errors import NeveError, TableError, UserError
from neve.ops.context import TableContext
from neve.ops.metadata import evolve
from neve.ops.metadata.evolve_schema import SchemaChange
from tests.support.tables import ids_of, local
from tests.support.two_writers import Interruption


def test_a_lake_prints_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = f"sqlite:///{tmp_path}/prod.db"
    prod = neve.connect(catalog="prod", type="sql", uri=place, warehouse=f"file://{tmp_path}")
    assert str(prod) == "Lake(catalog='prod')"
    assert str(neve.connect(tmp_path / "my-lake")) == f"Lake('{tmp_path}/my-lake')"
    monkeypatch.chdir(tmp_path)
    assert str(neve.connect("my-lake")) == "Lake('my-lake')"


@pytest.mark.parametrize("name", ["db.t", "db.two words"])
def test_a_table_under_a_name_that_was_given_up_lies_elsewhere(tmp_path: Path, name: str):
    lake = neve.connect(tmp_path)
    lake.create_table(name, "id bigint").append([{"id": 1}])
    lake.rename_table(name, "db.old")
    made = lake.create_table(name, "id bigint")
    made.append([{"id": 2}])
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))
    assert made.remove_orphan_files().dry_run(False).execute().files_deleted == 0
    assert (ids_of(lake.table("db.old")), ids_of(lake.table(name))) == ([1], [2])


def test_a_creation_that_was_killed_does_not_keep_the_place(tmp_path: Path):
    """It left metadata, or half of it; a renamed table is as empty, and keeps its place."""
    lake, other = neve.connect(tmp_path / "lake"), neve.connect(tmp_path / "other")
    left = local(other.create_table("db.t", "id bigint").context.iceberg.metadata_location)
    place = tmp_path / "lake/db/t"
    (place / "metadata").mkdir(parents=True)
    (place / "metadata" / left.name).write_bytes(left.read_bytes())
    (place / "metadata/.0123456789abcdef0123456789abcdef.part").write_bytes(left.read_bytes()[:100])
    made = lake.create_table("db.t", "id bigint")
    assert made.context.metadata.location == place.as_uri()
    os.utime(place / "metadata" / left.name, (0, 0))
    assert made.remove_orphan_files().dry_run(False).execute().files_deleted == 1
    lake.rename_table("db.t", "db.old")
    assert lake.create_table("db.t", "id bigint").context.metadata.location != place.as_uri()


def test_a_place_with_metadata_that_cannot_be_read_is_taken(tmp_path: Path):
    """Nobody knows what the files beside it are for."""
    (place := tmp_path / "lake/db/t").joinpath("metadata").mkdir(parents=True)
    (place / "metadata/00000-torn.metadata.json").write_text("{")
    made = neve.connect(tmp_path / "lake").create_table("db.t", "id bigint")
    assert made.context.metadata.location != place.as_uri()


def test_a_place_that_is_not_local_is_no_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for place in ("s3://bucket/lake", Path("s3://bucket/lake"), "gs:/bucket"):
        with pytest.raises(UserError, match="must be local"):
            neve.connect(place)
    assert list(tmp_path.iterdir()) == []
    neve.connect(f"file://{tmp_path}/lake").create_table("db.t", "id bigint")
    assert (tmp_path / "lake/db/t").is_dir() and not (tmp_path / "file:").exists()


def test_a_relative_location_means_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my work é").mkdir()
    monkeypatch.chdir(tmp_path / "my work é")
    made = neve.connect(tmp_path / "lake").create_table("db.t", "id bigint", location="here/there")
    made.append([{"id": 1}])
    metadata = made.refresh().context.iceberg.metadata_location
    neve.connect(tmp_path / "lake").register_table("db.u", os.path.relpath(metadata.removeprefix("file://")))
    monkeypatch.chdir(tmp_path)
    assert [ids_of(neve.connect("lake").table(name)) for name in ("db.t", "db.u")] == [[1], [1]]


def test_a_catalog_that_is_damaged_is_one_error(tmp_path: Path):
    neve.connect(tmp_path)
    (catalog,) = tmp_path.glob("*.db")
    catalog.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(NeveError, match="Cannot open the catalog of lake"):
        neve.connect(tmp_path)


@pytest.mark.parametrize("name", [5, ("db", 5), None])
def test_a_name_that_is_none_is_one_error(tmp_path: Path, name: Any):
    with pytest.raises(UserError, match="Give a table by its name"):
        neve.connect(tmp_path).table(name)


def test_a_rename_of_nothing_makes_no_namespace(tmp_path: Path):
    lake = neve.connect(tmp_path)
    lake.create_table("db.t", "id bigint")
    with pytest.raises(UserError, match="Unknown table"):
        lake.rename_table("db.nope", "brandnew.t")
    assert not lake.catalog.namespace_exists("brandnew")


@pytest.mark.parametrize("version", ["3", 0, 5])
def test_a_version_that_is_none_is_one_error(tmp_path: Path, version: Any):
    lake = neve.connect(tmp_path)
    with pytest.raises(UserError, match="version"):
        lake.create_table("db.t", "id bigint", format_version=version)
    with pytest.raises(UserError, match="version"):
        lake.create_table("db.u", "id bigint").upgrade(version)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: evolve.set_properties(t.context, {"a": "b"}),
        lambda t: evolve.upgrade_format_version(t.context, 3),
        lambda t: evolve.evolve_partitions(t.context, ["bucket(4, id)"]),
        lambda t: SchemaChange(t.context).rename_column("id", "x").commit(),
    ],
    ids=["properties", "version", "partitions", "columns"],
)
def test_a_change_does_not_go_into_a_table_that_was_made_anew(tmp_path: Path, change: Callable[[neve.Table], Any]):
    lake = neve.connect(tmp_path)
    stale = lake.create_table("db.t", "id bigint")
    lake.drop_table("db.t")
    lake.create_table("db.t", "other bigint")
    before = lake.table("db.t").context.iceberg.metadata_location
    with pytest.raises(TableError, match="created again"):
        change(stale)
    assert lake.table("db.t").context.iceberg.metadata_location == before


@pytest.mark.parametrize("phase", [Phase.REFRESH, Phase.DRAFT, Phase.SWAP])
def test_an_append_does_not_go_into_a_table_that_is_made_anew_meanwhile(tmp_path: Path, phase: Phase):
    lake = neve.connect(tmp_path)
    lake.create_table("db.t", "id bigint")

    def make_anew() -> None:
        lake.drop_table("db.t")
        lake.create_table("db.t", "other string, id string")

    stale = neve.connect(tmp_path, environment=Interruption([make_anew], phase).environment).table("db.t")
    with pytest.raises(TableError, match="created again"):
        stale.append([{"id": 1}])
    assert lake.table("db.t").iceberg.metadata.current_snapshot_id is None
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".parquet", ".avro")]


def test_a_table_that_is_dropped_meanwhile_is_one_error_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lake = neve.connect(tmp_path)
    table, publish = lake.create_table("db.t", "id bigint"), TableContext.commit

    def meanwhile(*asked: Any, **options: Any) -> Any:
        lake.drop_table("db.t", purge=True)
        return publish(*asked, **options)

    monkeypatch.setattr(TableContext, "commit", meanwhile)
    with pytest.raises(TableError, match="does not exist any more"):
        table.append([{"id": 1}])
    assert [path for path in (tmp_path / "db").rglob("*") if path.is_file()] == []


def test_a_table_whose_metadata_lies_elsewhere_keeps_its_place_too(tmp_path: Path):
    lake = neve.connect(tmp_path)
    lake.create_table("db.t", "id bigint", properties={"write.metadata.path": "meta"}).append([{"id": 1}])
    lake.rename_table("db.t", "db.old")
    assert (
        lake.create_table("db.t", "id bigint").context.metadata.location
        != lake.table("db.old").context.metadata.location
    )


def test_places_are_spelt_out_and_others_are_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    lake = neve.connect("lake")
    made = lake.create_table("db.t", "id bigint", location="lake/../there")
    assert made.context.metadata.location == f"file://{tmp_path}/there"
    with suppress(Exception):  # its storage may not be there
        lake.create_table("db.u", "id bigint", location="hdfs:/x/t")
    assert not (tmp_path / "hdfs:").exists()
