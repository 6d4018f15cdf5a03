"""Avro data files, some blocks at a time.

The decoder takes whole files, so each run of blocks is handed to it behind the header of its file: a smaller file with
the same schema. That bounds the memory by the run, not by the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.io import FileIO

from neve.errors import CorruptFile, LimitExceeded
from neve.io.avro import DEFAULT, Projection, decode
from neve.io.avro.container import open_header
from neve.io.untrusted import opened, reading
from neve.run.arrow.build import Rows, Stretch
from neve.run.arrow.ids import FileField, fields_of, top_level

__all__ = ["AvroData", "open_avro"]

RUN_BYTES = 8 << 20  # stored bytes decoded together
_FIRST_READ = 64 << 10  # holds the header of most files
_SYNC = 16
_TWO_NUMBERS = 20  # the most bytes the count and the length of a block take


@dataclass(frozen=True)
class AvroData:
    """An open Avro file."""

    path: str
    stream: Any
    size: int
    head: bytes  # magic, metadata and sync marker
    prunes_nested: bool = False
    record_count: int | None = None  # only reading it all would tell

    @property
    def fields(self) -> tuple[FileField, ...]:
        """The columns of the file."""
        return fields_of(decode(self.head, self.path)[0].schema, self.path)

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[Stretch]:
        """The top-level columns that hold the leaves asked for; the file is never divided."""
        fields = self.fields
        wanted = frozenset(fields[i].name for i in top_level(fields, leaves) or [0])
        start = 0
        for blocks in self._runs() if part[0] == 0 else ():
            whole, _ = decode(self.head + blocks, self.path, Projection(wanted))
            yield Rows(start, whole.num_rows), whole.columns
            start += whole.num_rows

    def _runs(self) -> Iterator[bytes]:
        """The bytes of consecutive blocks, as many as fit a run, and at least one."""
        at = len(self.head)
        while at < self.size:
            data = self._bytes(at, at + RUN_BYTES)
            end = self._block_end(data, 0, at)
            if end > len(data):
                data = self._bytes(at, at + end)
            while end < len(data) and (next_end := self._block_end(data, end, at)) <= len(data):
                end = next_end
            yield data[:end]
            at += end

    def _block_end(self, data: bytes, start: int, offset: int) -> int:
        """Where the block that starts in `data` ends, which may be behind it; `offset` is the place of `data`."""
        if len(data) - start < _TWO_NUMBERS and offset + len(data) < self.size:
            return len(data) + 1
        _, used = _varint(data, start, self.path)
        length, used = _varint(data, used, self.path)
        end = used + length + _SYNC
        if length < 0 or offset + end > self.size:
            raise CorruptFile(self.path, f"an Avro block within {self.size} bytes", f"one of {length} bytes")
        if length > DEFAULT.max_inflated_bytes:
            raise LimitExceeded(f"an Avro block of {self.path}", DEFAULT.max_inflated_bytes, "Rewrite it as Parquet.")
        return end

    def _bytes(self, start: int, end: int) -> bytes:
        return _read(self.stream, self.path, start, min(end, self.size))

    def close(self) -> None:
        """Release the file."""
        self.stream.close()


def open_avro(io: FileIO, path: str, size: int | None) -> AvroData:
    """Open an Avro file and read its header."""
    stream, length = opened(io, path, size)
    try:
        return AvroData(path, stream, length, _head(stream, path, length))
    except BaseException:
        stream.close()
        raise


def _head(stream: Any, path: str, size: int) -> bytes:
    """The bytes up to the first block; a schema may be long, so a header that seems cut is looked at again in full."""
    data = _read(stream, path, 0, min(_FIRST_READ, size))
    try:
        return data[: open_header(data, path, DEFAULT)[1]]
    except CorruptFile:
        if size <= len(data):
            raise
    data = _read(stream, path, 0, min(DEFAULT.max_header_bytes + _SYNC, size))
    return data[: open_header(data, path, DEFAULT)[1]]


def _read(stream: Any, path: str, start: int, end: int) -> bytes:
    with reading(path, "a readable file"):
        stream.seek(start)
        data = bytes(stream.read(end - start))
    if len(data) != end - start:
        raise CorruptFile(path, f"{end - start} bytes from byte {start} on", f"{len(data)}")
    return data


def _varint(data: bytes, at: int, path: str) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
    raise CorruptFile(path, "the count and the length of an Avro block", "no number")
