"""The audit says nothing about a sound table, and exactly what is wrong with one in which one thing was broken."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.statistics import StatisticsFile

import neve
from neve.model.snapshots import Snapshots
from neve.ops.audit.snapshot_index import SnapshotRoot, root_findings
from neve.ops.audit.verify import Audit, Finding
from tests.support.evolved_tables import Lived, edit_avro, only
from tests.support.tables import local


class Shelf:
    """Tables built once; each test gets one as it was built."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lived: dict[int, Lived] = {}

    def table(self, version: int) -> Lived:
        home, copy = self.folder / f"v{version}", self.folder / f"v{version}-copy"
        if version not in self.lived:
            home.mkdir()
            self.lived[version] = Lived.create(home, version)
            shutil.copytree(home / "db", copy)
        else:
            shutil.rmtree(home / "db")
            shutil.copytree(copy, home / "db")
        return self.lived[version]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    return Shelf(tmp_path_factory.mktemp("shelf"))


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def either(shelf, request) -> Lived:
    return shelf.table(request.param)


@pytest.fixture
def v1(shelf) -> Lived:
    return shelf.table(1)


@pytest.fixture
def v2(shelf) -> Lived:
    return shelf.table(2)


@pytest.fixture
def v3(shelf) -> Lived:
    return shelf.table(3)


@pytest.fixture
def lived(v3) -> Lived:
    """Any version would do."""
    return v3


def found(audit: Audit) -> set[tuple[str, str]]:
    """Kind and file name of each finding."""
    return {(f.kind, name(f.path)) for f in audit.findings}


def kinds(audit: Audit) -> set[str]:
    return {f.kind for f in audit.findings}


def name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


# --- sound tables ---


def test_a_sound_table_has_no_findings(either):
    audit = either.audit()
    assert audit.is_sound and not audit.findings, str(audit)
    assert (audit.snapshots, audit.manifests, audit.data_files, audit.rows) == (6, 6, 8, 16)
    assert (audit.delete_files, audit.vectors) == ((2, 0) if either.kit.metadata.format_version == 2 else (0, 2))
    assert audit.bytes > sum(f.stat().st_size for f in either.kit.folder.rglob("*.parquet"))
    assert str(audit).startswith("Sound: 6 snapshots, 6 manifests, 8 data files, ")


def test_a_sound_v1_table_has_no_findings(v1):
    assert not v1.audit().findings


def test_a_table_without_snapshots_is_sound(v2):
    empty = v2.kit.metadata.model_copy(update={"snapshots": Snapshots(), "refs": {}, "current_snapshot_id": None})
    audit = v2.audit(empty.model_copy(update={"snapshot_log": []}))
    assert (audit.is_sound, audit.snapshots, audit.data_files) == (True, 0, 0)


def test_without_data_only_metadata_is_opened(either):
    for path in either.kit.folder.rglob("data/**/*.*"):
        if path.is_file():
            path.unlink()
    assert not either.audit(data=False).findings
    assert kinds(either.audit()) == {"missing-file"}


def test_an_audit_is_a_value_that_prints_and_serialises(v2):
    local(v2.files()[0]).unlink()
    audit = v2.audit()
    assert not audit.is_sound
    assert str(audit).startswith("Not sound (1 error): 6 snapshots")
    shown = json.loads(json.dumps(audit.as_dict()))
    assert shown["is_sound"] is False and shown["findings"][0]["kind"] == "missing-file"


def test_printing_is_bounded_and_free_of_control_characters():
    audit = Audit(tuple(Finding("missing-file", f"\x1b[31m{i}", "Gone.") for i in range(1000)))
    assert len(str(audit).splitlines()) == 22 and "980 more" in str(audit)
    assert "\x1b" not in str(audit)


# --- table metadata ---


def test_a_reference_to_no_snapshot_is_found(v2):
    metadata = v2.kit.metadata
    refs = {**metadata.refs, "lost": SnapshotRef(snapshot_id=404, snapshot_ref_type="branch")}
    finding = only(v2.audit(metadata.model_copy(update={"refs": refs})))
    assert finding.kind == "unknown-snapshot" and "'lost'" in finding.message


