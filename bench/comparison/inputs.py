"""The inputs of every engine: rows in plain Parquet, tables of many files, and a folder for its own tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS_PER_SCALE = 6_000_000
LINES_PER_ORDER = 4
SMALL_FILES = 100
FOREIGN_FILES, FOREIGN_ROWS = 10_000, 100  # in a folder, and rows of each
GROWTH = (100, 1_000, 10_000)  # files of the tables that are planned and committed to
PARTS = 3
KEYS = 25  # orders that are changed by key


@dataclass(frozen=True)
class Lines:
    """Rows of lineitem, in three parts, and changes of them."""

    folder: Path
    rows: int

    def part(self, number: int) -> str:
        """Return the path of a third of the rows."""
        return str(self.folder / f"part-{number}")

    @property
    def changes(self) -> str:
        """The path of new prices for one row in a hundred, by key."""
        return str(self.folder / "changes")

    @property
    def stream(self) -> str:
        """The path of inserts, updates and deletes, together one for every hundred rows."""
        return str(self.folder / "stream")

    @property
    def keys(self) -> list[int]:
        """The keys of some orders, spread evenly over the table."""
        orders = self.rows // LINES_PER_ORDER
        return [(2 * n + 1) * orders // (2 * KEYS) for n in range(KEYS)]

    def arrow(self, *parts: int) -> pa.Table:
        """Return the rows of some parts as an Arrow table."""
        return pa.concat_tables(pq.read_table(self.part(number)) for number in parts)


@dataclass(frozen=True)
class Inputs:
    """Inputs of one size."""

    folder: Path
    name: str  # of this size
    rows: int
    small_files: int = SMALL_FILES
    growth: tuple[int, ...] = GROWTH
    foreign_files: int = FOREIGN_FILES

    @cached_property
    def whole(self) -> Lines:
        """All rows of lineitem."""
        return Lines(self.folder / self.name / "whole", self.rows)

    @cached_property
    def third(self) -> Lines:
        """The first third of them, for jobs that would take too long otherwise."""
        return Lines(self.folder / self.name / "third", self.rows // 3)

    @property
    def few_rows(self) -> int:
        """The number of wide rows, and of nested rows."""
        return self.rows // 10

    def parquet(self, kind: str) -> str:
        """Return the path of wide or nested rows."""
        return str(self.folder / self.name / kind)

    @property
    def foreign_folder(self) -> Path:
        """The folder of small files of another engine, in folders of partitions."""
        return self.folder / self.name / "foreign"

    def table_of(self, files: int) -> Path:
        """Return the folder of a table with this number of files; only its metadata exists."""
        return self.folder / f"files-{files}"

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def handover(self) -> Path:
        """The file in which Névé names its table for engines that only read."""
        return self.lake / f"{self.name}.json"


def sizes(folder: Path, scale: float) -> tuple[Inputs, Inputs]:
    """Return the inputs for the warm-up and those for the measurement."""
    small = Inputs(folder, "warm", 42_000, small_files=8, growth=(100,), foreign_files=50)
    return small, Inputs(folder, "full", int(scale * ROWS_PER_SCALE))
