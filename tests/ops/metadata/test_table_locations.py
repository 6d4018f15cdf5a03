"""Where a table keeps its files is what its properties say, in whichever way they say it."""

from __future__ import annotations

from pathlib import Path

import pytest

import neve
from tests.support.tables import ids_of


def stored(folder: Path) -> set[str]:
    return {path.suffix for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("is_absolute", [False, True], ids=["below the table", "elsewhere"])
def test_files_go_where_the_properties_say_and_are_read_there(
    tmp_path: Path, version: int, is_absolute: bool, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    lake = neve.connect(tmp_path / "lake")
    place = tmp_path / "far" if is_absolute else tmp_path / "lake/db/t"
    named = {"write.data.path": "files", "write.metadata.path": "meta"}
    properties = {name: f"{place}/{below}" if is_absolute else below for name, below in named.items()}
    table = lake.create_table("db.t", "id bigint", format_version=version, properties=properties)
    for id_ in (1, 2):
        table.append([{"id": id_}])
    assert ids_of(lake.table("db.t")) == [1, 2]
    assert stored(place / "files") == {".parquet"}
    assert stored(place / "meta") >= ({".parquet"} if version == 4 else {".avro"})
    assert not stored(tmp_path / "work")
    assert table.refresh().verify().is_sound


def test_a_table_with_its_metadata_elsewhere_goes_on_after_an_upgrade(tmp_path: Path):
    lake = neve.connect(tmp_path / "lake")
    properties = {"write.metadata.path": f"{tmp_path}/meta"}
    table = lake.create_table("db.t", "id bigint", format_version=3, properties=properties)
    table.append([{"id": 1}])
    table.upgrade(format_version=4)
    table.append([{"id": 2}])
    assert ids_of(lake.table("db.t")) == [1, 2]


def test_metadata_that_leaves_the_log_is_deleted_after_any_change(tmp_path: Path):
    wanted = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
    table = neve.connect(tmp_path).create_table("db.t", "id bigint", properties=wanted)
    table.append([{"id": 1}])
    for number in range(5):
        table.set_properties(note=str(number))
    table.create_tag("first")
    log = table.refresh().context.metadata.metadata_log
    found = {path.name for path in (tmp_path / "db/t/metadata").glob("*.metadata.json")}
    named = {entry.metadata_file for entry in log} | {table.refresh().context.iceberg.metadata_location}
    assert len(log) == 2 and found == {path.rsplit("/", 1)[1] for path in named}