@pytest.mark.parametrize("default", ["schema", "spec", "sort-order"])
def test_a_default_that_is_not_listed_is_found(v2, default):
    field = {"schema": "current_schema_id", "spec": "default_spec_id", "sort-order": "default_sort_order_id"}[default]
    assert only(v2.audit(v2.kit.metadata.model_copy(update={field: 77}))).kind == f"unknown-{default}"


def test_a_snapshot_numbered_above_the_table_is_found(v2):
    finding = only(v2.audit(v2.kit.metadata.model_copy(update={"last_sequence_number": 5})))
    assert finding.kind == "sequence-number" and "numbered 6" in finding.message


def edited_snapshots(lived: Lived, change: Any) -> Any:
    rows = [{**row, **change(i, row)} for i, row in enumerate(lived.kit.metadata.lazy_snapshots.rows)]
    return lived.kit.metadata.model_copy(update={"snapshots": Snapshots(rows)})


def test_a_snapshot_that_descends_from_itself_is_found(v1):
    newest = v1.kit.head_id
    loop = edited_snapshots(v1, lambda i, row: {"parent-snapshot-id": newest} if i == 0 else {})
    assert only(v1.audit(loop)).kind == "parent"


def test_a_snapshot_not_numbered_above_its_parent_is_found(v2):
    def change(at: int, row: dict) -> dict:
        return {"sequence-number": 6} if at == 4 else {}

    finding = v2.audit(edited_snapshots(v2, change), data=False).findings[0]
    assert finding.kind == "sequence-number" and "parent" in finding.message


def test_a_snapshot_of_an_unknown_schema_is_found(v2):
    finding = only(v2.audit(edited_snapshots(v2, lambda at, row: {"schema-id": 9} if at == 1 else {})))
    assert finding.kind == "unknown-schema" and "schema 9" in finding.message


def test_snapshots_that_took_the_same_row_ids_are_found(v3):
    taken = edited_snapshots(v3, lambda at, row: {"first-row-id": 1, "added-rows": 8} if at == 1 else {})
    audit = v3.audit(taken, data=False)
    assert kinds(audit) == {"row-ids"} and "took the same row ids from 1 on" in audit.findings[0].message


def test_a_snapshot_that_cannot_be_parsed_is_found(v2):
    broken = edited_snapshots(v2, lambda at, row: {"summary": {"operation": "unheard of"}} if at == 1 else {})
    assert only(v2.audit(broken)).kind == "unreadable-file"


def test_a_missing_statistics_file_is_a_note(v2):
    path = f"{v2.kit.metadata.location}/metadata/gone.stats"
    row = {"snapshot-id": v2.kit.head_id, "statistics-path": path, "file-size-in-bytes": 9}
    file = StatisticsFile(**row, **{"file-footer-size-in-bytes": 1, "blob-metadata": []})
    audit = v2.audit(v2.kit.metadata.model_copy(update={"statistics": [file]}))
    assert found(audit) == {("statistics-file", "gone.stats")} and audit.is_sound


def test_a_snapshot_listed_twice_is_found(v2):
    rows = v2.kit.metadata.lazy_snapshots.rows
    assert only(v2.audit(v2.kit.metadata.model_copy(update={"snapshots": Snapshots([*rows, rows[0]])}))).kind == (
        "duplicate-snapshot"
    )


def test_a_log_entry_of_an_expired_snapshot_is_a_note(v2):
    rows = v2.kit.metadata.lazy_snapshots.rows
    audit = v2.audit(v2.kit.metadata.model_copy(update={"snapshots": Snapshots(rows[1:])}))
    assert only(audit).severity == "note" and audit.is_sound


def test_row_ids_that_were_never_handed_out_are_found(v3):
    audit = v3.audit(v3.kit.metadata.model_copy(update={"next_row_id": v3.kit.metadata.next_row_id - 1}))
    assert kinds(audit) == {"row-ids"}


def test_a_total_that_does_not_add_up_is_found(either):
    def change(at: int, row: dict) -> dict:
        return {"summary": {**row["summary"], "total-records": "15"}} if at == 2 else {}

    finding = only(either.audit(edited_snapshots(either, change)))
    assert finding.kind == "summary" and "total-records 15, not 16" in finding.message


