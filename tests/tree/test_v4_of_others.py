"""Tables that others wrote and wrote differently keep their rows when they become trees of version 4."""

from __future__ import annotations

import json
import os
import time
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import TimestampType

import neve
from neve import Table
from neve.errors import UnsupportedFeature
from tests.support.foreign_tables import checksum, made_tables, needs_fixtures
from tests.support.tables import local
from tests.test_foreign_tables import MADE


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("made")
    return folder, made_tables(folder)


def changed(metadata: Path, change: Any) -> str:
    """Another metadata file beside one, with what was changed in it."""
    found = json.loads(metadata.read_text())
    change(found)
    other = metadata.with_name("99999-changed.metadata.json")
    other.write_text(json.dumps(found))
    return other.as_uri()


@needs_fixtures
@pytest.mark.parametrize("name", MADE)
def test_deletes_still_find_their_files_when_paths_are_spelled_anew(name: str, made: Any, tmp_path: Path):
    """Paths without a scheme get one in a tree; delete files that name them keep theirs."""
    folder, expected = made
    want, metadata = expected[name], folder / name / "metadata" / expected[name]["metadata"]

    def with_scheme(found: dict[str, Any]) -> None:
        found["location"] = f"file://{found['location']}"

    table = neve.connect(tmp_path).register_table("db.t", changed(metadata, with_scheme)).upgrade(4)
    table.rewrite_manifests().execute()
    assert _summed(table) == (want["rows"], want["checksum"])
    table.remove_dangling_deletes().execute()
    assert _summed(table) == (want["rows"], want["checksum"])


def _summed(table: Table) -> tuple[int, str]:
    found: tuple[int, str] = checksum().of(table.refresh().scan().to_arrow(engine="arrow"))[:2]
    return found


@pytest.mark.parametrize("version", [3, 4])
def test_paths_relative_to_the_table_are_in_use(tmp_path: Path, version: int):
    """Version 4 lets every path of its metadata be relative, also of a snapshot that an older version listed."""
    lake = neve.connect(tmp_path)
    table = lake.create_table("db.t", "id bigint", format_version=version)
    table.append([{"id": 1}])
    table.append([{"id": 2}])
    metadata = local(table.refresh().iceberg.metadata_location)
    (metadata.parent / "some.stats").write_bytes(b"stats")

    def relative(found: dict[str, Any]) -> None:
        found["format-version"] = 4
        statistics = {"snapshot-id": found["current-snapshot-id"], "statistics-path": "metadata/some.stats"}
        sizes = {"file-size-in-bytes": 5, "file-footer-size-in-bytes": 2, "blob-metadata": []}
        found["statistics"] = [statistics | sizes]
        for row, key in [
            *((row, "metadata-file") for row in found["metadata-log"]),
            *((row, "root-manifest" if version == 4 else "manifest-list") for row in found["snapshots"]),
        ]:
            row[key] = row[key].removeprefix(f"{found['location']}/")

    lake.drop_table("db.t")
    table = lake.register_table("db.again", changed(metadata, relative))
    assert table.scan().count() == 2
    assert _orphans(table, metadata.parents[1]) == {metadata.name}, "only what nothing leads to any more"
    table.append([{"id": 3}])
    assert table.refresh().scan().count() == 3


def _orphans(table: Table, folder: Path) -> set[str]:
    old = time.time() - 10 * 24 * 60 * 60
    for path in folder.rglob("*"):
        os.utime(path, (old, old))
    return {path.rsplit("/", 1)[-1] for path in table.remove_orphan_files().plan().files}


def test_fields_that_share_an_id_cannot_be_told_apart_in_a_tree(tmp_path: Path):
    """Writers of version 1 numbered the fields of every spec from the start."""
    lake = neve.connect(tmp_path)
    table = lake.create_table("db.t", "id bigint, qty int, region string", ["qty"], format_version=1)
    table.append([{"id": 1, "qty": 5, "region": "eu"}])
    metadata = local(table.refresh().iceberg.metadata_location)

    def with_a_second_spec(found: dict[str, Any]) -> None:
        field = {"name": "region", "transform": "identity", "source-id": 3, "field-id": 1000}
        found["partition-specs"].append({"spec-id": 1, "fields": [field]})
        found |= {"default-spec-id": 1, "partition-spec": [field]}

    table = lake.register_table("db.again", changed(metadata, with_a_second_spec))
    table.append([{"id": 2, "qty": 6, "region": "us"}])
    with pytest.raises(UnsupportedFeature, match="partition field 1000 is 'qty' in spec 0 and 'region' in spec 1"):
        table.upgrade(4)
    assert table.upgrade(3).scan().count() == 2


def test_the_past_before_a_promotion_is_asked_in_its_own_type(tmp_path: Path):
    table = neve.connect(tmp_path).create_table("db.t", "id bigint, day date", format_version=4)
    table.append([{"id": 1, "day": date(1969, 12, 31)}])
    table.append([{"id": 2, "day": date(2024, 1, 1)}])
    before = table.refresh().iceberg.metadata.current_snapshot_id
    with table.evolve_schema() as change:
        change.update_column("day", TimestampType())
    table = table.refresh()
    table.append([{"id": 3, "day": datetime(1969, 12, 31, 12)}])
    rows = table.refresh().scan("day = DATE '1969-12-31'", snapshot_id=before).to_arrow(engine="arrow")
    assert rows["id"].to_pylist() == [1]
