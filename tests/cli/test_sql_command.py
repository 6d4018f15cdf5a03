"""`neve sql` on the command line."""

from __future__ import annotations

import json
import sys

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import neve
from neve.cli import app
from neve.ops.maintenance.expire_snapshots import ExpireSnapshots
from neve.ops.rows.delete import Delete
from neve.sql.create_table import DropTable, ReplaceTable


@pytest.fixture
def lake(spark: SparkSession, tmp_path) -> str:
    folder = tmp_path / "lake"
    neve.connect(folder).create_table("db.events", "id bigint, region string").append([{"id": 1, "region": "eu"}])
    return str(folder)


def run_command(lake: str, statement: str, *more: str, ok: bool = True) -> str:
    done = CliRunner().invoke(app, ["sql", statement, "--lake", lake, *more])
    assert (done.exit_code == 0) is ok, done.output
    return done.stdout if ok else done.output


def test_a_query_shows_its_rows(lake):
    assert "eu" in run_command(lake, "SELECT * FROM db.events")
    found = [json.loads(line) for line in run_command(lake, "SELECT id, region FROM db.events", "--json").splitlines()]
    assert found == [{"id": 1, "region": "eu"}]


def test_explain_prints_the_plan_as_text(lake):
    plan = run_command(lake, "EXPLAIN DELETE FROM db.events WHERE id = 1", "--dry-run")
    assert plan.startswith("DELETE FROM db.events WHERE id = 1\n  on ")
    shown = json.loads(run_command(lake, "EXPLAIN SELECT * FROM db.events WHERE id = 2", "--json"))
    assert shown["plan"].startswith("Table db.events\n") and "1 by statistics" in shown["plan"]
    assert neve.connect(lake).table("db.events").scan().count() == 1


def test_a_change_prints_its_result(lake):
    result = json.loads(run_command(lake, "INSERT INTO db.events VALUES (2, 'us'), (3, 'us')", "--json"))
    assert result["rows_added"] == 2 and result["snapshot_id"]
    assert json.loads(run_command(lake, "DELETE FROM db.events WHERE id = 2", "--json"))["rows_deleted"] == 1
    assert "rows updated" in run_command(lake, "UPDATE db.events SET region = 'x'")
    result = json.loads(run_command(lake, "ALTER TABLE db.events ADD COLUMN v int", "--json"))
    assert (result["table"], result["format_version"], result["status"]) == ("db.events", 2, "done")
    assert json.loads(run_command(lake, "DROP TABLE db.events", "--json"))["status"] == "done"


def test_what_is_shown_is_not_cut_and_a_definition_can_be_copied(lake):
    shown = run_command(lake, "DESCRIBE EXTENDED db.events", "--limit", "1", "--dry-run")
    assert "region" in shown and "Table Properties" in shown
    definition = run_command(lake, "SHOW CREATE TABLE db.events")
    assert definition.startswith("CREATE TABLE neve.db.events (\n  id BIGINT,\n  region STRING)\nUSING iceberg\n")


def test_a_dry_run_of_any_statement_runs_nothing(lake):
    for text in ("DELETE FROM db.events", "DROP TABLE db.events", "ALTER TABLE db.events ADD COLUMN v int"):
        result = json.loads(run_command(lake, text, "--dry-run", "--json"))
        assert result["status"] == "planned" and result["plan"]["statement"]
    assert "Nothing to rewrite" in run_command(lake, "CALL system.rewrite_data_files('db.events')", "--dry-run")
    assert json.loads(run_command(lake, "SELECT count(*) AS n FROM db.events", "--dry-run", "--json")) == {"n": 1}


def test_an_error_keeps_its_mark_below_the_error_position(lake):
    *_, line, mark = run_command(lake, "SELECT id\nFORM db.events x", ok=False).rstrip().splitlines()
    assert line[mark.index("^") :].startswith(("FORM", "db", "."))
    assert "�" not in line + mark
    for text in ("SELECT regoin FROM db.events", "DELETE FROM db.events WHERE regoin = 'x'"):
        *_, line, mark = run_command(lake, text, "--yes", ok=False).rstrip().splitlines()
        assert line[mark.index("^") :].startswith("regoin") and mark.count("^") == len("regoin")


@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        (Delete, "DELETE FROM db.events"),
        (ExpireSnapshots, "CALL system.expire_snapshots(table => 'db.events')"),
        (DropTable, "DROP TABLE db.events"),
        (Delete, "TRUNCATE TABLE db.events"),
        (ReplaceTable, "CREATE OR REPLACE TABLE db.events (id bigint)"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_the_question_does_not_hang_on_the_name_of_a_class(lake, monkeypatch, request, kind, statement):
    questions = []
    for module in ("neve.cli.commands.query", "neve.cli.execute"):
        monkeypatch.setattr(
            sys.modules[module], "confirm_or_exit", lambda command, question: questions.append(question)
        )
    request.addfinalizer(lambda name=kind.__name__: setattr(kind, "__name__", name))
    kind.__name__ = "Renamed"
    CliRunner().invoke(app, ["sql", statement, "--lake", lake])
    assert questions in (["Run it?"], ["Drop db.events?"], ["Replace db.events if it exists?"])
