"""Iceberg's runtime for Spark as a witness of all tables a test file has made, in one process at its end."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.peers.jars import ICEBERG, NotToBeHad, path_of

ROOT = Path(__file__).parents[2]

KNOWN: dict[str, str] = {}
"""Tables Spark with Iceberg is known to read otherwise, each by the beginning of its name with the reason."""


def runtime_jar() -> Path:
    """The jar; the test that asks for it skips aloud when it is not to be had."""
    try:
        return path_of(ICEBERG)
    except NotToBeHad as e:
        pytest.skip(f"Spark with Iceberg was not asked: {e}.")


@dataclass
class Finished:
    """Tables that tests are done with, and the rows they hold."""

    folder: Path
    tables: list[dict[str, str]] = field(default_factory=list)

    def keep(self, name: str, location: str, rows: pa.Table) -> None:
        """Remember a table for witnesses that come later."""
        place = self.folder / f"{name}.expected.parquet"
        pq.write_table(rows, place)
        self.tables.append({"name": name, "metadata": location, "rows": str(place)})


def said_by_spark(finished: Finished) -> dict[str, str]:
    """What Spark with Iceberg says against some tables, by their names."""
    manifest = finished.folder / "manifest.json"
    manifest.write_text(json.dumps(finished.tables))
    command = [sys.executable, "-m", "tests.dml.spark_peer", str(manifest), str(runtime_jar())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    lines: list[Any] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0 and lines and lines[-1] == {"looked_at": len(finished.tables)}, done.stderr[-4000:]
    return {line["name"]: line["said"] for line in lines[:-1]}


def check_by_spark(finished: Finished) -> None:
    """Fail with everything that Spark with Iceberg reads otherwise; what is known is expected, and only that."""
    if not finished.tables:
        pytest.skip("Nothing was played before: there is no table to look at.")
    said = said_by_spark(finished)
    known = {name: text for name, text in said.items() if any(name.startswith(k) for k in KNOWN)}
    surprises = {name: text for name, text in said.items() if name not in known}
    assert not surprises, "\n".join(f"{name}: {text}" for name, text in surprises.items())
