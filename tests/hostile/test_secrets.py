"""Secrets stay in the configuration: they are in no log, no error, no repr, no file and no report.

A secret that nobody could mistake is configured, and looked for in all that is said and stored (`PLACES`). The search
itself is tried with secrets that are there (`PLANTS`).
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import neve
from neve.cli import app
from neve.cli.console import ExitCode, exit_code_of
from neve.errors import CorruptFile, MissingFile, NeveError, TableError
from tests.hostile.honest_tables import CANARY, files_below
from tests.proof.results_ledger import tallied
from tests.support.evolved_tables import edit_avro

GUARANTEE = "secrets appear in no log, error, repr, summary or report"
CAUGHT = "planted faults are caught: secrets that are said"
SECRETS = {
    "s3.access-key-id": f"id-{CANARY}",
    "s3.secret-access-key": CANARY,
    "s3.session-token": CANARY,
    "token": CANARY,
    "header.authorization": f"Bearer {CANARY}",
    "adls.connection-string": f"AccountKey={CANARY}",
}
ROWS = [{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}]
COMMANDS: dict[tuple[str, ...], ExitCode] = {
    ("tables",): ExitCode.DONE,
    ("inspect", "db.t"): ExitCode.DONE,
    ("inspect", "db.t", "snapshots", "--json"): ExitCode.DONE,
    ("verify", "db.t"): ExitCode.DONE,
    ("maintain", "db.t", "--dry-run", "--debug"): ExitCode.NOTHING_TO_DO,
    ("scan", "db.nothing", "--debug"): ExitCode.USAGE,
}


@dataclass(frozen=True)
class Stage:
    """A table of somebody whose configuration has secrets, and where they could come to light."""

    lake: neve.Lake
    table: neve.Table
    folder: Path
    logged: pytest.LogCaptureFixture


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    for name in ("sqlalchemy.engine", "pyiceberg", "neve", "fsspec", "urllib3"):
        caplog.set_level(logging.DEBUG, name)
    return caplog


@pytest.fixture
def here(tmp_path: Path, logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Stage:
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/lake"
    properties = {"type": "sql", "uri": uri, "warehouse": warehouse, **SECRETS}
    configure(monkeypatch, properties)
    lake = neve.connect(catalog="prod", **properties)
    return Stage(lake, lake.create_table("db.t", "id bigint, region string", ["region"]), tmp_path, logged)


def configure(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]) -> None:
    """Let the configuration of PyIceberg have a catalog `prod`, for the command line."""
    for name, value in properties.items():
        spelled = name.replace(".", "__").replace("-", "_").upper()
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{spelled}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # which is read once


# --- where secrets are looked for ---

Said = Iterator[tuple[str, str]]


def shown(said: Any) -> str:
    """A value as it would be printed, and as a notebook shows it."""
    return f"{said!r} {said} {said._repr_html_() if hasattr(said, '_repr_html_') else ''}"


def returned(here: Stage) -> Said:
    """What verbs return."""
    yield from ((type(said).__name__, shown(said)) for said in everything_returned(here.table, here.lake))


def everything_returned(table: neve.Table, lake: neve.Lake) -> Iterator[Any]:
    yield from (lake, lake.catalog, table, table.context, table.context.facts, table.context.io, table.iceberg)
    yield from (table.append(ROWS), table.scan("id > 1"), table.scan().plan(), table.scan().explain())
    for verb in ("rewrite_data_files", "rewrite_manifests", "expire_snapshots", "maintain", "remove_orphan_files"):
        built = getattr(table, verb)()
        yield from (built, built.plan(), built.explain())
    yield from (table.verify(), table.inspect.snapshots().to_pylist(), table.inspect.tree().to_pylist())
    yield table.set_properties(a="b")


def reported(here: Stage) -> Said:
    """The page about the table."""
    yield "page", here.table.report(here.folder / "report.html").read_text()


def commanded(here: Stage) -> Said:
    """What commands print, traces among it."""
    for arguments, code in COMMANDS.items():
        yield f"neve {' '.join(arguments)}", printed(*arguments, code=code)


def printed(*arguments: str, code: ExitCode) -> str:
    done = CliRunner().invoke(app, [*arguments, "--catalog", "prod"], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return f"{done.stdout}\n{done.stderr}"


def stored(here: Stage) -> Said:
    """The bytes of every file; Avro also as it reads, since its blocks are compressed."""
    for path in files_below(here.folder):
        yield path.suffix, path.read_bytes().decode("latin-1") + (_records(path) if path.suffix == ".avro" else "")


def _records(path: Path) -> str:
    with path.open("rb") as stream:
        return repr(list(fastavro.reader(stream)))


def noted(here: Stage) -> Said:
    """What was logged until now."""
    yield "text", here.logged.text


PLACES: dict[str, Callable[[Stage], Said]] = {  # the last two have what the others left there
    "returned": returned,
    "report": reported,
    "command line": commanded,
    "file": stored,
    "log": noted,
}


def test_nothing_that_is_printed_or_stored_has_a_secret(here: Stage):
    with tallied(GUARANTEE) as tally:
        for where, look in PLACES.items():
            for what, text in look(here):
                with tally.case(f"{where}: {what}"):
                    assert CANARY not in text, "a secret is there"


def test_a_statement_on_spark_says_no_secret(here: Stage, spark: SparkSession):
    table = replace(here.lake, given_spark=spark.newSession()).table("db.t")
    with tallied(GUARANTEE) as tally:
        for what, text in of_a_statement(table):
            with tally.case(f"Spark: {what}"):
                assert CANARY not in text, "a secret is there"
        with tally.case("Spark: log and files"):
            assert not [what for look in (stored, noted) for what, text in look(here) if CANARY in text]


def of_a_statement(table: neve.Table) -> Said:
    """A statement before and after it was run, and a read as Spark plans it."""
    table.append(ROWS)
    statement = table.update().set("region", "upper(region)").where("id = 1")
    yield from (("statement", shown(statement)), ("plan", shown(statement.plan())), ("told", statement.explain()))
    yield "result", shown(statement.execute())
    rows = table.scan("id > 1").to_spark()
    yield "rows", f"{rows!r} {rows._jdf.queryExecution().toString()}"


# --- errors ---


def told(error: BaseException) -> str:
    """The error as a log or `--debug` would have it, with all that caused it."""
    return f"{error!r} {error} {error.args} {''.join(traceback.format_exception(error))}"


def test_errors_of_a_damaged_table_have_no_secret(here: Stage):
    here.table.append(ROWS)
    for path in here.table.inspect.files()["file_path"].to_pylist():
        Path(path.removeprefix("file://")).unlink()
    with tallied(GUARANTEE) as tally, tally.case("a missing file"):
        with pytest.raises(MissingFile) as raised:
            here.table.scan().to_arrow(engine="arrow")
        assert CANARY not in told(raised.value) + here.logged.text
        assert CANARY not in printed("verify", "db.t", "--debug", code=ExitCode.FAILED)


UNREACHABLE: dict[str, dict[str, str]] = {
    "a database": {"type": "sql", "uri": f"postgresql+psycopg2://user:{CANARY}@127.0.0.1:9/lake"},
    "a database with a key in its query": {
        "type": "sql",
        "uri": f"postgresql+psycopg2://127.0.0.1:9/lake?password={CANARY}",
    },
    "a database nobody has a driver for": {"type": "sql", "uri": f"oracle://user:{CANARY}@127.0.0.1:9/lake"},
    "no database at all": {"type": "sql", "uri": f"nonsense://user:{CANARY}@host"},
    "a server": {"type": "rest", "uri": "http://127.0.0.1:9", "token": CANARY},
    "a server with an account": {"type": "rest", "uri": "http://127.0.0.1:9", "credential": f"id:{CANARY}"},
    "a server with a password in its address": {"type": "rest", "uri": f"http://user:{CANARY}@127.0.0.1:9"},
}


@pytest.mark.parametrize("what", UNREACHABLE)
def test_a_catalog_that_cannot_be_reached_is_one_error_without_its_secret(
    what: str, logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    configure(monkeypatch, UNREACHABLE[what])
    with tallied(GUARANTEE) as tally, tally.case(what):
        with pytest.raises(NeveError) as raised:
            neve.connect(catalog="prod", **UNREACHABLE[what]).tables()
        assert CANARY not in told(raised.value)
        assert CANARY not in printed("tables", "--debug", code=exit_code_of(raised.value))
        assert CANARY not in logged.text


MESSAGES: dict[str, Callable[[], NeveError]] = {
    "a path": lambda: CorruptFile(f"s3://key:{CANARY}@bucket/x.avro", "an Avro file", "none"),
    "a signed address": lambda: MissingFile(f"https://h/x?X-Amz-Credential=a&X-Amz-Signature={CANARY}"),
    "a token": lambda: TableError(f"Cannot read abfs://c@h/x?sv=1&sig={CANARY}: gone"),
    "a database": lambda: TableError(f"Cannot reach postgresql+psycopg2://u:{CANARY}@h:5432/db"),
}


@pytest.mark.parametrize("what", MESSAGES)
def test_secrets_in_addresses_are_left_out_of_messages(what: str):
    with tallied(GUARANTEE) as tally, tally.case(f"{what} in a message"):
        error = MESSAGES[what]()
        assert CANARY not in told(error)
        assert "…" in str(error)


# --- the search itself ---

Plant = Callable[[Stage, pytest.MonkeyPatch], object]

PLANTS: dict[str, tuple[Plant, str, str]] = {
    "a repr": (lambda _, patch: patch.setattr(neve.Table, "__repr__", lambda t: f"{SECRETS}"), "returned", "Table"),
    "a card": (lambda _, patch: patch.setattr(neve.Table, "_repr_html_", lambda t: CANARY), "returned", "Table"),
    "a page": (lambda _, patch: patch.setattr("neve.report.page.render_page", lambda said: CANARY), "report", "page"),
    "a command": (
        lambda _, patch: patch.setattr("neve.cli.console.without_control_characters", lambda t: CANARY),
        "command line",
        "neve",
    ),
    "a property": (lambda here, _: here.table.set_properties(token=CANARY), "file", ".json"),
    "a summary": (lambda here, _: here.table.append(ROWS, snapshot_properties=SECRETS), "file", ".json"),
    "a manifest": (lambda here, _: into_a_manifest(here.table), "file", ".avro"),
    "a line": (lambda *_: logging.getLogger("neve.catalog").debug("Opened with %s", SECRETS), "log", "text"),
}


def into_a_manifest(table: neve.Table) -> None:
    """Where only somebody who decompresses the records sees it."""
    table.append(ROWS)
    path = table.inspect.manifests()["path"][0].as_py()
    edit_avro(path, lambda row: row["data_file"].update(file_path=CANARY))
    assert CANARY.encode() not in Path(path.removeprefix("file://")).read_bytes()


@pytest.mark.parametrize("planted", PLANTS)
def test_a_secret_that_is_there_is_found(planted: str, here: Stage, monkeypatch: pytest.MonkeyPatch):
    plant, where, what = PLANTS[planted]
    with tallied(CAUGHT) as tally, tally.case(planted):
        plant(here, monkeypatch)
        assert [said for said, text in PLACES[where](here) if CANARY in text and what in said]
        tally.figure("found")


def test_a_secret_in_an_error_is_found(monkeypatch: pytest.MonkeyPatch):
    error = TableError("Cannot open the catalog")
    error.__cause__ = OSError(f"Cannot log in with {CANARY}")
    with tallied(CAUGHT) as tally:
        with tally.case("the cause of an error"):
            assert CANARY in told(error) and CANARY not in str(error)
            tally.figure("found")
        with tally.case("an address in an error"):
            monkeypatch.setattr("neve.errors._URI_PASSWORD", re.compile("(?!)"))
            assert CANARY in told(MESSAGES["a path"]())
            tally.figure("found")
