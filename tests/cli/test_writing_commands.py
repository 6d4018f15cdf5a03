"""Verbs that write: a dry run changes nothing, JSON has its keys, and what was done is done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import neve
from tests.support.command_line import Lake, rows, unchanged
from tests.support.foreign_tables import needs_fixtures, relocated

DAYS = 24 * 60 * 60

# Every verb that writes, with arguments that change the table of `Lake.lived`.
WRITING = {
    "update": ["--set", "amount=amount + 1", "--where", "id = 1"],
    "delete": ["--where", "region = 'eu'"],
    "merge": ["--using", "SELECT 1 AS id, 'x' AS region, 0D AS amount", "--on", "t.id = s.id", "--upsert"],
    "compact": ["--option", "min-input-files=2"],
    "maintain": [],
    "deletes": ["--option", "rewrite-all=true"],
    "dangling": [],
    "manifests": [],
    "expire": ["--older-than", "0s", "--retain-last", "1"],
    "orphans": ["--older-than", "0s", "--allow-young", "--delete"],
    "evolve": ["--add", "bucket(4, id)", "--add-column", "note string", "--set", "a.b=c"],
    "upgrade": ["--to", "4"],
    "export": [],
    "report": [],
}
SAID = {  # of those that take other arguments
    "sql": ["DELETE FROM db.events WHERE region = 'eu'"],
    "register": ["db.more", "somewhere.metadata.json"],
}


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A table with something to do for every verb."""
    lake = Lake(tmp_path_factory.mktemp("cli") / "lake")
    table = lake.lived(version=3)
    folder = Path(table.context.metadata.location.removeprefix("file://")) / "data"
    (folder / "left.parquet").write_bytes(b"left behind")
    return lake


@pytest.mark.parametrize("verb", [*WRITING, *SAID])
def test_a_dry_run_prints_the_plan_and_changes_nothing(busy: Lake, spark, verb: str):
    given = SAID[verb] if verb in SAID else ["db.events", *WRITING[verb]]
    with unchanged(busy):
        ran = busy.run(verb, *given, "--dry-run", "--json", code=None)
    assert ran.code == (4 if verb in ("deletes", "dangling") else 0), ran.err
    result = ran.document
    assert result["verb"] == verb and result["plan"] and result["explain"]
    assert result["status"] == ("nothing-to-do" if ran.code else "planned")


@pytest.mark.parametrize(
    "verb", ["compact", "expire", "evolve", "upgrade", "manifests", "register", "orphans", "export"]
)
def test_a_dry_run_can_be_read(busy: Lake, verb: str):
    given = SAID[verb] if verb in SAID else ["db.events", *WRITING[verb]]
    ran = busy.run(verb, *given, "--dry-run")
    assert ran.out.strip() and "Dry run: nothing was changed." in ran.err


def test_the_keys_of_plans_are_stable(busy: Lake, spark):
    plan = busy.run("compact", "db.events", *WRITING["compact"], "--dry-run", "--json").document["plan"]
    assert set(plan) == {
        *("snapshot_id", "files", "bytes", "groups", "partitions", "output_files", "output_spec_ids"),
        *("target_file_size", "filter_stats"),
    }
    assert plan["filter_stats"]["fail_open_files"] == 0 and plan["files"] == 2
    plan = busy.run("delete", "db.events", *WRITING["delete"], "--dry-run", "--json").document["plan"]
    assert plan["files_whole_by_spec"] == {"0": 1} and plan["files"] == 4 and plan["mode"] == "copy-on-write"


def test_a_plan_with_a_filter_shows_what_could_not_be_evaluated(busy: Lake):
    rendered = busy.run("compact", "db.events", "--where", "region = 'eu'", "--dry-run", code=4).out
    assert rendered.startswith("Nothing to rewrite") and "0 files of 0 partitions taken undecided" in rendered