# --- manifest lists ---


def test_a_missing_list_is_found_and_the_other_snapshots_are_still_checked(lived):
    local(lived.lists()[0]).unlink()
    local(lived.files()[0]).unlink()
    assert found(lived.audit()) == {("missing-file", name(p)) for p in (lived.lists()[0], lived.files()[0])}


def test_a_truncated_list_is_found(lived):
    path = local(lived.lists()[1])
    path.write_bytes(path.read_bytes()[:-20])
    assert found(lived.audit()) == {("unreadable-file", path.name)}


def test_two_lists_that_changed_places_are_found(lived):
    one, other = (local(p) for p in lived.lists()[:2])
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    assert {("list-header", one.name), ("list-header", other.name)} <= found(lived.audit())


@pytest.mark.parametrize(
    ("field", "change", "kind"),
    [
        ("manifest_length", lambda n: n + 1, "manifest-length"),
        ("added_files_count", lambda n: n + 1, "manifest-counts"),
        ("added_rows_count", lambda n: n + 1, "manifest-counts"),
        ("existing_files_count", lambda n: n + 1, "manifest-counts"),
        ("deleted_rows_count", lambda n: n + 1, "manifest-counts"),
        ("partition_spec_id", 99, "unknown-spec"),
    ],
)
def test_a_wrong_word_in_a_list_is_found(lived, field, change, kind):
    manifest = lived.manifest(spec=0)
    lived.edit_lists(manifest, **{field: change})
    finding = only(lived.audit())
    assert (finding.kind, finding.path) == (kind, manifest)


def test_a_manifest_numbered_otherwise_than_its_snapshot_is_found(lived):
    manifest = lived.manifest(spec=0)
    lived.edit_lists(manifest, sequence_number=2, min_sequence_number=2)
    assert found(lived.audit(data=False)) == {("manifest-sequence-number", name(manifest))}


def test_an_oldest_number_above_a_live_file_is_found(lived):
    manifest = lived.manifest(spec=2)
    lived.edit_lists(manifest, min_sequence_number=4)
    assert found(lived.audit()) == {("min-sequence-number", name(manifest))}


def test_an_oldest_number_below_every_file_is_a_note(lived):
    lived.edit_lists(lived.manifest(spec=2), min_sequence_number=1)
    audit = lived.audit()
    assert only(audit).kind == "min-sequence-number" and audit.is_sound


@pytest.mark.parametrize(
    "summary",
    [
        {"contains_null": False},
        {"lower_bound": b"fr"},
        {"upper_bound": b"fr"},
        {"lower_bound": None, "upper_bound": None},
    ],
    ids=str,
)
def test_a_partition_summary_that_leaves_a_file_out_is_found(lived, summary):
    manifest = lived.manifest(spec=0)
    lived.edit_lists(manifest, partitions=lambda old: [{**old[0], **summary}])
    assert found(lived.audit()) == {("partition-summary", name(manifest))}


def test_a_manifest_listed_twice_is_found(v2):
    path, twice = v2.lists()[-1], v2.manifest(spec=2)
    edit_avro(path, lambda row: [row, row] if row["manifest_path"] == twice else None)
    assert found(v2.audit()) == {("duplicate-manifest", name(twice))}


def test_a_data_manifest_without_row_ids_is_found(v3):
    manifest = v3.manifest(spec=0)
    v3.edit_lists(manifest, first_row_id=None)
    assert found(v3.audit()) == {("row-ids", name(manifest))}


def test_files_that_share_row_ids_are_found(v3):
    v3.edit_lists(v3.manifest(spec=2), first_row_id=3)
    audit = v3.audit()
    assert kinds(audit) == {"row-ids"} and "Shares row ids from 3 on" in audit.findings[0].message


def test_a_manifest_nobody_added_is_found(v2):
    (snapshot, *_), (manifest, *_) = v2.kit.metadata.snapshots, v2.kit.manifests()
    root = SnapshotRoot(snapshot, "list", (replace(manifest, added_snapshot_id=None, sequence_number=1),))
    assert "added-snapshot" in {f.kind for f in root_findings(root, {}, v2.kit.specs)}


