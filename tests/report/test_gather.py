"""The numbers of a report are those of the table, counted another way."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.transforms import IdentityTransform

import neve
from neve.commit.actions import Append
from neve.plan.delete_index import match_deletes
from neve.report import Report, gather_report
from neve.report.overview import verdict_of
from neve.tree.entries import DETAIL, Content
from neve.tree.read import manifests_of, read_entries
from tests.support.aged_tables import Aged
from tests.support.entry_tables import spec
from tests.support.foreign_tables import foreign_tables, needs_fixtures, relocated
from tests.support.metadata_tables import Kit
from tests.support.report_tables import CLOCK_DAY, DAY_MS, old_table


def data_files(table: neve.Table) -> pa.Table:
    files = table.inspect.files()
    return files.filter(pc.equal(files["content"], int(Content.DATA)))


def test_totals_are_those_of_the_files(old: neve.Table, report: Report):
    files = data_files(old)
    assert report.total.files == files.num_rows == 856
    assert report.total.bytes == pc.sum(files["file_size_in_bytes"]).as_py()
    assert report.total.rows == pc.sum(files["record_count"]).as_py()


def test_the_map_has_a_square_for_each_partition_with_its_files(old: neve.Table, report: Report):
    found = {
        (s.spec_id, cell.first): (cell.amounts.files, cell.amounts.bytes) for s in report.specs for cell in s.cells
    }
    rows = old.inspect.partitions().to_pylist()
    expected = {}
    for row in rows:
        fields = [f.name for f in old.context.metadata.specs()[row["spec_id"]].fields if str(f.transform) != "void"]
        values = ", ".join(f"{n}={'null' if (v := row['partition'][n]) is None else v}" for n in fields)
        expected[row["spec_id"], values] = (row["file_count"], row["total_data_file_size_in_bytes"])
    assert found == expected
    assert report.partitions == len(rows) == 60 + 30 * 4 + 16


def test_squares_of_a_spec_are_in_the_order_of_values(report: Report):
    days = [cell.first for cell in report.specs[0].cells]
    assert days == sorted(days)
    assert days[0] == "ts_day=2026-01-01"


def test_too_many_partitions_share_squares_and_lose_no_file(old: neve.Table, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("neve.report.partitions._MOST_CELLS_OF_SPEC", 7)
    specs = gather_report(old.context).specs
    assert [len(s.cells) for s in specs] == [7, 7, 7]
    assert [s.partitions for s in specs] == [60, 120, 16]
    assert sum(cell.amounts.files for s in specs for cell in s.cells) == 856
    assert specs[0].cells[0].last < specs[0].cells[1].first


def test_sizes_are_counted_in_powers_of_two_up_to_the_target(old: neve.Table, report: Report):
    sizes = data_files(old)["file_size_in_bytes"].to_pylist()
    for one in report.sizes.bins:
        assert one.files == sum(one.floor <= size < 2 * one.floor for size in sizes)
    assert sum(one.files for one in report.sizes.bins) == len(sizes)
    assert report.sizes.bins[-1].floor >= report.sizes.target // 2
    assert (report.sizes.smallest, report.sizes.largest) == (min(sizes), max(sizes))


def test_deletes_are_counted_for_the_files_they_apply_to(old: neve.Table, report: Report):
    context = old.context
    entries = read_entries(
        context.io, manifests_of(context.io, context.metadata, context.head()), context.specs, detail=DETAIL.names
    ).live()
    data, deletes = entries.of_content(Content.DATA), entries.of_content(*list(Content)[1:])
    files = match_deletes(data, deletes)["file"].to_pylist()
    assert report.deletes.touched_files == len(set(files))
    assert report.total.delete_files == len(files)
    assert {kind.name: kind.files for kind in report.deletes.kinds} == {
        "position delete files": 77,
        "equality delete files": 1,
    }
    assert sum(count for _, count in report.deletes.bins) == 856
    assert dict(report.deletes.bins)["0"] == 856 - len(set(files))
    assert abs(report.deletes.worst_files[0].deleted_share - 0.15) < 0.01  # both kinds apply to it


def test_dead_rows_are_those_of_the_delete_files(old: neve.Table, report: Report):
    files = old.inspect.files()
    positions = files.filter(pc.equal(files["content"], int(Content.POSITION_DELETES)))
    assert report.total.deleted_rows == pc.sum(positions["record_count"]).as_py()


def test_a_compaction_is_the_one_the_planner_makes(old: neve.Table, report: Report):
    plan = old.rewrite_data_files().plan()
    assert report.maintenance.files_to_rewrite == plan.files
    assert report.maintenance.output_files == sum(g.output_files for g in plan.groups)
    assert report.files_after == 856 - plan.files + report.maintenance.output_files
    assert sum(count for _, is_taken, count in report.maintenance.reasons if is_taken) == plan.files
    assert [s.verb for s in report.maintenance.steps] == [s.verb for s in old.maintain().plan().steps]


def test_the_verdict_states_what_a_compaction_would_leave(report: Report):
    verdict = verdict_of(report)
    large = report.maintenance.files_to_rewrite - 480
    assert verdict.headline == (
        f"480 small and {large} oversized files in 2 specs; a compaction would leave "
        f"{report.maintenance.output_files} in their place."
    )
    assert verdict.weight == "act"
    findings_text = " ".join(finding.text for finding in verdict.findings)
    assert "840 files (98.1 %) are under 2 old specs" in findings_text
    assert "77 position delete files and 1 equality delete file apply" in findings_text


def test_files_that_only_lose_deleted_rows_do_not_count_as_fewer_files(hostile: neve.Table):
    verdict = verdict_of(gather_report(hostile.context))
    assert verdict.headline == "2 small files; a compaction would rewrite them without their deleted rows."
    assert "there are as many files afterwards" in verdict.findings[0].text
    findings = [f.text for f in verdict.findings]
    assert "Old snapshots take up space: 1 old snapshot, 1 file that only they reference." in findings


def test_the_life_tells_when_schemas_and_specs_came(report: Report):
    changes = {c.what: c.at_ms for c in report.history.changes}
    assert changes["spec 0: ts_day (day)"] == CLOCK_DAY * DAY_MS
    assert changes["schema 0, 4 columns"] == CLOCK_DAY * DAY_MS
    assert changes["schema 1: price renamed from amount, added note"] == (CLOCK_DAY + 18) * DAY_MS
    assert changes["tag before the move"] == (CLOCK_DAY + 21) * DAY_MS
    assert changes["spec 2: id_bucket_16 (bucket[16])"] == (CLOCK_DAY + 59) * DAY_MS
    assert report.history.snapshots == len(report.history.commits) == 14
    assert sum(sum(p.commits.values()) for p in report.history.periods) == 14
    assert report.history.periods[-1].total_files == 856


def test_columns_keep_their_ids_and_their_history(report: Report):
    by_id = {c.field_id: c for c in report.columns}
    assert (by_id[4].name, by_id[4].history) == ("price", ("renamed from amount in schema 1",))
    assert not by_id[5].is_live
    assert by_id[5].history == ("added in schema 1", "dropped in schema 2")


def test_the_tree_has_all_manifests_with_their_bytes(old: neve.Table, report: Report):
    manifests = old.inspect.manifests()
    assert report.tree.manifests == manifests.num_rows
    assert sum(n.bytes for n in report.tree.nodes) == pc.sum(manifests["length"]).as_py()
    assert sum(n.files for n in report.tree.nodes) == old.inspect.files().num_rows
    listing = old.context.head().tree_root_location.removeprefix("file://")
    assert report.tree.root_bytes == Path(listing).stat().st_size


def test_filters_are_listed_by_column_and_spec(report: Report):
    pruning = report.filter_matrix
    assert dict(zip(pruning.columns, pruning.cells, strict=True)) == {
        "ts": ("day", "day", ""),
        "region": ("", "identity", ""),
        "id": ("", "", "bucket[16]"),
    }
    assert pruning.filter_facts is None


def test_a_condition_limits_the_compaction_and_is_shown(old: neve.Table):
    found = gather_report(old.context, "region = 'eu'")
    assert found.maintenance.files_to_rewrite == old.rewrite_data_files().where("region = 'eu'").plan().files
    assert found.total.outside == 360 - 90
    assert found.filter_matrix.filter_facts is not None
    assert found.filter_matrix.filter_facts.matching_files == 856 - 270


def test_partitions_that_cannot_be_evaluated_are_marked(tmp_path: Path):
    kit = Kit.create(tmp_path, 2)
    kit.update(AddPartitionSpecUpdate(spec=spec(4, (1002, 2, "mystery", "region_mystery"))))
    kit.ok(Append(kit.data("a", "b", region="eu")))
    kit.ok(Append(kit.data("x", "y").with_columns(spec_id=4, p1000=None, p1002=["p", "q"])))
    table = neve.connect(tmp_path).table("db.t")
    found = gather_report(table.context, "region = 'us'")
    assert [s.amounts.undecided for s in found.specs if s.amounts.files] == [0, 2]
    assert found.filter_matrix.filter_facts is not None
    assert found.filter_matrix.filter_facts.stats.fail_open_partitions == 2
    assert any("mystery" in note for note in found.filter_matrix.filter_facts.notes)
    assert "fails open" not in verdict_of(found).headline
    assert any("could not be evaluated" in f.text for f in verdict_of(found).findings)


def test_a_table_too_damaged_to_maintain_is_still_reported(tmp_path: Path):
    aged = Aged.create(tmp_path, 2)
    first = aged.append("a")
    aged.append("b")
    aged.day(30)
    old_list = next(s.manifest_list for s in aged.kit.metadata.snapshots if s.snapshot_id == first)
    Path(old_list.removeprefix("file://")).write_bytes(b"no manifest list")
    found = gather_report(aged.table.context)
    assert found.maintenance.failure
    assert not found.maintenance.steps
    assert verdict_of(found).findings[0].text.startswith("Maintenance could not be planned")


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_table_without_a_snapshot_is_reported(tmp_path: Path, version: int):
    table = neve.connect(tmp_path).create_table("db.new", "id bigint", format_version=version)
    found = gather_report(table.context)
    assert verdict_of(found).headline == "Nobody has written to this table yet."


@pytest.mark.parametrize("version", [3, 4])
def test_vectors_are_counted_in_later_versions(tmp_path: Path, version: int):
    found = gather_report(old_table(tmp_path, version).context)
    assert [(kind.name, kind.files) for kind in found.deletes.kinds] == [("deletion vectors", 77)]
    assert found.tree.root_kind == ("manifest list" if version == 3 else "root of version 4")
    entries = {
        kind: sum(n.files for n in found.tree.nodes if n.kind == kind) for kind in ("data", "deletes", "vectors")
    }
    assert entries == {
        "data": 856,
        **({"deletes": 77, "vectors": 0} if version == 3 else {"deletes": 0, "vectors": 77}),
    }


@needs_fixtures
@pytest.mark.parametrize("name", [f.name for f in foreign_tables() if f.engines])
def test_tables_of_other_engines_are_reported(name: str, tmp_path: Path):
    table = neve.connect(tmp_path / "lake").register_table("db.t", relocated(name, tmp_path))
    found = gather_report(table.context)
    assert found.total.files == data_files(table).num_rows


def test_changes_other_than_names_and_types_are_described_precisely(tmp_path: Path):
    table = neve.connect(tmp_path).create_table("db.t", "id bigint not null, region string")
    with table.evolve_schema() as change:
        change.update_column("id", doc="the key")
    with table.evolve_schema() as change:
        change.set_identifier_fields("id")
    with table.evolve_schema() as change:
        change.move_first("region")
    with table.iceberg.update_sort_order() as order:
        order.asc("region", IdentityTransform())
    report = gather_report(table.refresh().context)
    assert [c.what for c in report.history.changes if c.what.startswith("schema")] == [
        "schema 0, 2 columns",
        "schema 1: id with a new description",
        "schema 2: other identifier fields",
        "schema 3: columns in another order",
    ]
    assert report.sort_order == "region ASC NULLS LAST"