def test_a_plan_without_a_filter_mentions_none(busy: Lake):
    rewrite = neve.connect(busy.folder).table("db.events").rewrite_data_files()
    assert "filter" not in rewrite.plan_with_stats().explain()
    assert "filter" in rewrite.where("region = 'eu'").plan_with_stats().explain()


def test_rows_are_changed(lake: Lake, spark):
    table = lake.lived()
    result = lake.run("update", "db.events", "--set", "amount=amount * 10", "--where", "id = 1", "--json").document
    assert result["status"] == "done" and result["rows_updated"] == 1 and result["rows_inserted"] == 0
    assert result["snapshot_id"] == table.refresh().context.metadata.current_snapshot_id
    assert "rows deleted" in lake.run("delete", "db.events", "--where", "id < 1", "--mode", "merge-on-read").out
    found = {r["id"]: r["amount"] for r in table.to_arrow().to_pylist()}
    assert found[1] == 5.0 and 0 not in found
    assert lake.run("delete", "db.events", "--where", "id = 99", "--json", code=4).document["rows_deleted"] == 0
    output = lake.run("update", "db.events", "--set", "amount=amuont + 1", "--where", "id = 1", code=2).err
    assert "amount" in output and "__neve" not in output


def test_every_row_needs_a_word_of_its_own(lake: Lake):
    lake.lived()
    with unchanged(lake):
        assert "--all" in lake.run("delete", "db.events", code=2).err
        assert "--all" in lake.run("update", "db.events", "--set", "id=1", code=2).err
        assert "NAME=VALUE" in lake.run("update", "db.events", "--set", "id", "--all", code=2).err


def test_a_file_is_merged(lake: Lake, spark, tmp_path: Path):
    table = lake.lived()
    pq.write_table(rows(3, 2), tmp_path / "changes.parquet")
    clauses = ["--when", "MATCHED THEN UPDATE SET amount = -1", "--when", "NOT MATCHED THEN INSERT *"]
    given = ["--using", str(tmp_path / "changes.parquet"), "--on", "t.id = s.id", *clauses]
    result = lake.run("merge", "db.events", *given, "--json").document
    assert (result["rows_updated"], result["rows_inserted"], result["rows_by_clause"]) == (1, 1, [1, 1])
    assert {r["id"]: r["amount"] for r in table.to_arrow().to_pylist()}[3] == -1
    assert "--upsert" in lake.run("merge", "db.events", "--using", "x", "--on", "true", code=2).err


def test_a_table_is_looked_after(lake: Lake, spark):
    table = lake.lived()
    before = sorted(table.to_arrow()["id"].to_pylist())
    assert "manifests rewritten" in lake.run("manifests", "db.events").out
    result = lake.run("compact", "db.events", "--option", "min-input-files=2", "--verify-rows", "--json").document
    assert (
        result["files_rewritten"] == 2
        and result["files_added"] == 1
        and result["groups"][0]["partition"]["spec_id"] == 1
    )
    result = lake.run("expire", "db.events", "--older-than", "0s", "--retain-last", "1", "--json").document
    assert len(result["snapshot_ids"]) == 4 and result["deleted"]["data_files"] and result["files_deleted"] > 0
    assert "Nothing to do" in lake.run("expire", "db.events", code=4).out
    assert sorted(table.to_arrow()["id"].to_pylist()) == before and table.verify().is_sound


def test_maintenance_tells_each_verb(lake: Lake, spark):
    table = lake.lived()
    for start in range(30, 38):
        table.append(rows(start, 1))
    result = lake.run("maintain", "db.events", "--json").document
    assert {r["verb"] for r in result["results"]} >= {"rewrite_data_files", "rewrite_manifests"}
    assert lake.run("maintain", "db.events", "--budget-bytes", "1b", code=None).code in (0, 4)
    assert "10GB" in lake.run("maintain", "db.events", "--budget-bytes", "ten", code=2).err


