"""Secrets stay in the configuration: they are in no log, no error, no repr, no file and no report.

A unique secret is configured and searched for in everything that is printed and stored (`OUTPUTS`). The search itself
is tested with secrets that are present (`PLANTS`).
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
from tests.proof.results_ledger import new_tally
from tests.support.evolved_tables import edit_avro

GUARANTEE = "secrets appear in no log, error, repr, summary or report"
PLANTED = "planted faults are caught: secrets that are printed"
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
class SecretSetup:
    """A table whose configuration has secrets, and the outputs that must not contain them."""

    lake: neve.Lake
    table: neve.Table
    folder: Path
    captured_log: pytest.LogCaptureFixture


@pytest.fixture
def captured_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    for name in ("sqlalchemy.engine", "pyiceberg", "neve", "fsspec", "urllib3"):
        caplog.set_level(logging.DEBUG, name)
    return caplog


@pytest.fixture
def setup(tmp_path: Path, captured_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> SecretSetup:
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/lake"
    properties = {"type": "sql", "uri": uri, "warehouse": warehouse, **SECRETS}
    configure(monkeypatch, properties)
    lake = neve.connect(catalog="prod", **properties)
    return SecretSetup(lake, lake.create_table("db.t", "id bigint, region string", ["region"]), tmp_path, captured_log)


def configure(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]) -> None:
    """Add a catalog `prod` to the configuration of PyIceberg, for the command line."""
    for name, value in properties.items():
        variable = name.replace(".", "__").replace("-", "_").upper()
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{variable}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read once


# --- outputs that are searched for secrets ---

NamedTexts = Iterator[tuple[str, str]]


def printed_forms(value: Any) -> str:
    """Return a value as it is printed, and as a notebook shows it."""
    return f"{value!r} {value} {value._repr_html_() if hasattr(value, '_repr_html_') else ''}"


def returned_values(setup: SecretSetup) -> NamedTexts:
    """Yield the values that verbs return."""
    yield from ((type(value).__name__, printed_forms(value)) for value in everything_returned(setup.table, setup.lake))


def everything_returned(table: neve.Table, lake: neve.Lake) -> Iterator[Any]:
    yield from (lake, lake.catalog, table, table.context, table.context.facts, table.context.io, table.iceberg)
    yield from (table.append(ROWS), table.scan("id > 1"), table.scan().plan(), table.scan().explain())
    for verb in ("rewrite_data_files", "rewrite_manifests", "expire_snapshots", "maintain", "remove_orphan_files"):
        built = getattr(table, verb)()
        yield from (built, built.plan(), built.explain())
    yield from (table.verify(), table.inspect.snapshots().to_pylist(), table.inspect.tree().to_pylist())
    yield table.set_properties(a="b")


def report_page(setup: SecretSetup) -> NamedTexts:
    """Yield the report page of the table."""
    yield "page", setup.table.report(setup.folder / "report.html").read_text()


def command_outputs(setup: SecretSetup) -> NamedTexts:
    """Yield the output of commands, including traces."""
    for arguments, code in COMMANDS.items():
        yield f"neve {' '.join(arguments)}", command_output(*arguments, code=code)


def command_output(*arguments: str, code: ExitCode) -> str:
    done = CliRunner().invoke(app, [*arguments, "--catalog", "prod"], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return f"{done.stdout}\n{done.stderr}"


def stored_files(setup: SecretSetup) -> NamedTexts:
    """Yield the bytes of every file, and the records of Avro files, whose blocks are compressed."""
    for path in files_below(setup.folder):
        yield path.suffix, path.read_bytes().decode("latin-1") + (_records(path) if path.suffix == ".avro" else "")


def _records(path: Path) -> str:
    with path.open("rb") as stream:
        return repr(list(fastavro.reader(stream)))


def log_text(setup: SecretSetup) -> NamedTexts:
    """Yield the log so far."""
    yield "text", setup.captured_log.text


OUTPUTS: dict[str, Callable[[SecretSetup], NamedTexts]] = {  # the last two contain what the others wrote
    "returned": returned_values,
    "report": report_page,
    "command line": command_outputs,
    "file": stored_files,
    "log": log_text,
}


def test_nothing_that_is_printed_or_stored_has_a_secret(setup: SecretSetup):
    with new_tally(GUARANTEE) as tally:
        for where, collect in OUTPUTS.items():
            for what, text in collect(setup):
                with tally.case(f"{where}: {what}"):
                    assert CANARY not in text, "a secret is in the output"


def test_a_statement_on_spark_prints_no_secret(setup: SecretSetup, spark: SparkSession):
    table = replace(setup.lake, given_spark=spark.newSession()).table("db.t")
    with new_tally(GUARANTEE) as tally:
        for what, text in statement_texts(table):
            with tally.case(f"Spark: {what}"):
                assert CANARY not in text, "a secret is in the output"
        with tally.case("Spark: log and files"):
            assert not [what for collect in (stored_files, log_text) for what, text in collect(setup) if CANARY in text]


def statement_texts(table: neve.Table) -> NamedTexts:
    """Yield a statement before and after it runs, and a read as Spark plans it."""
    table.append(ROWS)
    statement = table.update().set("region", "upper(region)").where("id = 1")
    yield from (
        ("statement", printed_forms(statement)),
        ("plan", printed_forms(statement.plan())),
        ("explain", statement.explain()),
    )
    yield "result", printed_forms(statement.execute())
    rows = table.scan("id > 1").to_spark()
    yield "rows", f"{rows!r} {rows._jdf.queryExecution().toString()}"


# --- errors ---


def error_text(error: BaseException) -> str:
    """Return the error as a log or `--debug` prints it, with its causes."""
    return f"{error!r} {error} {error.args} {''.join(traceback.format_exception(error))}"


def test_errors_of_a_damaged_table_have_no_secret(setup: SecretSetup):
    setup.table.append(ROWS)
    for path in setup.table.inspect.files()["file_path"].to_pylist():
        Path(path.removeprefix("file://")).unlink()
    with new_tally(GUARANTEE) as tally, tally.case("a missing file"):
        with pytest.raises(MissingFile) as raised:
            setup.table.scan().to_arrow(engine="arrow")
        assert CANARY not in error_text(raised.value) + setup.captured_log.text
        assert CANARY not in command_output("verify", "db.t", "--debug", code=ExitCode.FAILED)


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
    what: str, captured_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    configure(monkeypatch, UNREACHABLE[what])
    with new_tally(GUARANTEE) as tally, tally.case(what):
        with pytest.raises(NeveError) as raised:
            neve.connect(catalog="prod", **UNREACHABLE[what]).tables()
        assert CANARY not in error_text(raised.value)
        assert CANARY not in command_output("tables", "--debug", code=exit_code_of(raised.value))
        assert CANARY not in captured_log.text


MESSAGES: dict[str, Callable[[], NeveError]] = {
    "a path": lambda: CorruptFile(f"s3://key:{CANARY}@bucket/x.avro", "an Avro file", "none"),
    "a signed address": lambda: MissingFile(f"https://h/x?X-Amz-Credential=a&X-Amz-Signature={CANARY}"),
    "a token": lambda: TableError(f"Cannot read abfs://c@h/x?sv=1&sig={CANARY}: gone"),
    "a database": lambda: TableError(f"Cannot reach postgresql+psycopg2://u:{CANARY}@h:5432/db"),
}


@pytest.mark.parametrize("what", MESSAGES)
def test_secrets_in_addresses_are_left_out_of_messages(what: str):
    with new_tally(GUARANTEE) as tally, tally.case(f"{what} in a message"):
        error = MESSAGES[what]()
        assert CANARY not in error_text(error)
        assert "…" in str(error)


# --- the search itself ---

Plant = Callable[[SecretSetup, pytest.MonkeyPatch], object]

PLANTS: dict[str, tuple[Plant, str, str]] = {
    "a repr": (lambda _, patch: patch.setattr(neve.Table, "__repr__", lambda t: f"{SECRETS}"), "returned", "Table"),
    "a card": (lambda _, patch: patch.setattr(neve.Table, "_repr_html_", lambda t: CANARY), "returned", "Table"),
    "a page": (lambda _, patch: patch.setattr("neve.report.page.render_page", lambda value: CANARY), "report", "page"),
    "a command": (
        lambda _, patch: patch.setattr("neve.cli.console.without_control_characters", lambda t: CANARY),
        "command line",
        "neve",
    ),
    "a property": (lambda setup, _: setup.table.set_properties(token=CANARY), "file", ".json"),
    "a summary": (lambda setup, _: setup.table.append(ROWS, snapshot_properties=SECRETS), "file", ".json"),
    "a manifest": (lambda setup, _: write_secret_to_manifest(setup.table), "file", ".avro"),
    "a line": (lambda *_: logging.getLogger("neve.catalog").debug("Opened with %s", SECRETS), "log", "text"),
}


def write_secret_to_manifest(table: neve.Table) -> None:
    """Write the secret to a manifest, where it is visible only in decompressed records."""
    table.append(ROWS)
    path = table.inspect.manifests()["path"][0].as_py()
    edit_avro(path, lambda row: row["data_file"].update(file_path=CANARY))
    assert CANARY.encode() not in Path(path.removeprefix("file://")).read_bytes()


@pytest.mark.parametrize("planted", PLANTS)
def test_a_planted_secret_is_found(planted: str, setup: SecretSetup, monkeypatch: pytest.MonkeyPatch):
    plant, where, what = PLANTS[planted]
    with new_tally(PLANTED) as tally, tally.case(planted):
        plant(setup, monkeypatch)
        assert [value for value, text in OUTPUTS[where](setup) if CANARY in text and what in value]
        tally.figure("found")


def test_a_secret_in_an_error_is_found(monkeypatch: pytest.MonkeyPatch):
    error = TableError("Cannot open the catalog")
    error.__cause__ = OSError(f"Cannot log in with {CANARY}")
    with new_tally(PLANTED) as tally:
        with tally.case("the cause of an error"):
            assert CANARY in error_text(error) and CANARY not in str(error)
            tally.figure("found")
        with tally.case("an address in an error"):
            monkeypatch.setattr("neve.errors._URI_PASSWORD", re.compile("(?!)"))
            assert CANARY in error_text(MESSAGES["a path"]())
            tally.figure("found")
