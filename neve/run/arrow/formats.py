"""The three formats data and delete files come in, behind one shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from pyiceberg.io import FileIO

from neve.errors import CorruptFile, UnsupportedFeature
from neve.io.untrusted import untrusted
from neve.run.arrow.avro import open_avro
from neve.run.arrow.build import Stretch
from neve.run.arrow.ids import FileField
from neve.run.arrow.orc import open_orc
from neve.run.arrow.parquet import open_parquet

__all__ = ["DataFile", "open_file"]


class DataFile(Protocol):
    """An open file of rows."""

    @property
    def prunes_nested(self) -> bool:
        """Whether single leaves of a nested column can be left out."""

    @property
    def fields(self) -> tuple[FileField, ...]:
        """The columns of the file."""

    @property
    def record_count(self) -> int | None:
        """The rows the file says it has, where it says so."""

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[Stretch]:
        """The columns that hold the leaves asked for, in file order."""

    def close(self) -> None:
        """Release the file."""


_OPEN: dict[str, Callable[[FileIO, str, int | None], DataFile]] = {
    "PARQUET": open_parquet,
    "ORC": open_orc,
    "AVRO": open_avro,
}


@contextmanager
def open_file(io: FileIO, path: str, file_format: str, size: int | None, count: int | None) -> Iterator[DataFile]:
    """An open file; its size and its row count must be those the metadata gives.

    What its contents make the caller's code raise becomes an error that names the file.
    """
    opener = _OPEN.get(file_format.upper())
    if opener is None:
        raise UnsupportedFeature(f"Cannot read {path}: files of format {file_format} hold no rows that can be read.")
    with untrusted(path, f"rows in {file_format.upper()}"):
        data = opener(io, path, size)
        try:
            if count is not None and data.record_count not in (count, None):
                raise CorruptFile(path, f"{count} rows, as the metadata says", f"{data.record_count}")
            yield data
        finally:
            data.close()