def test_orphans_are_deleted_only_on_request(lake: Lake):
    table = lake.lived()
    left = Path(table.context.metadata.location.removeprefix("file://")) / "data" / "left.parquet"
    left.write_bytes(b"left behind")
    old = time.time() - 5 * DAYS
    os.utime(left, (old, old))
    assert str(left) in lake.run("orphans", "db.events").out.replace("\n", "") and left.exists()
    result = lake.run("orphans", "db.events", "--delete", "--json").document
    assert result["files_deleted"] == 1 and not left.exists()
    lake.run("orphans", "db.events", code=4)


def test_columns_fields_and_properties_evolve_together(lake: Lake):
    table = lake.lived()
    given = [
        "--rename-column",
        "amount=price",
        "--add-column",
        "note string",
        "--add",
        "bucket(4, id)",
        "--set",
        "a.b=c",
    ]
    rendered = lake.run("evolve", "db.events", *given).out
    assert "only metadata changed" in rendered
    metadata = table.refresh().context.metadata
    assert metadata.schema().column_names == ["id", "region", "price", "note"]
    assert [f.name for f in metadata.spec().fields] == ["id_bucket_4"] and metadata.properties["a.b"] == "c"
    lake.run("evolve", "db.events", "--unset", "a.b", "--widen", "price double", "--drop", "id_bucket_4")
    assert "a.b" not in table.refresh().context.metadata.properties


def test_a_change_that_is_wrong_in_part_lands_in_no_part(lake: Lake):
    lake.lived()
    with unchanged(lake):
        ran = lake.run("evolve", "db.events", "--add-column", "note string", "--add", "bucket(4, nope)", code=2)
        assert "nope" in ran.err
        lake.run("evolve", "db.events", "--add-column", "note string", "--set", "write.format.default=papyrus", code=2)
        assert "Say what to change" in lake.run("evolve", "db.events", code=2).err


def test_a_table_moves_to_version_4_and_back_out(lake: Lake):
    table = lake.lived()
    result = lake.run("upgrade", "db.events", "--to", "4", "--json").document
    assert result["before"] == {"format_version": 2} and result["after"] == {"format_version": 4}
    path = lake.run("export", "db.events").out.strip()
    assert json.loads(Path(path.removeprefix("file://")).read_text())["format-version"] == 3
    assert "Cannot move" in lake.run("upgrade", "db.events", "--to", "3", code=2).err
    assert table.refresh().context.metadata.format_version == 4


@needs_fixtures
def test_a_table_of_another_engine_is_taken_in(lake: Lake, tmp_path: Path):
    metadata = relocated("trino_timetravel", tmp_path / "theirs")
    assert "db.theirs" in lake.run("register", "db.theirs", metadata).out
    assert sorted(r["data"] for r in lake.run("scan", "db.theirs", "--json").lines) == [1, 2, 3]
    assert lake.run("verify", "db.theirs").out.startswith("Sound: 4 snapshots"), "the first of them lists nothing"
    assert "already" in lake.run("register", "db.theirs", metadata, code=2).err


def test_a_catalog_of_the_configuration_is_used(tmp_path: Path):
    """PyIceberg reads its configuration when it is imported, so this takes a process of its own."""
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/prod.db", "warehouse": f"file://{tmp_path}/warehouse"}
    neve.connect(catalog="prod", **properties).create_table("db.sales", "id bigint")
    configuration = {f"PYICEBERG_CATALOG__PROD__{name.upper()}": value for name, value in properties.items()}
    command = [sys.executable, "-m", "neve.cli", "tables", "--catalog", "prod"]
    done = subprocess.run(command, env={**os.environ, **configuration}, capture_output=True, text=True, check=True)
    assert done.stdout == "db.sales\n"


def test_an_unknown_catalog_is_rejected(lake: Lake):
    assert "Unknown catalog" in lake.run("tables", "--catalog", "nope", code=2).err
