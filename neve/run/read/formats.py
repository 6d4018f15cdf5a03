"""Avro data files, some blocks at a time.

The decoder takes whole files, so each run of blocks is handed to it behind the header of its file: a smaller file with
the same schema. That bounds the memory by the run, not by the file.

ORC data files, one stripe after the other.

ORC has no type for times of day: they are longs with the attribute `iceberg.long-type`, and count microseconds. Field
ids are the type attribute `iceberg.id`, which pyarrow shows as field metadata. Whole top-level columns are read.
pyarrow holds ORC timestamps in nanoseconds, so those before 1677 or after 2262 are refused.

The three formats data and delete files come in, behind one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import orc
from pyiceberg.io import FileIO

from neve.errors import CorruptFile, LimitExceeded, UnsupportedFeature
from neve.io.avro import DEFAULT, Projection, decode
from neve.io.avro.container import open_header
from neve.io.untrusted import opened, reading, untrusted
from neve.run.read.array_builders import Rows, Stretch
from neve.run.read.field_ids import FileField, fields_of, top_level
from neve.run.read.parquet import open_parquet

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


@dataclass(frozen=True)
class OrcData:
    """An open ORC file."""

    path: str
    file: orc.ORCFile
    stream: Any
    prunes_nested: bool = False

    @property
    def fields(self) -> tuple[FileField, ...]:
        """The columns of the file."""
        with reading(self.path, "an ORC schema"):
            return fields_of(pa.schema(map(_timed, self.file.schema)), self.path)

    @property
    def record_count(self) -> int:
        """The rows the footer counts."""
        return int(self.file.nrows)

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[Stretch]:
        """The top-level columns that hold the leaves asked for; the file is never divided."""
        wanted = top_level(self.fields, leaves) or [0]  # without any column a stripe would not tell its rows
        start = 0
        for stripe in range(self.file.nstripes if part[0] == 0 else 0):
            with _reading(self.path):
                whole = self.file.read_stripe(stripe, columns=wanted)
            columns = zip(whole.schema, whole.columns, strict=True)
            yield Rows(start, whole.num_rows), [column.cast(_timed(f).type) for f, column in columns]
            start += whole.num_rows

    def close(self) -> None:
        """Release the file."""
        self.stream.close()


def open_orc(io: FileIO, path: str, size: int | None) -> OrcData:
    """Open an ORC file and read its footer."""
    stream, _ = opened(io, path, size)
    try:
        with reading(path, "an ORC file"):
            return OrcData(path, orc.ORCFile(stream), stream)
    except BaseException:
        stream.close()
        raise


def _timed(field: pa.Field) -> pa.Field:
    """A field with the types that its attributes mean."""
    kind = field.type
    if (field.metadata or {}).get(b"iceberg.long-type") == b"TIME" and pa.types.is_int64(kind):
        return field.with_type(pa.time64("us"))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_timed(f) for f in kind]))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_timed(kind.key_field), _timed(kind.item_field)))
    return field.with_type(pa.list_(_timed(kind.value_field))) if pa.types.is_list(kind) else field


@contextmanager
def _reading(path: str) -> Iterator[None]:
    with reading(path, "readable ORC stripes"):
        try:
            yield
        except pa.ArrowInvalid as error:
            if "out of range for nanosecond" not in str(error):
                raise
            raise UnsupportedFeature(
                f"Cannot read {path}: ORC timestamps before 1677 or after 2262 are not supported. "
                "Rewrite the file as Parquet with another engine."
            ) from error


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
