"""Open data and delete files of the three formats behind one interface, `DataFile`.

Parquet has its own module. Avro and ORC files are read as whole top-level columns.

Avro files are read a few blocks at a time. The decoder takes whole files, so each run of blocks is passed to it with
the file's header in front, as a smaller file with the same schema. Memory is bounded by the run, not by the file.

ORC files are read stripe by stripe. ORC has no type for times of day: they are longs with the attribute
`iceberg.long-type` that count microseconds. Field ids are the type attribute `iceberg.id`, which pyarrow shows as field
metadata. pyarrow holds ORC timestamps in nanoseconds, so timestamps before 1677 or after 2262 are rejected.
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
from neve.io.avro import DEFAULT_LIMITS, Projection, decode
from neve.io.avro.container import read_header_and_end
from neve.io.untrusted import open_checked_file, translate_decoder_errors, translate_parse_errors
from neve.run.read.array_builders import ColumnBatch, FileRows
from neve.run.read.field_ids import FileField, file_fields, top_level_ordinals
from neve.run.read.parquet import open_parquet

RUN_BYTES = 8 << 20  # stored bytes decoded together
_FIRST_READ_BYTES = 64 << 10  # holds the header of most files
_SYNC_BYTES = 16
_MAX_BLOCK_PREFIX_BYTES = 20  # the most bytes that the count and the length of a block can take


@dataclass(frozen=True)
class AvroData:
    """An open Avro file."""

    path: str
    stream: Any
    size: int
    header: bytes  # magic, metadata and sync marker
    prunes_nested: bool = False
    record_count: int | None = None  # unknown: Avro files do not store it

    @property
    def fields(self) -> tuple[FileField, ...]:
        """The columns of the file."""
        return file_fields(decode(self.header, self.path)[0].schema, self.path)

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[ColumnBatch]:
        """Yield the top-level columns that hold the requested leaves; the file is never divided."""
        fields = self.fields
        names = frozenset(fields[i].name for i in top_level_ordinals(fields, leaves) or [0])
        start = 0
        for blocks in self._block_runs() if part[0] == 0 else ():
            table, _ = decode(self.header + blocks, self.path, Projection(names))
            yield FileRows(start, table.num_rows), table.columns
            start += table.num_rows

    def stored_row_count(self) -> int:
        """Add up the row counts of the blocks, whose contents are not read."""
        offset, rows = len(self.header), 0
        while offset < self.size:
            prefix = self._read_bytes(offset, offset + _MAX_BLOCK_PREFIX_BYTES)
            count, _ = _decode_varint(prefix, 0, self.path)
            if not 0 <= count < 1 << 43:
                raise CorruptFile(self.path, "the row count of an Avro block", f"{count}")
            offset, rows = offset + self._block_end(prefix, 0, offset), rows + count
        return rows

    def _block_runs(self) -> Iterator[bytes]:
        """Yield the bytes of consecutive blocks: as many as fit a run, and at least one."""
        offset = len(self.header)
        while offset < self.size:
            data = self._read_bytes(offset, offset + RUN_BYTES)
            end = self._block_end(data, 0, offset)
            if end > len(data):
                data = self._read_bytes(offset, offset + end)
            while end < len(data) and (next_end := self._block_end(data, end, offset)) <= len(data):
                end = next_end
            yield data[:end]
            offset += end

    def _block_end(self, data: bytes, start: int, offset: int) -> int:
        """Return the end of the block at `start`, which may be after `data`; `offset` is the file offset of `data`."""
        if len(data) - start < _MAX_BLOCK_PREFIX_BYTES and offset + len(data) < self.size:
            return len(data) + 1
        _, used = _decode_varint(data, start, self.path)
        length, used = _decode_varint(data, used, self.path)
        end = used + length + _SYNC_BYTES
        if length < 0 or offset + end > self.size:
            raise CorruptFile(self.path, f"an Avro block within {self.size} bytes", f"one of {length} bytes")
        if length > DEFAULT_LIMITS.max_inflated_bytes:
            raise LimitExceeded(
                f"an Avro block of {self.path}", DEFAULT_LIMITS.max_inflated_bytes, "Rewrite it as Parquet."
            )
        return end

    def _read_bytes(self, start: int, end: int) -> bytes:
        return _read_range(self.stream, self.path, start, min(end, self.size))

    def close(self) -> None:
        """Release the file."""
        self.stream.close()


def open_avro(io: FileIO, path: str, size: int | None) -> AvroData:
    """Open an Avro file and read its header."""
    stream, length = open_checked_file(io, path, size)
    try:
        return AvroData(path, stream, length, _read_header(stream, path, length))
    except BaseException:
        stream.close()
        raise


def _read_header(stream: Any, path: str, size: int) -> bytes:
    """Return the bytes up to the first block; if the first read cuts off a long schema, read the largest header."""
    data = _read_range(stream, path, 0, min(_FIRST_READ_BYTES, size))
    try:
        return data[: read_header_and_end(data, path, DEFAULT_LIMITS)[1]]
    except CorruptFile:
        if size <= len(data):
            raise
    data = _read_range(stream, path, 0, min(DEFAULT_LIMITS.max_header_bytes + _SYNC_BYTES, size))
    return data[: read_header_and_end(data, path, DEFAULT_LIMITS)[1]]


def _read_range(stream: Any, path: str, start: int, end: int) -> bytes:
    with translate_decoder_errors(path, "a readable file"):
        stream.seek(start)
        data = bytes(stream.read(end - start))
    if len(data) != end - start:
        raise CorruptFile(path, f"{end - start} bytes from byte {start} on", f"{len(data)}")
    return data


def _decode_varint(data: bytes, start: int, path: str) -> tuple[int, int]:
    """Return a zigzag-encoded number and the offset after it."""
    value = 0
    for index, byte in enumerate(data[start : start + 10]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return (value >> 1) ^ -(value & 1), start + index + 1
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
        with translate_decoder_errors(self.path, "an ORC schema"):
            return file_fields(pa.schema(map(_with_time_types, self.file.schema)), self.path)

    @property
    def record_count(self) -> int:
        """The number of rows according to the footer."""
        return int(self.file.nrows)

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[ColumnBatch]:
        """Yield the top-level columns that hold the requested leaves; the file is never divided."""
        ordinals = top_level_ordinals(self.fields, leaves) or [0]  # without any column a stripe has no row count
        start = 0
        for stripe in range(self.file.nstripes if part[0] == 0 else 0):
            with _translate_stripe_errors(self.path):
                batch = self.file.read_stripe(stripe, columns=ordinals)
            columns = zip(batch.schema, batch.columns, strict=True)
            yield FileRows(start, batch.num_rows), [column.cast(_with_time_types(f).type) for f, column in columns]
            start += batch.num_rows

    def close(self) -> None:
        """Release the file."""
        self.stream.close()


def open_orc(io: FileIO, path: str, size: int | None) -> OrcData:
    """Open an ORC file and read its footer."""
    stream, _ = open_checked_file(io, path, size)
    try:
        with translate_decoder_errors(path, "an ORC file"):
            return OrcData(path, orc.ORCFile(stream), stream)
    except BaseException:
        stream.close()
        raise


def _with_time_types(field: pa.Field) -> pa.Field:
    """Return a field with longs that hold times of day as time64, at any depth."""
    kind = field.type
    if (field.metadata or {}).get(b"iceberg.long-type") == b"TIME" and pa.types.is_int64(kind):
        return field.with_type(pa.time64("us"))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_with_time_types(f) for f in kind]))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_with_time_types(kind.key_field), _with_time_types(kind.item_field)))
    return field.with_type(pa.list_(_with_time_types(kind.value_field))) if pa.types.is_list(kind) else field


@contextmanager
def _translate_stripe_errors(path: str) -> Iterator[None]:
    with translate_decoder_errors(path, "readable ORC stripes"):
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
        """True if the reader can skip single leaves of a nested column."""

    @property
    def fields(self) -> tuple[FileField, ...]:
        """The columns of the file."""

    @property
    def record_count(self) -> int | None:
        """The number of rows according to the file, if the file stores it."""

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[ColumnBatch]:
        """Yield the columns that hold the requested leaves, in file order."""

    def close(self) -> None:
        """Release the file."""


_OPENERS: dict[str, Callable[[FileIO, str, int | None], DataFile]] = {
    "PARQUET": open_parquet,
    "ORC": open_orc,
    "AVRO": open_avro,
}


@contextmanager
def open_file(io: FileIO, path: str, file_format: str, size: int | None, count: int | None) -> Iterator[DataFile]:
    """Open a file; its size and its row count must match the metadata.

    Errors that the contents of the file cause in the caller's block become errors that name the file.
    """
    opener = _OPENERS.get(file_format.upper())
    if opener is None:
        raise UnsupportedFeature(f"Cannot read {path}: files of format {file_format} are not supported.")
    with translate_parse_errors(path, f"rows in {file_format.upper()}"):
        data = opener(io, path, size)
        try:
            if count is not None and data.record_count not in (count, None):
                raise CorruptFile(path, f"{count} rows, as the metadata says", f"{data.record_count}")
            yield data
        finally:
            data.close()
