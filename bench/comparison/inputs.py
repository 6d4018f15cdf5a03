"""The inputs of every engine: rows in plain Parquet, tables of many files, and a folder for its own tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS_PER_SCALE = 6_000_000
ONE_IN_A_HUNDRED = "l_tax = 0.07"
ONE_YEAR = "l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'"
SMALL_FILES = 100
GROWTH = (100, 1_000, 10_000)  # files of the tables that are planned and committed to
PLANNED = "region = 'r07' AND id < 500"


@dataclass(frozen=True)
class Inputs:
    """Inputs of one size."""

    folder: Path
    name: str  # of this size
    rows: int
    small_files: int = SMALL_FILES
    growth: tuple[int, ...] = GROWTH

    def part(self, number: int) -> str:
        """Return the path of a third of the rows."""
        return str(self.folder / self.name / f"part-{number}")

    @property
    def changes(self) -> str:
        """The path of new prices for one row in a hundred, by key."""
        return str(self.folder / self.name / "changes")

    def table_of(self, files: int) -> Path:
        """Return the folder of a table with this number of files; only its metadata exists."""
        return self.folder / f"files-{files}"

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def arrow(self, path: str) -> pa.Table:
        return pq.read_table(path)


def sizes(folder: Path, scale: float) -> tuple[Inputs, Inputs]:
    """Return the inputs for the warm-up and those for the measurement."""
    small = Inputs(folder, "warm", 40_000, small_files=8, growth=(100,))
    return small, Inputs(folder, "full", int(scale * ROWS_PER_SCALE))
