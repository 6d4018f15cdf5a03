"""The command line in this process, on a lake of a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from typer.testing import CliRunner

import neve
from neve import Table
from neve.cli import app

SCHEMA = "id bigint, region string, amount double"


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON object it printed."""
        (line,) = self.out.splitlines()
        found: dict[str, Any] = json.loads(line)
        return found

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines it printed."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Lake:
    """A lake, and the command line on it."""

    folder: Path

    def run(self, *arguments: str, code: int | None = 0) -> Ran:
        """Run a command on the lake; it has to end so."""
        done = CliRunner().invoke(app, [*arguments, "--lake", str(self.folder)], catch_exceptions=False)
        assert code is None or done.exit_code == code, f"exit {done.exit_code}:\n{done.stdout}\n{done.stderr}"
        return Ran(done.exit_code, done.stdout, done.stderr)

    def table(self, name: str = "db.events") -> Table:
        return neve.connect(self.folder).table(name)

    def lived(self, name: str = "db.events", version: int = 2, **properties: str) -> Table:
        """Two files of two regions, then two without partitions."""
        table = neve.connect(self.folder).create_table(
            name, SCHEMA, ["region"], format_version=version, properties=properties
        )
        table.append(rows(0, 4))
        table.evolve_partitions(drop=["region"])
        table.append(rows(10, 2))
        table.append(rows(20, 2))
        return table


def rows(start: int, count: int) -> pa.Table:
    ids = list(range(start, start + count))
    return pa.table({"id": ids, "region": [("eu", "us")[i % 2] for i in ids], "amount": [i / 2 for i in ids]})


@contextmanager
def unchanged(lake: Lake, name: str = "db.events") -> Iterator[None]:
    """The table and every file below the lake stay as they are."""
    before = lake.table(name).context.iceberg.metadata_location, _stored(lake)
    yield
    assert (lake.table(name).context.iceberg.metadata_location, _stored(lake)) == before


def _stored(lake: Lake) -> dict[str, int]:
    return {str(p): p.stat().st_mtime_ns for p in lake.folder.rglob("*") if p.is_file() and p.suffix != ".db"}