def test_a_manifest_path_that_must_not_be_followed_is_found(v2):
    v2.edit_lists(v2.manifest(spec=2), manifest_path="file:///tmp/\x1b[2Jm.avro")
    assert kinds(v2.audit()) == {"unreadable-file"}


# --- manifests ---


def test_a_missing_manifest_is_found_once_for_all_snapshots(lived):
    manifest = lived.manifest(spec=0)
    local(manifest).unlink()
    assert found(lived.audit()) == {("missing-file", name(manifest))}


def test_a_truncated_manifest_is_found(lived):
    path = local(lived.manifest(spec=0))
    path.write_bytes(path.read_bytes()[:-30])
    assert found(lived.audit()) == {("unreadable-file", path.name)}


@pytest.mark.parametrize(
    "header", [{"partition_spec_id": "1"}, {"content": "deletes"}, {"format_version": "9"}], ids=str
)
def test_a_manifest_header_that_contradicts_the_list_is_found(lived, header):
    manifest = lived.manifest(spec=0)
    lived.edit_manifest(manifest, lambda row: None, **header)
    assert found(lived.audit()) == {("manifest-header", name(manifest))}


def test_a_tuple_of_another_spec_is_found(lived):
    region, both = lived.manifest(spec=0), lived.manifest(spec=1)
    shutil.copy(local(region), local(both))
    assert ("partition-tuple", name(both)) in found(lived.audit())


def test_a_delete_file_in_a_data_manifest_is_found(lived):
    file, manifest = lived.files(spec=2)[0], lived.manifest(spec=2)
    lived.edit_file(file, manifest, content=1)
    audit = lived.audit(data=False)
    assert ("entry-content", name(file)) in found(audit)


@pytest.mark.parametrize("field", ["sequence_number", "file_sequence_number"])
def test_an_entry_numbered_above_its_manifest_is_found(lived, field):
    file, manifest = lived.files(spec=2)[0], lived.manifest(spec=2)
    lived.edit_manifest(manifest, lambda row: row.update({field: 9}))
    if field == "sequence_number":
        lived.edit_lists(manifest, min_sequence_number=3)
    errors = {(f.kind, name(f.path)) for f in lived.audit().errors}
    assert errors == {("entry-sequence-number", name(file))}


def test_a_tombstone_without_its_number_is_found(either):
    manifest = either.manifest(spec=1)

    def forget(row: dict) -> None:
        if row["status"] == 2:
            row["sequence_number"] = None

    either.edit_manifest(manifest, forget)
    finding = only(either.audit())
    assert finding.kind == "entry-sequence-number" and "not new" in finding.message


def test_a_negative_count_is_found(lived):
    file, manifest = lived.files(spec=2)[0], lived.manifest(spec=2)
    lived.edit_file(file, manifest, file_size_in_bytes=-1)
    assert ("entry", name(file)) in found(lived.audit(data=False))


def test_an_unknown_status_is_found(lived):
    manifest = lived.manifest(spec=2)
    lived.edit_manifest(manifest, lambda row: row.update(status=9))
    assert "entry" in kinds(lived.audit(data=False))


def test_a_data_file_that_is_live_twice_is_found(v2):
    file, manifest = v2.files(spec=2)[0], v2.manifest(spec=2)
    v2.edit_manifest(manifest, lambda row: [row, row])
    v2.edit_lists(manifest, added_files_count=2, added_rows_count=6)
    audit = v2.audit()
    assert ("duplicate-file", name(file)) in found(audit)
    assert kinds(audit) == {"duplicate-file", "summary"}, "the totals are wrong as well"


# --- data files ---


def test_a_missing_data_file_is_found_once(lived):
    file = lived.files()[0]
    local(file).unlink()
    assert found(lived.audit()) == {("missing-file", name(file))}


def test_a_file_only_tombstones_name_may_be_gone(either):
    entries = either.kit.entries(deletes=False)
    (dropped,) = entries.filter(pc.equal(entries["status"], 2))["file_path"].to_pylist()
    local(dropped).unlink()
    assert found(either.audit()) == {("missing-file", name(dropped))}, "older snapshots still have it"

    newest = either.kit.metadata.lazy_snapshots.rows[-1:]
    kept = {"snapshots": Snapshots(newest), "snapshot_log": [], "refs": {"main": either.kit.metadata.refs["main"]}}
    assert not either.audit(either.kit.metadata.model_copy(update=kept)).findings


