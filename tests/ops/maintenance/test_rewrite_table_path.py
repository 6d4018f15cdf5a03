"""The metadata of a table for another folder: other paths, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable
from pyiceberg.table.puffin import PuffinFile

import neve
from neve import Table
from neve.errors import NeveError, TableError, UnknownName, UserError
from neve.io.paths import PrefixChange
from neve.model.partition import Specs
from neve.ops.maintenance import rewrite_table_path
from neve.tree.entries import DETAIL
from neve.tree.read import manifests_of, read_entries
from tests.support.copied_tables import carry_out, evolved, files_below, history, listed, registered, rows
from tests.support.tables import local

VERSIONS = (1, 2, 3, 4)


@pytest.fixture
def lake(tmp_path: Path) -> neve.Lake:
    return neve.connect(tmp_path / "lake")


def moved(table: Table, target: Path, **options: str) -> Any:
    """Rewrite the paths of a table, and carry the list out."""
    rewrite = table.rewrite_table_path(table.context.metadata.location, target.as_uri())
    for name, value in options.items():
        rewrite = getattr(rewrite, name)(value)
    result = rewrite.execute()
    carry_out(result.file_list_location)
    return result


def entries_of(table: Table) -> list[dict[str, Any]]:
    """Every entry of every snapshot, with all details."""
    context = table.refresh().context
    found: list[dict[str, Any]] = []
    for snapshot in context.metadata.snapshots:
        manifests = manifests_of(context.io, context.metadata, snapshot)
        for manifest in manifests:
            entries = read_entries(context.io, [manifest], Specs.of(context.metadata), detail=DETAIL.names)
            found += [{"snapshot": snapshot.snapshot_id, **row} for row in entries.columns.to_pylist()]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_copy_has_every_snapshot_branch_and_tag(lake, tmp_path: Path, version: int):
    t = evolved(lake, version)
    want = history(t)
    result = moved(t, tmp_path / "copy")
    shutil.rmtree(tmp_path / "lake")
    copy = registered(tmp_path / "other", result.metadata_location)
    assert history(copy) == want
    assert copy.verify().is_sound
    copy.append(rows([99]))
    assert copy.scan("id = 99").count() == 1
    location = local(result.metadata_location)
    document = json.loads(location.read_text())
    assert str(tmp_path / "lake") not in json.dumps(document)
    assert location.name == result.latest_version


@pytest.mark.parametrize("version", [1, 2, 3])
def test_pyiceberg_reads_the_copy(lake, tmp_path: Path, version: int):
    t = evolved(lake, version)
    want = sorted(t.scan().to_arrow(engine="arrow")["id"].to_pylist())
    result = moved(t, tmp_path / "copy")
    shutil.rmtree(tmp_path / "lake")
    peer = StaticTable.from_metadata(result.metadata_location)
    assert sorted(peer.scan().to_arrow()["id"].to_pylist()) == want


@pytest.mark.parametrize("version", VERSIONS)
def test_entries_keep_everything_but_paths(lake, tmp_path: Path, version: int):
    t = evolved(lake, version)
    before, old, new = entries_of(t), t.context.metadata.location, (tmp_path / "copy").as_uri()
    copy = registered(tmp_path / "other", moved(t, tmp_path / "copy").metadata_location)
    after = entries_of(copy)
    assert len(before) == len(after) > 0
    for one, other in zip(before, after, strict=True):
        size = local(other["file_path"]).stat().st_size
        assert other["file_size_in_bytes"] in (size, one["file_size_in_bytes"])
        for name in ("file_path", "referenced_data_file"):
            assert other[name] == (one[name] and one[name].replace(old, new))
        bounds = {n: [(b["key"], b["value"].replace(old.encode(), new.encode())) for b in one[n] or ()] for n in BOUNDS}
        assert bounds == {n: [(b["key"], b["value"]) for b in other[n] or ()] for n in BOUNDS}
        same = one.keys() - {"file_path", "referenced_data_file", "file_size_in_bytes", *BOUNDS}
        assert {n: one[n] for n in same} == {n: other[n] for n in same}


BOUNDS = ("lower_bounds", "upper_bounds")


def test_position_delete_files_name_the_new_files(lake, tmp_path: Path):
    t = evolved(lake, 2)
    result = moved(t, tmp_path / "copy")
    deletes = sorted((tmp_path / "copy").rglob("*-deletes.parquet"))
    assert len(deletes) == result.rewritten_delete_files > 0
    for path in deletes:
        for name in pq.read_table(path)["file_path"].to_pylist():
            assert local(name).is_relative_to(tmp_path / "copy") and local(name).is_file()


def test_vectors_name_the_new_files_and_keep_their_offsets(lake, tmp_path: Path):
    t = evolved(lake, 3)
    moved(t, tmp_path / "copy")
    vectors = sorted((tmp_path / "copy").rglob("*.puffin"))
    assert vectors
    for path in vectors:
        read = PuffinFile(path.read_bytes())
        old = PuffinFile((tmp_path / "lake" / "db" / "t" / path.relative_to(tmp_path / "copy")).read_bytes())
        names = [blob.properties["referenced-data-file"] for blob in read.footer.blobs]
        assert all(local(name).is_relative_to(tmp_path / "copy") and local(name).is_file() for name in names)
        assert [(b.offset, b.length) for b in read.footer.blobs] == [(b.offset, b.length) for b in old.footer.blobs]
        assert [v.to_pylist() for v in read.to_vector().values()] == [v.to_pylist() for v in old.to_vector().values()]


def test_files_of_version_4_with_relative_paths_are_copied_as_they_are(lake, tmp_path: Path):
    t = evolved(lake, 4)
    result = moved(t, tmp_path / "copy")
    assert (result.rewritten_lists, result.rewritten_manifests) == (0, 0)
    assert "relative" in t.rewrite_table_path(t.context.metadata.location, "file:///copy").explain()


def test_a_tree_of_version_4_with_older_manifests(lake, tmp_path: Path):
    """Their paths are absolute, also the paths of the manifests in the root."""
    t = evolved(lake, 3)
    t.upgrade(4).append(rows([60]))
    want = history(t)
    result = moved(t, tmp_path / "copy")
    assert result.rewritten_lists and result.rewritten_manifests
    shutil.rmtree(tmp_path / "lake")
    copy = registered(tmp_path / "other", result.metadata_location)
    assert history(copy) == want and copy.verify().is_sound


def test_nothing_of_the_table_changes(lake, tmp_path: Path):
    t = evolved(lake, 2)
    before = files_below(tmp_path / "lake" / "db" / "t")
    rewrite = t.rewrite_table_path(t.context.metadata.location, "s3://bucket/t")
    rewrite.staging_location((tmp_path / "staging").as_uri()).execute()
    assert files_below(tmp_path / "lake" / "db" / "t") == before


@pytest.mark.parametrize("version", VERSIONS)
def test_a_later_copy_brings_only_what_is_new(lake, tmp_path: Path, version: int):
    t = evolved(lake, version)
    first = moved(t, tmp_path / "copy")
    t.append(rows([70, 71]))
    if version > 1:
        t.delete().where("id = 70").execute()
    want = history(t)
    second = moved(t, tmp_path / "copy", start_version=first.latest_version)
    targets, earlier = ({target for _, target in listed(r.file_list_location)} for r in (second, first))
    assert targets and targets.isdisjoint(earlier)
    shutil.rmtree(tmp_path / "lake")
    copy = registered(tmp_path / "other", second.metadata_location)
    assert history(copy) == want and copy.verify().is_sound


def test_a_later_copy_after_snapshots_expired(lake, tmp_path: Path):
    t = evolved(lake, 2)
    first = moved(t, tmp_path / "copy")
    t.drop_branch("side").drop_tag("early").append(rows([70]))
    t.expire_snapshots().older_than(1 << 50).retain_last(1).execute()
    want = history(t)
    second = moved(t, tmp_path / "copy", start_version=first.latest_version)
    assert history(registered(tmp_path / "other", second.metadata_location)) == want


def test_an_earlier_version_is_copied(lake, tmp_path: Path):
    t = evolved(lake, 2)
    earlier, want = local(t.context.iceberg.metadata_location).name, history(t)
    t.append(rows([70]))
    result = moved(t, tmp_path / "copy", end_version=earlier)
    assert result.latest_version == earlier
    assert history(registered(tmp_path / "other", result.metadata_location)) == want


def test_every_spelling_of_the_prefix_is_found(lake, tmp_path: Path):
    t = evolved(lake, 2)
    plain = t.context.metadata.location.removeprefix("file://")
    staging = (tmp_path / "staging").as_uri()
    result = t.rewrite_table_path(f"{plain}/", "s3://b/t/").staging_location(staging).execute()
    assert result.metadata_location.startswith("s3://b/t/metadata/")
    assert all(target.startswith("s3://b/t/") for _, target in listed(result.file_list_location))


def test_a_prefix_above_the_table_keeps_the_folders_below_it(lake, tmp_path: Path):
    t, target = evolved(lake, 3), tmp_path / "elsewhere"
    want = history(t)
    result = t.rewrite_table_path((tmp_path / "lake").as_uri(), target.as_uri()).execute()
    carry_out(result.file_list_location)
    assert (target / "db" / "t" / "metadata" / result.latest_version).is_file()
    assert history(registered(tmp_path / "other", result.metadata_location)) == want


def test_without_a_list(lake, tmp_path: Path):
    t = evolved(lake, 2)
    result = t.rewrite_table_path(t.context.metadata.location, "s3://b/t").create_file_list(False).execute()
    assert result.file_list_location == "N/A"
    assert not list((tmp_path / "lake").rglob("file-list"))


def test_call_returns_the_columns_of_iceberg(lake, tmp_path: Path):
    t = evolved(lake, 2)
    staging = (tmp_path / "staging").as_uri()
    text = f"""CALL system.rewrite_table_path(table => 'db.t', source_prefix => '{t.context.metadata.location}',
        target_prefix => 's3://b/t', staging_location => '{staging}', create_file_list => true)"""
    row = lake.sql(text).output_rows.to_pylist()
    assert row == [
        {
            "latest_version": local(t.context.iceberg.metadata_location).name,
            "file_list_location": f"{staging}/file-list",
            "rewritten_manifest_file_paths_count": len(list((tmp_path / "staging").rglob("*-m[0-9]*.avro"))),
            "rewritten_delete_file_paths_count": len(list((tmp_path / "staging").rglob("*-deletes.parquet"))),
        }
    ]


def test_statistics_files_are_listed(lake, tmp_path: Path):
    t = evolved(lake, 2)
    path = tmp_path / "lake" / "db" / "t" / "metadata" / "stats.puffin"
    path.write_bytes(b"PFA1PFA1{}")
    head = t.context.metadata.current_snapshot_id
    document = json.loads(local(t.context.iceberg.metadata_location).read_text())
    about = {"snapshot-id": head, "statistics-path": path.as_uri(), "file-size-in-bytes": 10}
    document["statistics"] = [about | {"file-footer-size-in-bytes": 6, "blob-metadata": []}]
    document["properties"]["write.data.path"] = f"{document['location']}/data"
    changed = local(t.context.iceberg.metadata_location).with_name("99999-changed.metadata.json")
    changed.write_text(json.dumps(document))
    copied = moved(registered(tmp_path / "other", changed.as_uri()), tmp_path / "copy")
    metadata = StaticTable.from_metadata(copied.metadata_location).metadata
    assert [s.statistics_path for s in metadata.statistics] == [f"{(tmp_path / 'copy').as_uri()}/metadata/stats.puffin"]
    assert metadata.properties["write.data.path"] == f"{(tmp_path / 'copy').as_uri()}/data"
    assert (tmp_path / "copy" / "metadata" / "stats.puffin").read_bytes() == path.read_bytes()


def test_files_outside_the_prefix_are_named(lake, tmp_path: Path):
    t = lake.create_table("db.far", "id bigint", properties={"write.data.path": (tmp_path / "far").as_uri()})
    t.append([{"id": 1}])
    with pytest.raises(UserError, match=r"1 file of it outside .*lake/db/far: .*far/.*parquet"):
        t.rewrite_table_path(t.context.metadata.location, "s3://b/t").plan()


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("", "s3://b/t", "The source prefix is ''"),
        ("/", "s3://b/t", "The source prefix is '/'"),
        ("{t}", "", "The target prefix is ''"),
        ("{t}", "copies/t", "'copies/t' is relative"),
        ("{t}", "s3://b/../t", "has `.` or `..`"),
        ("{t}", 7, "not as int"),
        ("{t}", "{t}/", "are both"),
        ("s3://other/t", "s3://b/t", "which is not below s3://other/t"),
        ("{t}/data", "s3://b/t", "which is not below"),
    ],
)
def test_bad_prefixes_are_rejected(lake, source: str, target: Any, message: str):
    t = lake.create_table("db.t", "id bigint")
    there = t.context.metadata.location
    target = target.replace("{t}", there) if isinstance(target, str) else target
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        t.rewrite_table_path(source.replace("{t}", there), target).execute()


def test_unknown_and_swapped_versions_are_rejected(lake):
    t = evolved(lake, 2)
    rewrite = t.rewrite_table_path(t.context.metadata.location, "s3://b/t")
    newest = local(t.context.iceberg.metadata_location).name
    oldest = t.context.metadata.metadata_log[0].metadata_file
    with pytest.raises(UnknownName, match=r"Unknown metadata file 'v11\.metadata\.json'"):
        rewrite.start_version("v11.metadata.json").plan()
    with pytest.raises(UserError, match="not older than"):
        rewrite.start_version(newest).plan()
    with pytest.raises(UserError, match="not older than"):
        rewrite.start_version(newest).end_version(oldest).plan()
    assert len(rewrite.start_version(oldest).plan().versions) == len(t.context.metadata.metadata_log)


def test_version_4_needs_a_scheme(lake):
    t = lake.create_table("db.t", "id bigint", format_version=4)
    with pytest.raises(UserError, match="needs a URI scheme"):
        t.rewrite_table_path(t.context.metadata.location, "/copies/t").plan()


def test_a_failure_leaves_nothing_behind(lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    t, written = evolved(lake, 2), []

    def failing(io: Any, path: str, data: bytes) -> None:
        if path.endswith(".metadata.json"):
            raise TableError("The disk is full.")
        written.append(path)
        write(io, path, data)

    write = rewrite_table_path.write_new_file
    monkeypatch.setattr(rewrite_table_path, "write_new_file", failing)
    staging = tmp_path / "staging"
    with pytest.raises(NeveError, match="full"):
        t.rewrite_table_path(t.context.metadata.location, "s3://b/t").staging_location(staging.as_uri()).execute()
    assert written and not [p for p in staging.rglob("*") if p.is_file()]


def test_a_missing_old_metadata_file_is_left_out(lake, tmp_path: Path):
    t = evolved(lake, 2)
    want, gone = history(t), t.context.metadata.metadata_log[1].metadata_file
    local(gone).unlink()
    assert gone in t.rewrite_table_path(t.context.metadata.location, "s3://b/t").explain()
    result = moved(t, tmp_path / "copy")
    assert history(registered(tmp_path / "other", result.metadata_location)) == want


def test_prefixes_end_at_folders():
    change = PrefixChange("s3a://b/t", "file:///copy")
    assert change.apply("s3://b/t2/f") == "s3://b/t2/f"
    assert change.apply("s3://b/t/a//f") == "file:///copy/a//f"
    assert change.apply("data/f") == "data/f"
