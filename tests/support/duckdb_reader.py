"""DuckDB as a reader in a separate process, because some tables crash the process it runs in.

`python -m tests.support.duckdb_reader` reads lines of two paths, a metadata file and a file for the rows, and answers
each with a line: empty when the rows were written, or else DuckDB's error.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.peers.readers import duckdb_rows

ROOT = Path(__file__).parents[2]


class Died(Exception):
    """DuckDB ended its process instead of reading a table."""


@dataclass
class DuckDB:
    """A DuckDB that is started when it is first asked, and again when a table was too much for it."""

    folder: Path
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def rows(self, metadata_location: str) -> pa.Table:
        """The rows of a table by its metadata file; raises Died when DuckDB does not live to tell."""
        place = self.folder / "rows.parquet"
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{metadata_location}\t{place}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            self.stop()
            raise Died
        if answer.strip():
            raise AssertionError(f"DuckDB: {answer.strip()}")
        return pq.read_table(place)

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [sys.executable, "-m", "tests.support.duckdb_reader"]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
            )
        return self._process

    def stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None


def answer(metadata_location: str, place: str) -> str:
    table: Any = SimpleNamespace(metadata_location=metadata_location)
    try:
        pq.write_table(duckdb_rows(table), place)
    except Exception as e:  # whatever it is, it is what DuckDB says about the table
        return " ".join(f"{type(e).__name__}: {e}".split())
    return ""


def main() -> int:
    for line in sys.stdin:
        sys.stdout.write(answer(*line.rstrip("\n").split("\t")) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
