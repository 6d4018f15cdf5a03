"""Exit codes show scripts how a command ended, and messages show people what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import neve
from neve.cli import app
from neve.cli.console import ExitCode, exit_code_of
from neve.errors import CommitConflict, CommitUnknown, CorruptFile, MissingFile, UserError, WriteFailed
from neve.ops.events import Event, Step, subscribe
from neve.ops.maintenance.maintain import Maintain, MaintenanceResult
from neve.ops.maintenance.rewrite_data_files import RewriteDataFiles
from neve.ops.results import GroupResult, RewriteResult
from tests.support.command_line import Lake, unchanged


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("x"), ExitCode.USAGE),
        (CommitConflict("x"), ExitCode.CONFLICT),
        (CommitUnknown("x"), ExitCode.FAILED),
        (CorruptFile("p", "a", "b"), ExitCode.FAILED),
        (OSError("x"), ExitCode.FAILED),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
    ],
)
def test_every_error_has_its_code(error: BaseException, code: ExitCode):
    assert exit_code_of(error) is code


def test_wrong_usage_and_wrong_input_are_one_kind(lake: Lake):
    lake.lived()
    assert "Missing argument" in lake.run("compact", code=2).err
    assert (
        "Unknown table 'db.evnts' in catalog 'neve'. Did you mean 'db.events'?"
        in lake.run("compact", "db.evnts", code=2).err
    )
    assert "Unknown option" in lake.run("compact", "db.events", "--option", "min-files=2", code=2).err


def test_a_command_with_nothing_to_do_reports_it(lake: Lake):
    lake.lived()
    with unchanged(lake):
        result = lake.run("dangling", "db.events", "--json", code=4).document
        assert result["status"] == "nothing-to-do" and result["summary"] == "nothing to remove"
        assert "Nothing to do: the table is so already." in lake.run("upgrade", "db.events", "--to", "2", code=4).out
        assert lake.run("manifests", "db.events", "--spec", "0", "--dry-run", "--json", code=4).document["plan"]


def test_a_lost_race_is_a_conflict(lake: Lake, spark):
    table = lake.lived(**{"neve.commit.reruns": "0", "write.delete.mode": "merge-on-read"})

    others = [11]

    def meanwhile(event: Event) -> None:
        if event == Step("commit") and others:
            table.delete().where(f"id = {others.pop()}").execute()

    with subscribe(meanwhile):
        ran = lake.run("delete", "db.events", "--where", "id = 10", "--mode", "copy-on-write", code=3)
    assert "did not land" in ran.err and "Nothing was changed" in ran.err
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 10, 20, 21]


def test_an_error_is_one_block_and_an_object_for_programs(lake: Lake):
    lake.lived()
    output = lake.run("inspect", "db.evnts", code=2).err
    assert output.startswith("Error: Unknown table") and "\nHint:  `neve tables` lists" in output
    assert "Traceback" not in output
    result = json.loads(lake.run("inspect", "db.evnts", "--json", code=2).err)
    assert result["error"] == "UnknownName" and result["exit_code"] == 2 and result["hint"]


def test_a_trace_is_shown_on_request_only(lake: Lake):
    lake.lived()
    assert "Traceback" in lake.run("inspect", "db.evnts", "--debug", code=2).err


def test_an_error_about_a_damaged_table_names_the_next_command(lake: Lake):
    table = lake.lived()
    file = table.inspect.files()["file_path"][0].as_py().removeprefix("file://")
    os.rename(file, f"{file}.away")
    output = lake.run("scan", "db.events", code=1).err
    assert "Missing file" in output and "neve verify" in output
    assert "Not sound" in lake.run("verify", "db.events", code=1).out


def test_what_is_no_error_of_ours_points_to_debug(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    lake.lived()
    monkeypatch.setattr(neve.Lake, "tables", lambda *_: 1 // 0)
    output = lake.run("tables", code=1).err
    assert "--debug" in output and len(output.splitlines()) <= 3


def test_hints_name_the_table():
    from neve.cli.console import _hint

    assert "neve verify db.t" in _hint(MissingFile("p"), "db.t")
    assert "neve inspect db.t snapshots" in _hint(CommitUnknown("x"), "db.t")
    assert "neve orphans db.t" in _hint(WriteFailed("x", ["left"]), "db.t")


def test_help_and_completion_load_neither_spark_nor_the_engine():
    code = "import sys, neve.cli; print([m for m in ('pyspark', 'numba', 'pyiceberg') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_shell_completes_verbs_tables_and_views(lake: Lake):
    lake.lived()
    lake.lived("db.other")

    def completions_for(words: str) -> list[str]:
        variables = {
            "_NEVE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        where = {"NEVE_LAKE": str(lake.folder)}
        return CliRunner().invoke(app, [], prog_name="neve", env={**variables, **where}).output.split()

    assert "compact" in completions_for("neve com")
    assert completions_for("neve inspect db.e") == ["db.events"]
    assert completions_for("neve inspect db.events snap") == ["snapshots"]
    assert "--where" in completions_for("neve compact --wh")


def test_looking_for_a_lake_makes_none(tmp_path: Path):
    assert "There is no lake" in Lake(tmp_path / "nope").run("tables", code=2).err
    assert not (tmp_path / "nope").exists()


def test_metadata_alone_that_went_is_something_done(lake: Lake):
    table = lake.lived()
    table.evolve_partitions(add=["bucket(4, id)"])
    table.evolve_partitions(drop=["bucket(4, id)"])
    result = lake.run(
        "sql", "CALL system.expire_snapshots(table => 'db.events', clean_expired_metadata => true)", "--yes", "--json"
    ).document
    assert result["status"] == "done" and result["spec_ids"]


@pytest.mark.parametrize(
    "command",
    [["compact", "db.events"], ["maintain", "db.events"], ["sql", "CALL system.rewrite_data_files('db.events')"]],
)
def test_groups_that_failed_are_a_failure(lake: Lake, command: list[str], monkeypatch: pytest.MonkeyPatch):
    lake.lived()
    failed = RewriteResult(failed_groups=(GroupResult(1, 0, (0, ()), 2, None, "no room"),))
    monkeypatch.setattr(RewriteDataFiles, "execute", lambda _: failed)
    monkeypatch.setattr(Maintain, "execute", lambda _: MaintenanceResult((("rewrite_data_files", failed),)))
    assert "1 group failed, the first: no room" in lake.run(*command, "--yes", code=1).err
