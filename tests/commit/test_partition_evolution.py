"""Files of several partition specs in one commit: grouped by spec, each group in manifests of its own."""

from __future__ import annotations

from pathlib import Path

import fastavro
import pytest
from pyiceberg.manifest import read_manifest_list

from neve.commit.actions import Append, DeleteFiles, RowDelta
from neve.errors import UnknownName, UserError
from neve.model.partition import PartitionKey
from neve.tree.entries import EntryTable
from neve.tree.group_by_spec import group_files_by_spec, validate_added_data_files
from tests.support.metadata_tables import Kit, name_of, plus, removed


@pytest.fixture
def t(any_version: Kit) -> Kit:
    return any_version


def names_in(groups: dict[int, EntryTable]) -> dict[int, list[str]]:
    return {spec: [name_of(p) for p in files["file_path"].to_pylist()] for spec, files in groups.items()}


def test_group_files_by_spec_empty(t: Kit):
    assert group_files_by_spec(EntryTable.empty(t.specs)) == {}


def test_group_files_by_spec_single_spec(t: Kit):
    assert names_in(group_files_by_spec(t.data("a", "b"))) == {0: ["a", "b"]}


def test_group_files_by_spec_multiple_specs(t: Kit):
    files = plus(t.data("a", spec=2), t.data("b"), t.data("c", spec=1), t.data("d"))
    groups = group_files_by_spec(files)
    assert names_in(groups) == {0: ["b", "d"], 1: ["c"], 2: ["a"]}
    assert list(groups) == [0, 1, 2]


def test_group_files_by_spec_v1_defaults_to_zero(t: Kit):
    files = plus(t.data("a").with_columns(spec_id=None), t.data("b"))
    assert names_in(group_files_by_spec(files)) == {0: ["a", "b"]}


def test_group_files_by_spec_mixed_with_files_that_name_no_spec(t: Kit):
    files = plus(t.data("a", spec=1), t.data("b").with_columns(spec_id=None), t.data("c", spec=1))
    assert names_in(group_files_by_spec(files)) == {0: ["b"], 1: ["a", "c"]}


def test_group_entries_by_spec_empty(t: Kit):
    assert group_files_by_spec(t.entries()) == {}


def test_group_entries_by_spec_single(t: Kit):
    t.ok(Append(t.data("a", "b")))
    assert names_in(group_files_by_spec(t.entries())) == {0: ["a", "b"]}


def test_group_entries_by_spec_multiple(t: Kit):
    a, b, c = t.data("a"), t.data("b", spec=1), t.data("c", spec=2)
    t.ok(Append(plus(a, b, c)))
    t.ok(DeleteFiles(removed(b)))
    groups = group_files_by_spec(t.entries())
    assert names_in(groups) == {0: ["a"], 1: ["b"], 2: ["c"]}
    assert groups[1]["status"].to_pylist() == [2], "a tombstone belongs to the spec of its file"


def test_validate_accepts_any_valid_spec(t: Kit):
    assert t.metadata.default_spec_id == 0
    validate_added_data_files(t.metadata, plus(*(t.data(f"s{spec}", spec=spec) for spec in (0, 1, 2, 3))))


def test_validate_rejects_unknown_spec(t: Kit):
    with pytest.raises(UserError):
        validate_added_data_files(t.metadata, t.data("a").with_columns(spec_id=99))


def test_validate_rejects_unknown_spec_with_clear_message(t: Kit):
    stray = plus(t.data("fine"), t.data("stray").with_columns(spec_id=99))
    with pytest.raises(
        UnknownName, match=r"Unknown partition spec 99 in file .*stray.parquet. Known: '0', '1', '2', '3'"
    ):
        validate_added_data_files(t.metadata, stray)


def test_each_spec_gets_manifests_of_its_own(in_avro: Kit):
    t = in_avro
    t.ok(Append(plus(t.data("a", spec=1, bucket=3), t.data("b"), t.data("c", spec=2), t.data("d", spec=1))))
    written = sorted(t.manifests(), key=lambda m: m.path)
    assert [(m.spec_id, m.added_files) for m in written] == [(0, 1), (1, 2), (2, 1)], (
        "numbered in the order of the specs"
    )
    for manifest in written:
        with t.table.io.new_input(manifest.path).open() as stream:
            reader = fastavro.reader(stream)
            entries = list(reader)
        assert reader.metadata["partition-spec-id"] == str(manifest.spec_id)
        fields = {0: {"region"}, 1: {"region", "id_bucket"}, 2: set()}[manifest.spec_id]
        assert all(set(e["data_file"]["partition"]) == fields for e in entries)


def test_pyiceberg_reads_every_spec_as_it_was_written(in_avro: Kit):
    t = in_avro
    t.ok(Append(plus(t.data("a", spec=1, bucket=3), t.data("b", region="us"), t.data("c", spec=2))))
    t.ok(DeleteFiles(removed(t.data("b", region="us"))))
    io, found = t.table.io, {}
    for manifest in read_manifest_list(io.new_input(t.head().manifest_list)):
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=False):
            found[name_of(entry.data_file.file_path)] = (
                manifest.partition_spec_id,
                tuple(entry.data_file.partition),
                entry.status.name,
            )
    assert found == {
        "a": (1, ("eu", 3), "ADDED"),
        "b": (0, ("us",), "DELETED"),
        "c": (2, (), "ADDED"),
    }


@pytest.mark.parametrize("version", [2, 3, 4])
def test_deletes_keep_the_spec_of_their_data_file(tmp_path: Path, version: int):
    """A delete manifest under the default spec with entries of another one reports success and deletes nothing."""
    t = Kit.create(tmp_path, version, default_spec=2)
    files = [t.data("a"), t.data("b", spec=1, bucket=1), t.data("c", spec=2)]
    t.ok(Append(plus(*files)))
    made = [t.deletes(f"d{i}", f) for i, f in enumerate(files)]
    t.ok(RowDelta(added_data=t.data("new", spec=2), added_deletes=plus(*made)))
    deletes = t.live(deletes=True)
    assert sorted(m.spec_id for m in t.manifests(deletes=True)) == [0, 1, 2]
    keys = {name_of(deletes["file_path"][i].as_py()): deletes.partition_key(i) for i in range(len(deletes))}
    assert keys == {
        "d0": PartitionKey(0, ("eu",)),
        "d1": PartitionKey(1, ("eu", 1)),
        "d2": PartitionKey(2, None),
    }
    assert t.summary()["changed-partition-count"] == "3"
