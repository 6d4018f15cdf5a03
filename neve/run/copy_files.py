"""Copy files through the table's file access: in threads of this process, or in the tasks of a Spark job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO

from neve.io.files import copy_file, delete_files
from neve.io.parallel import map_in_threads, reader_count

COPIES_SCHEMA = pa.schema([("source", pa.string()), ("target", pa.string()), ("replaces", pa.bool_())])
COPIED_DDL = "target string, size bigint"


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A file to copy, and where to."""

    source: str
    target: str
    replaces: bool = False  # an unfinished copy at the target is deleted first

    def run(self, io: FileIO) -> int:
        """Copy the file, and return its size."""
        if self.replaces:
            delete_files(io, [self.target])
        return copy_file(io, self.source, self.target)


def copy_in_threads(io: FileIO, copies: Sequence[FileCopy], add_written: Callable[[str], None]) -> int:
    """Copy files in this process, and return the number of bytes; each copy is reported when it is complete."""

    def copy(each: FileCopy) -> int:
        size = each.run(io)
        add_written(each.target)
        return size

    return sum(map_in_threads(copy, copies, reader_count(io, [each.source for each in copies])))


def copying_task(open_io: Callable[[], FileIO]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a Spark task that copies the files in its rows.

    A task that runs a second time replaces what the first attempt has copied.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        io = open_io()
        for batch in batches:
            rows: list[dict[str, Any]] = batch.to_pylist()
            sizes = [FileCopy(row["source"], row["target"], replaces=True).run(io) for row in rows]
            yield pa.RecordBatch.from_arrays([batch.column("target"), pa.array(sizes, pa.int64())], ["target", "size"])

    return run
