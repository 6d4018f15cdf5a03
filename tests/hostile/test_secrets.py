"""Secrets stay in the configuration: they are in no log, no error, no repr, no file and no report."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import neve
from neve.errors import CorruptFile, MissingFile, NeveError, TableError
from tests.hostile.place import CANARY, files_below

SECRETS = {
    "s3.access-key-id": f"id-{CANARY}",
    "s3.secret-access-key": CANARY,
    "s3.session-token": CANARY,
    "token": CANARY,
    "header.authorization": f"Bearer {CANARY}",
    "adls.connection-string": f"AccountKey={CANARY}",
}
ROWS = [{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    for name in ("sqlalchemy.engine", "pyiceberg", "neve", "fsspec", "urllib3"):
        caplog.set_level(logging.DEBUG, name)
    return caplog


@pytest.fixture
def lake(tmp_path: Path) -> neve.Lake:
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/lake"
    return neve.connect(catalog="prod", type="sql", uri=uri, warehouse=warehouse, **SECRETS)


def everything_said(table: neve.Table, lake: neve.Lake) -> Iterator[Any]:
    """What verbs return, as it would be printed."""
    yield from (lake, lake.catalog, table, table.context, table.context.facts, table.context.io, table.iceberg)
    yield from (table.append(ROWS), table.scan("id > 1"), table.scan().plan(), table.scan().explain())
    for verb in ("rewrite_data_files", "rewrite_manifests", "expire_snapshots", "maintain", "remove_orphan_files"):
        built = getattr(table, verb)()
        yield from (built, built.plan(), built.explain())
    yield from (table.verify(), table.inspect.snapshots().to_pylist(), table.inspect.tree().to_pylist())
    yield table.set_properties(a="b")


def test_nothing_that_is_printed_or_stored_has_a_secret(lake: neve.Lake, logged: Any, tmp_path: Path):
    table = lake.create_table("db.t", "id bigint, region string", ["region"])
    for said in everything_said(table, lake):
        assert CANARY not in f"{said!r} {said}", type(said)
        if hasattr(said, "_repr_html_"):
            assert CANARY not in said._repr_html_()
    assert CANARY not in logged.text
    assert [p for p in files_below(tmp_path) if CANARY.encode() in p.read_bytes()] == []


def test_errors_of_a_damaged_table_have_no_secret(lake: neve.Lake, logged: Any):
    table = lake.create_table("db.t", "id bigint, region string")
    table.append(ROWS)
    Path(table.inspect.files()["file_path"][0].as_py().removeprefix("file://")).unlink()
    with pytest.raises(MissingFile) as raised:
        table.scan().to_arrow(engine="arrow")
    assert CANARY not in _told(raised.value) + logged.text


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
def test_a_catalog_that_cannot_be_reached_is_one_error_without_its_secret(what: str, logged: Any):
    with pytest.raises(NeveError) as raised:
        neve.connect(catalog="prod", **UNREACHABLE[what]).tables()
    assert CANARY not in _told(raised.value)
    assert CANARY not in logged.text


def _told(error: BaseException) -> str:
    """The error as a log would have it; what caused it is for whoever debugs, and is looked at too."""
    return f"{error!r} {error} {''.join(traceback.format_exception_only(error))}"


MESSAGES: dict[str, Callable[[], NeveError]] = {
    "a path": lambda: CorruptFile(f"s3://key:{CANARY}@bucket/x.avro", "an Avro file", "none"),
    "a signed address": lambda: MissingFile(f"https://h/x?X-Amz-Credential=a&X-Amz-Signature={CANARY}"),
    "a token": lambda: TableError(f"Cannot read abfs://c@h/x?sv=1&sig={CANARY}: gone"),
    "a database": lambda: TableError(f"Cannot reach postgresql+psycopg2://u:{CANARY}@h:5432/db"),
}


@pytest.mark.parametrize("what", MESSAGES)
def test_secrets_in_addresses_are_left_out_of_messages(what: str):
    error = MESSAGES[what]()
    assert CANARY not in f"{error} {error!r} {error.args}"
    assert "…" in str(error)
