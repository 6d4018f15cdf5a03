"""Snapshot summaries: what came, what went, what is there, in Iceberg's words."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.expressions import EqualTo

from neve.commit.actions import Append, DeleteFiles, Overwrite, RemovedFiles, ReplacePartitions, RewriteFiles, RowDelta
from neve.commit.summary import totals
from tests.support.metadata_tables import Kit, plus, removed


def without_manifest_counts(summary: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in summary.items() if not key.startswith("manifests-")}


def test_an_append_counts_files_rows_bytes_and_partitions(tmp_path: Path):
    t = Kit.create(tmp_path)
    t.ok(Append(plus(t.data("a", rows=3), t.data("b", region="us", rows=4))), properties={"app": "test"})
    assert without_manifest_counts(t.summary()) == {
        "operation": "append",
        "app": "test",
        "added-data-files": "2",
        "added-records": "7",
        "added-files-size": "700",
        "changed-partition-count": "2",
        "total-data-files": "2",
        "total-delete-files": "0",
        "total-records": "7",
        "total-files-size": "700",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }


def test_a_delta_counts_each_kind_of_delete_file(tmp_path: Path):
    t = Kit.create(tmp_path)
    a = t.data("a")
    t.ok(Append(a))
    t.ok(RowDelta(added_data=t.data("b"), added_deletes=plus(t.positions("p", of=a, rows=2), t.equality("e", rows=5))))
    assert without_manifest_counts(t.summary()) == {
        "operation": "overwrite",
        "added-data-files": "1",
        "added-records": "10",
        "added-delete-files": "2",
        "added-position-delete-files": "1",
        "added-position-deletes": "2",
        "added-equality-delete-files": "1",
        "added-equality-deletes": "5",
        "added-files-size": "1700",
        "changed-partition-count": "1",
        "total-data-files": "2",
        "total-delete-files": "2",
        "total-records": "20",
        "total-files-size": "2700",
        "total-position-deletes": "2",
        "total-equality-deletes": "5",
    }


def test_vectors_count_as_vectors_with_the_bytes_of_their_blob(tmp_path: Path):
    t = Kit.create(tmp_path, 3)
    a = t.data("a")
    t.ok(Append(a))
    t.ok(RowDelta(added_deletes=t.vector("v", a)))
    summary = t.summary()
    assert (summary["added-dvs"], summary["added-delete-files"], summary["added-files-size"]) == ("1", "1", "40")
    assert "added-position-delete-files" not in summary
    t.ok(RewriteFiles(removed(a), t.data("b", rows=9), start_snapshot_id=t.head_id))
    summary = t.summary()
    assert (summary["removed-dvs"], summary["removed-delete-files"], summary["removed-position-deletes"]) == ("1",) * 3
    assert summary["removed-files-size"] == "1040"
    assert (summary["total-delete-files"], summary["total-files-size"]) == ("0", "900")


def test_totals_fall_to_nothing_when_everything_goes(tmp_path: Path):
    t = Kit.create(tmp_path)
    t.ok(Append(t.data("a", "b")))
    t.ok(DeleteFiles(row_filter=EqualTo("region", "eu")))
    summary = t.summary()
    assert summary["operation"] == "delete"
    assert {summary[key] for key in summary if key.startswith("total-")} == {"0"}


def test_a_path_listed_twice_is_one_file_and_one_duplicate(tmp_path: Path):
    t = Kit.create(tmp_path)
    t.ok(Append(t.data("a"), fast=True))
    t.ok(Append(t.data("a"), fast=True))
    t.ok(DeleteFiles(RemovedFiles.of(t.path("a"))))
    assert t.names() == set()
    summary = t.summary()
    assert (summary["deleted-data-files"], summary["deleted-duplicate-files"]) == ("1", "1")


def test_partitions_are_listed_up_to_the_limit(tmp_path: Path):
    t = Kit.create(tmp_path, write__summary__partition_limit="2")
    t.ok(Append(plus(t.data("a", "b"), t.data("c", spec=1, region="u s", bucket=2))))
    summary = t.summary()
    assert summary["partition-summaries-included"] == "true"
    assert summary["partitions.region=eu"] == "added-data-files=2,added-records=20,added-files-size=2000"
    assert summary["partitions.region=u+s/id_bucket=2"] == "added-data-files=1,added-records=10,added-files-size=1000"
    t.ok(Append(plus(*(t.data(r, region=r) for r in ("x", "y", "z")))))
    assert t.summary()["changed-partition-count"] == "3"
    assert not [key for key in t.summary() if key.startswith("partition")]


def test_partitions_of_different_specs_are_different_partitions(tmp_path: Path):
    t = Kit.create(tmp_path)
    t.ok(Append(plus(t.data("a", spec=2), t.data("b", spec=3, region=None))))
    assert t.summary()["changed-partition-count"] == "2"


def test_replaced_partitions_are_marked(tmp_path: Path):
    t = Kit.create(tmp_path)
    t.ok(ReplacePartitions(t.data("a")))
    assert t.summary()["replace-partitions"] == "true"


def test_manifests_are_counted(tmp_path: Path):
    t = Kit.create(tmp_path)
    t.ok(Append(plus(t.data("a"), t.data("b", spec=1))))
    t.ok(Overwrite(t.data("c"), removed(t.data("a"))))
    summary = t.summary()
    assert [summary[f"manifests-{what}"] for what in ("created", "kept", "replaced")] == ["2", "1", "1"]


def test_a_total_nobody_knows_stays_unknown():
    assert totals({"added-records": 5}, {"total-records": "x", "total-data-files": "3"}) == {"total-data-files": "3"}
    assert "total-records" not in totals({"deleted-records": 5}, {"total-records": "4"})