def test_a_truncated_data_file_is_found(lived):
    path = local(lived.files()[0])
    path.write_bytes(path.read_bytes()[:-10])
    assert found(lived.audit()) == {("file-size", path.name), ("unreadable-file", path.name)}


def test_a_data_file_with_other_rows_is_found(lived):
    path = local(lived.files(spec=2)[0])
    table = pq.read_table(path)
    pq.write_table(table.slice(0, 2), path)
    assert {("file-size", path.name), ("row-count", path.name)} <= found(lived.audit())


def test_two_data_files_that_changed_places_are_found(lived):
    eu, us = (local(p) for p in lived.files()[:2])
    kept = eu.read_bytes()
    eu.write_bytes(us.read_bytes())
    us.write_bytes(kept)
    audit = lived.audit()
    assert {("partition-value", eu.name), ("partition-value", us.name)} <= found(audit)
    assert {f for _, f in found(audit)} == {eu.name, us.name}


@pytest.mark.parametrize("value", ["ap", None])
def test_a_tuple_that_no_row_of_the_file_gives_is_found(lived, value):
    file, manifest = lived.files()[0], lived.manifest(spec=0)
    lived.edit_file(file, manifest, partition={"region": value})
    lived.edit_lists(manifest, partitions=lambda old: [{**old[0], "lower_bound": b"ap"}])
    errors = {f for f in found(lived.audit()) if f[0] != "delete-partition"}
    assert errors == {("partition-value", name(file))}


def test_nulls_the_manifest_denies_are_found(lived):
    file, manifest = lived.files(spec=2)[0], lived.manifest(spec=2)
    lived.edit_file(file, manifest, null_value_counts=lambda old: [{**c, "value": 0} for c in old])
    assert found(lived.audit()) == {("null-count", name(file))}


def test_an_encrypted_data_file_is_a_note(lived):
    file, manifest = lived.files(spec=2)[0], lived.manifest(spec=2)
    lived.edit_file(file, manifest, key_metadata=b"secret")
    audit = lived.audit()
    assert found(audit) == {("unsupported-file", name(file))} and audit.is_sound


def test_a_data_file_that_must_not_be_followed_is_found(lived):
    file, manifest = lived.files(spec=2)[0], lived.manifest(spec=2)
    lived.edit_file(file, manifest, file_path="file:///tmp/a\nb.parquet")
    finding = only(lived.audit())
    assert finding.kind == "unreadable-file" and "control characters" in finding.message


# --- delete files and vectors ---


def test_a_position_delete_file_with_other_rows_is_found(v2):
    path = local(v2.files(deletes=True)[0])
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table]), path)
    assert ("row-count", path.name) in found(v2.audit())


def test_an_equality_delete_on_an_unknown_column_is_found(v2):
    file, manifest = v2.files(spec=2, deletes=True)[0], v2.manifest(spec=2, deletes=True)
    v2.edit_file(file, manifest, equality_ids=[1, 99])
    assert found(v2.audit()) == {("equality-ids", name(file))}


def test_a_delete_of_a_file_that_is_not_live_is_a_note(v2):
    file, manifest = v2.files(deletes=True)[0], v2.manifest(deletes=True)
    v2.edit_file(file, manifest, referenced_data_file="file:///elsewhere.parquet")
    audit = v2.audit()
    assert found(audit) == {("dangling-delete", name(file))} and audit.is_sound


def test_a_delete_of_a_file_that_no_snapshot_lists_is_not_checked_against_another_file(tmp_path):
    """The file was removed and its last snapshot expired; the newest file is not what the delete covers."""
    table = neve.connect(tmp_path).create_table("db.t", "id bigint")
    table.append([{"id": 1}, {"id": 2}])
    table.refresh().delete().where("id = 1").mode("merge-on-read").execute()
    table.refresh().append([{"id": 3}])
    manifests = table.refresh().inspect.manifests().to_pylist()
    (deletes,) = (manifest["path"] for manifest in manifests if manifest["content"] == 1)
    edit_avro(deletes, lambda row: row["data_file"].update(referenced_data_file="file:///elsewhere.parquet"))
    assert {kind for kind, _ in found(table.verify())} == {"dangling-delete", "manifest-length"}, "the edited file"


