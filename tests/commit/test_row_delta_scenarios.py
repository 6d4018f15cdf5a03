"""Row deltas: the name of the operation, the manifests they write, what they shed and what they refuse to add."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import fastavro
import pytest

from neve.commit.actions import Append, DeleteFiles, RewriteFiles, RowDelta
from neve.commit.environment import Phase
from neve.commit.outcome import Check, Rejected, require_committed
from neve.errors import UserError
from neve.tree.entries import EntryTable, Manifest
from tests.commit.test_protocol import during, orphans
from tests.support.metadata_tables import Kit, name_of, plus, removed
from tests.support.tables import local

FIELDS = {0: {"region"}, 1: {"region", "id_bucket"}, 2: set()}


def of_three_specs(t: Kit) -> list[EntryTable]:
    """A file of each spec the table has had by default: by region, none, by region and id."""
    files = [t.data("first"), t.data("second", spec=2), t.data("third", spec=1, bucket=1)]
    for file in files:
        t.default_spec(file.spec_ids()[0])
        t.ok(Append(file, fast=True))
    return files


def deletes_from(t: Kit, files: Iterable[EntryTable], prefix: str = "d") -> EntryTable:
    return plus(*(t.deletes(f"{prefix}-{name_of(f['file_path'][0].as_py())}", f) for f in files))


def header_and_partitions(t: Kit, manifest: Manifest) -> tuple[str, list[set[str]]]:
    """The spec a manifest names and the partition fields of its entries, as fastavro reads them."""
    with t.table.io.new_input(manifest.path).open() as stream:
        reader = fastavro.reader(stream)
        return reader.metadata["partition-spec-id"], [set(e["data_file"]["partition"]) for e in reader]


@contextlib.contextmanager
def out_of_reach(manifests: Iterable[Manifest]) -> Iterator[None]:
    """Manifests that nobody can open for a while."""
    paths = [local(m.path) for m in manifests]
    for path in paths:
        path.rename(path.with_suffix(".away"))
    yield
    for path in paths:
        path.with_suffix(".away").rename(path)


def test_only_delete_files_is_delete(grown: Kit):
    t = grown
    t.ok(RowDelta(added_deletes=t.deletes("d", t.data("eu1"))))
    summary = t.summary()
    assert summary["operation"] == "delete"
    assert (summary["added-delete-files"], summary["added-position-deletes"]) == ("1", "1")
    assert "added-data-files" not in summary and "deleted-data-files" not in summary
    assert (summary["total-data-files"], summary["total-records"], summary["total-delete-files"]) == ("3", "30", "1")
    t.ok(RowDelta(added_deletes=t.equality("e")))
    assert t.summary()["operation"] == "delete"
    assert t.names() == {"eu1", "eu2", "us1"}
    assert t.attached() == {"eu1": {"d", "e"}, "eu2": {"e"}}


def test_only_data_files_is_append(any_version: Kit):
    t = any_version
    t.ok(Append(t.data("a")))
    start = t.head_id
    t.ok(RowDelta(plus(t.data("b"), t.data("c", spec=1))))
    summary = t.summary()
    assert summary["operation"] == "append"
    assert (summary["added-data-files"], summary["added-records"], summary["total-records"]) == ("2", "20", "30")
    assert summary["total-delete-files"] == "0" and t.manifests(deletes=True) == []
    assert sorted(m.spec_id for m in t.manifests() if m.added_snapshot_id == t.head_id) == [0, 1]
    later = RowDelta(t.data("d"), start_snapshot_id=start, no_conflicting_data=True)
    assert t.refused(later, Check.NEW_DATA).files == (t.path("b"), t.path("c")), "others see it as new data"


def test_data_and_deletes_is_overwrite(grown: Kit):
    t = grown
    before = t.metadata
    t.ok(RowDelta(t.new("eu3"), plus(t.deletes("d", t.data("eu1")), t.equality("e"))))
    assert t.summary()["operation"] == "overwrite"
    assert len(t.metadata.snapshots) == len(before.snapshots) + 1
    number = before.last_sequence_number + 1
    assert t.head().sequence_number == number
    for column in ("sequence_number", "file_sequence_number"):
        found = t.by_name(column)
        assert {found[name] for name in ("eu3", "d", "e")} == {number}, column
    assert t.attached() == {"eu1": {"d", "e"}, "eu2": {"e"}}, "an equality delete spares the rows that came with it"


def test_remove_and_add_data_files(any_version: Kit):
    t = any_version
    t.ok(Append(t.data("eu1", "eu2")))
    t.default_spec(1)
    t.ok(RowDelta(t.new("eu3", rows=4), removed_data=removed(t.data("eu1"))))
    summary = t.summary()
    assert summary["operation"] == "overwrite"
    assert (summary["added-data-files"], summary["deleted-data-files"]) == ("1", "1")
    assert (summary["total-data-files"], summary["total-records"]) == ("2", "14")
    assert t.names() == {"eu2", "eu3"}
    assert t.statuses() == {"eu1": "DELETED", "eu2": "EXISTING", "eu3": "ADDED"}
    t.ok(Append(t.new("eu4")))
    assert t.statuses().get("eu1", "DELETED") == "DELETED" and "eu1" not in t.names()


def test_removed_rows_and_removed_deletes(grown: Kit):
    t = grown
    eu1 = t.data("eu1")
    theirs, ours = t.deletes("theirs", t.data("us1", region="us")), t.deletes("ours", eu1)
    t.ok(RowDelta(added_deletes=plus(theirs, ours)))
    assert (t.summary()["total-delete-files"], t.summary()["total-position-deletes"]) == ("2", "2")
    t.ok(RowDelta(removed_data=removed(eu1), removed_deletes=removed(ours)))
    summary = t.summary()
    kind = "removed-dvs" if t.metadata.format_version >= 3 else "removed-position-delete-files"
    assert [summary[key] for key in ("deleted-data-files", "removed-delete-files", kind)] == ["1", "1", "1"]
    assert (summary["deleted-records"], summary["removed-position-deletes"]) == ("10", "1")
    assert (summary["total-data-files"], summary["total-records"]) == ("2", "20")
    assert (summary["total-delete-files"], summary["total-position-deletes"]) == ("1", "1")
    assert t.names(deletes=None) == {"eu2", "us1", "theirs"}
    assert t.statuses() | {"eu1": "DELETED", "ours": "DELETED"} == t.statuses()


def test_delete_file_by_reference_from_manifest(grown_with_delete_entries: Kit):
    t = grown_with_delete_entries
    for name, of in (("d1", t.data("eu1")), ("d2", t.data("eu2"))):
        t.ok(RowDelta(added_deletes=t.deletes(name, of)))
    manifests = t.manifests()
    entries = t.entries()
    d1 = entries.filter([name_of(p) == "d1" for p in entries["file_path"].to_pylist()])
    (held,) = (manifests[i] for i in d1["manifest"].to_pylist())
    others = [m for m in manifests if m != held]
    with out_of_reach(others):
        t.ok(RowDelta(removed_deletes=removed(d1, manifests=[m.path for m in manifests])))
    assert [m for m in t.manifests() if m in manifests] == others
    summary = t.summary()
    assert [summary[f"manifests-{what}"] for what in ("created", "kept", "replaced")] == ["1", "2", "1"]
    assert t.names(deletes=True) == {"d2"}


def test_three_specs_one_delta(with_delete_entries: Kit):
    t = with_delete_entries
    t.set(write__summary__partition_limit="10")
    files = of_three_specs(t)
    before = t.head().sequence_number
    t.ok(RowDelta(t.new("fourth", region="us", bucket=3), deletes_from(t, files)))
    assert t.head().sequence_number == before + 1
    written = t.manifests(deletes=True)
    assert sorted((m.spec_id, m.added_files) for m in written) == [(0, 1), (1, 1), (2, 1)]
    for manifest in written:
        assert header_and_partitions(t, manifest) == (str(manifest.spec_id), [FIELDS[manifest.spec_id]])
    summary = t.summary()
    assert summary["changed-partition-count"] == "4"
    assert {key for key in summary if key.startswith("partitions.")} == {
        "partitions.",
        "partitions.region=eu",
        "partitions.region=eu/id_bucket=1",
        "partitions.region=us/id_bucket=3",
    }
    assert (summary["added-data-files"], summary["added-delete-files"]) == ("1", "3")
    assert t.attached() == {"first": {"d-first"}, "second": {"d-second"}, "third": {"d-third"}}


def test_merge_manifests_of_three_specs(with_delete_entries: Kit):
    t = with_delete_entries
    t.set(commit__manifest__min_count_to_merge="2")
    expected = {}
    for i in range(3):
        files = [t.data(f"a{i}"), t.data(f"b{i}", spec=1, bucket=i), t.data(f"c{i}", spec=2)]
        t.ok(RowDelta(plus(*files), deletes_from(t, files)))
        expected |= {f"{letter}{i}": {f"d-{letter}{i}"} for letter in "abc"}
    manifests = t.manifests()
    kinds = [(m.is_deletes, m.spec_id) for m in manifests]
    assert sorted(kinds) == [(deletes, spec) for deletes in (False, True) for spec in (0, 1, 2)]
    for manifest in manifests:
        spec_id, partitions = header_and_partitions(t, manifest)
        assert spec_id == str(manifest.spec_id)
        assert partitions == [FIELDS[manifest.spec_id]] * 3
        assert (manifest.added_files, manifest.existing_files) == (1, 2)
    assert t.attached() == expected


def test_abort_with_several_specs(with_delete_entries: Kit):
    t = with_delete_entries
    files = of_three_specs(t)
    t.set(commit__retry__num_retries="1")
    delta = RowDelta(t.new("mine"), deletes_from(t, files))
    seen: list[set[str]] = []

    def lose() -> None:
        t.ok(Append(t.new(f"theirs{len(seen)}"), fast=True))
        seen.append(orphans(t))

    outcome = t.commit(delta, environment=during(t, Phase.SWAP, lose, lose))
    assert isinstance(outcome, Rejected)
    assert (outcome.conflicts[0].rule, outcome.attempts) == (Check.ATTEMPTS, 2)
    manifests, lists = ({f for f in seen[1] if ("/snap-" in f) == of_lists} for of_lists in (False, True))
    assert (len(manifests), len(lists)) == (4, 2), "one manifest of data, one of deletes per spec, a list per attempt"
    assert {f"{t.location}/{f}" for f in seen[1]} <= outcome.written
    assert orphans(t) == set()
    assert t.names(deletes=None) == {"first", "second", "third", "theirs0", "theirs1"}


def test_unknown_spec_rejected(any_version: Kit):
    t = any_version
    known = t.data("known")
    t.ok(Append(known))
    strays = [RowDelta(plus(known, t.data("stray").with_columns(spec_id=99)))]
    if t.metadata.format_version > 1:
        strays.append(RowDelta(t.data("fine"), t.equality("stray").with_columns(spec_id=99)))
    for delta in strays:
        conflict = t.refused(delta, Check.UNKNOWN_SPEC)
        assert (conflict.files, conflict.spec_ids) == ((t.path("stray"),), (99,))
        assert "99" in str(conflict) and t.path("stray") in str(conflict)
        outcome = t.commit(delta)
        assert outcome.written == frozenset() and outcome.attempts == 1, "nothing was written to be removed again"
        with pytest.raises(UserError, match="99"):
            require_committed(outcome)


def test_position_deletes_on_v1_rejected(tmp_path: Path):
    t = Kit.create(tmp_path, 1)
    a = t.data("a")
    t.ok(Append(a))
    for deletes in (t.positions("d", of=a), t.positions("d"), t.vector("d", a), t.equality("d")):
        for data in (None, t.data("b")):
            conflict = t.refused(RowDelta(data, deletes), Check.DELETE_KIND)
            assert conflict.files == tuple(deletes["file_path"].to_pylist())
            assert "version 1" in conflict.message


@pytest.mark.parametrize("spec", [0, 1])
def test_vectors_on_v2_rejected(tmp_path: Path, spec: int):
    t = Kit.create(tmp_path, 2, default_spec=spec)
    a = t.new("a")
    t.ok(Append(a))
    conflict = t.refused(RowDelta(added_deletes=plus(t.vector("v", a), t.equality("e"))), Check.DELETE_KIND)
    assert (conflict.files, conflict.spec_ids) == ((t.path("v", "puffin"),), (spec,))
    t.ok(RowDelta(added_deletes=plus(t.positions("p", of=a), t.equality("e"))))


@pytest.mark.parametrize("spec", [1, 2])
def test_position_files_on_v3_rejected(tmp_path: Path, spec: int):
    t = Kit.create(tmp_path, 3, default_spec=spec)
    a = t.new("a")
    t.ok(Append(a))
    for positions in (t.positions("p", of=a), t.positions("p", spec=spec)):
        conflict = t.refused(RowDelta(added_deletes=plus(positions, t.equality("e"))), Check.DELETE_KIND)
        assert (conflict.files, conflict.spec_ids) == ((t.path("p"),), (spec,))
    t.ok(RowDelta(added_deletes=plus(t.vector("v", a), t.equality("e"))))


@pytest.mark.parametrize("when", ["before the commit", "between two attempts"])
def test_staged_v2_deletes_after_upgrade(tmp_path: Path, when: str):
    t = Kit.create(tmp_path, 2)
    a = t.data("a")
    t.ok(Append(a))
    staged = RowDelta(t.data("b"), t.positions("d", of=a), start_snapshot_id=t.head_id)
    head = t.head_id
    if when == "before the commit":
        t.upgrade(3)
        t.refused(staged, Check.DELETE_KIND)
    else:
        outcome = t.commit(staged, environment=during(t, Phase.SWAP, lambda: t.upgrade(3)))
        assert isinstance(outcome, Rejected)
        assert (outcome.conflicts[0].rule, outcome.attempts) == (Check.DELETE_KIND, 2)
        assert outcome.conflicts[0].files == (t.path("d"),)
    assert t.head_id == head and orphans(t) == set()
    t.ok(RowDelta(t.data("b"), t.vector("v", a), start_snapshot_id=head))


def test_stale_deletes_shed(with_deletes: Kit):
    t = with_deletes
    t.ok(Append(t.data("a", "b")))
    t.ok(RowDelta(added_deletes=plus(t.equality("e"), t.equality("everywhere", spec=2))))
    t.ok(RewriteFiles(removed(t.data("a")), t.data("a2"), start_snapshot_id=t.head_id))
    assert t.attached() == {"b": {"e", "everywhere"}}, "one file of their time is left"
    t.ok(RewriteFiles(removed(t.data("b")), t.data("b2", spec=1), start_snapshot_id=t.head_id))
    assert t.names(deletes=True) == set()
    summary = t.summary()
    assert (summary["removed-delete-files"], summary["removed-equality-deletes"]) == ("2", "2")
    assert (summary["total-delete-files"], summary["total-equality-deletes"]) == ("0", "0")


def test_append_does_not_shed(with_deletes: Kit):
    t = with_deletes
    t.ok(RowDelta(added_deletes=t.equality("stale")))
    for name, fast in (("a", True), ("b", False)):
        kept = t.manifests(deletes=True)
        t.ok(Append(t.data(name), fast=fast))
        assert t.manifests(deletes=True) == kept
        assert t.summary()["total-delete-files"] == "1" and t.attached() == {}
    t.ok(DeleteFiles(removed(t.data("a"))))
    assert t.names(deletes=True) == set(), "a commit that removes something does"


def test_explicit_number_protects_deletes(with_deletes: Kit):
    """All other data is younger than the delete, so only the rewritten file, which keeps its number, needs it."""
    t = with_deletes
    t.ok(Append(t.data("a")))
    start, number = t.head_id, t.head().sequence_number
    t.ok(RowDelta(added_deletes=t.equality("e")))
    t.ok(Append(plus(t.data("young"), t.data("fine", spec=1))))
    t.ok(RewriteFiles(removed(t.data("a")), t.data("b"), data_sequence_number=number, start_snapshot_id=start))
    assert t.by_name("sequence_number") == {"b": number, "e": number + 1, "young": number + 2, "fine": number + 2}
    assert t.attached() == {"b": {"e"}}
    assert "removed-delete-files" not in t.summary() and t.summary()["total-delete-files"] == "1"