def test_a_delete_in_another_partition_than_its_data_file_is_found(either):
    file, manifest = either.files(deletes=True)[0], either.manifest(deletes=True)
    either.edit_file(file, manifest, partition={"region": "us"})
    either.edit_lists(manifest, partitions=lambda old: [{**old[0], "upper_bound": b"us"}])
    assert found(either.audit()) == {("delete-partition", name(file))}


def test_a_delete_older_than_its_data_file_is_found(either):
    file, manifest = either.files(deletes=True)[0], either.manifest(deletes=True)
    either.edit_manifest(manifest, lambda row: row.update(sequence_number=0))
    either.edit_lists(manifest, min_sequence_number=0)
    assert found(either.audit()) == {("delete-sequence-number", name(file))}


def test_a_vector_without_a_place_is_found(v3):
    file, manifest = v3.files(deletes=True)[0], v3.manifest(deletes=True)
    v3.edit_file(file, manifest, content_offset=None)
    assert found(v3.audit()) == {("vector", name(file))}


def test_a_flipped_bit_in_a_vector_is_found(v3):
    path = local(v3.files(deletes=True)[0])
    raw = bytearray(path.read_bytes())
    raw[20] ^= 1
    path.write_bytes(bytes(raw))
    assert found(v3.audit()) == {("vector", path.name)}


def test_a_vector_with_another_cardinality_is_found(v3):
    file, manifest = v3.files(deletes=True)[0], v3.manifest(deletes=True)
    v3.edit_file(file, manifest, record_count=2)
    assert ("vector", name(file)) in found(v3.audit())


def test_a_vector_at_another_place_is_found(v3):
    file, manifest = v3.files(deletes=True)[0], v3.manifest(deletes=True)
    v3.edit_file(file, manifest, content_offset=5)
    assert found(v3.audit()) == {("vector", name(file))}


def test_a_vector_of_another_data_file_is_found(v3):
    file, manifest = v3.files(deletes=True)[0], v3.manifest(deletes=True)
    v3.edit_file(file, manifest, referenced_data_file=v3.files()[1], partition={"region": "us"})
    v3.edit_lists(manifest, partitions=lambda old: [{**old[0], "upper_bound": b"us"}])
    assert found(v3.audit()) == {("vector", name(file))}


def test_two_vectors_of_one_data_file_are_found(v3):
    manifest = v3.manifest(deletes=True)
    v3.edit_manifest(manifest, lambda row: [row, row])
    v3.edit_lists(manifest, added_files_count=2, added_rows_count=2)
    audit = v3.audit()
    assert ("duplicate-vector", name(v3.files()[0])) in found(audit)
    assert kinds(audit) == {"duplicate-vector", "summary"}, "the totals are wrong as well"


def test_a_vector_that_deletes_rows_the_file_does_not_have_is_found(tmp_path):
    lived = Lived.create(tmp_path, 3)
    file = lived.files(spec=2)[0]
    lived.delete_vectors({file: [0, 3]})
    finding = only(lived.audit())
    assert finding.kind == "vector-position" and "position 3" in finding.message and "3 rows" in finding.message


def test_a_missing_puffin_file_is_found_once(v3):
    path = local(v3.files(deletes=True)[0])
    path.unlink()
    assert found(v3.audit()) == {("missing-file", path.name)}


# --- whatever happens ---


def test_no_damage_stops_the_audit(v3):
    chance = Random(7)
    files = sorted(p for p in (v3.kit.folder / "db").rglob("*") if p.suffix in {".avro", ".parquet", ".puffin"})
    for path in files[::2]:
        whole = path.read_bytes()
        damaged = bytearray(whole)
        for at in chance.sample(range(len(whole)), 20):
            damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        audit = v3.audit()
        path.write_bytes(whole)
        assert {name(f.path) for f in audit.findings} >= ({path.name} if path.suffix == ".puffin" else set())
    assert not v3.audit().findings
