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
from neve.io.avro import DEFAULT_LIMITS, Projection, decode
from neve.io.avro.container import read_header_and_end
from neve.io.untrusted import open_checked_file, translate_decoder_errors, translate_parse_errors
from neve.run.read.array_builders import ColumnBatch, RowRange
from neve.run.read.field_ids import FileField, file_fields, top_level_ordinals
from neve.run.read.parquet import open_parquet

RUN_BYTES = 8 << 20  # stored bytes decoded together
_FIRST_READ_BYTES = 64 << 10  # holds the header of most files
_SYNC_BYTES = 16
_MAX_BLOCK_PREFIX_BYTES = 20  # the most bytes the count and the length of a block take


@dataclass(frozen=True)
class AvroData:
    """An open Avro file."""

    path: str
    stream: Any
    size: int
    header: bytes  # magic, metadata and sync marker
    prunes_nested: bool = False
    record_count: int | None = None  # only reading it all would tell

    @property
    def fields(self) -> tuple[FileField, ...]:
        """The columns of the file."""
        return file_fields(decode(self.header, self.path)[0].schema, self.path)

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[ColumnBatch]:
        """The top-level columns that hold the leaves asked for; the file is never divided."""
        fields = self.fields
        wanted = frozenset(fields[i].name for i in top_level_ordinals(fields, leaves) or [0])
        start = 0
        for blocks in self._block_runs() if part[0] == 0 else ():
            whole, _ = decode(self.header + blocks, self.path, Projection(wanted))
            yield RowRange(start, whole.num_rows), whole.columns
            start += whole.num_rows

    def _block_runs(self) -> Iterator[bytes]:
        """The bytes of consecutive blocks, as many as fit a run, and at least one."""
        at = len(self.header)
        while at < self.size:
            data = self._read_bytes(at, at + RUN_BYTES)
            end = self._block_end(data, 0, at)
            if end > len(data):
                data = self._read_bytes(at, at + end)
            while end < len(data) and (next_end := self._block_end(data, end, at)) <= len(data):
                end = next_end
            yield data[:end]
            at += end

    def _block_end(self, data: bytes, start: int, offset: int) -> int:
        """Where the block that starts in `data` ends, which may be behind it; `offset` is the place of `data`."""
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
    """The bytes up to the first block; a schema may be long, so a header that seems cut is looked at again in full."""
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


def _decode_varint(data: bytes, at: int, path: str) -> tuple[int, int]:
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
        with translate_decoder_errors(self.path, "an ORC schema"):
            return file_fields(pa.schema(map(_with_time_types, self.file.schema)), self.path)

    @property
    def record_count(self) -> int:
        """The rows the footer counts."""
        return int(self.file.nrows)

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[ColumnBatch]:
        """The top-level columns that hold the leaves asked for; the file is never divided."""
        wanted = top_level_ordinals(self.fields, leaves) or [0]  # without any column a stripe would not tell its rows
        start = 0
        for stripe in range(self.file.nstripes if part[0] == 0 else 0):
            with _translate_stripe_errors(self.path):
                whole = self.file.read_stripe(stripe, columns=wanted)
            columns = zip(whole.schema, whole.columns, strict=True)
            yield RowRange(start, whole.num_rows), [column.cast(_with_time_types(f).type) for f, column in columns]
            start += whole.num_rows

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
    """A field with the types that its attributes mean."""
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
        """Whether single leaves of a nested column can be left out."""

    @property
    def fields(self) -> tuple[FileField, ...]:
        """The columns of the file."""

    @property
    def record_count(self) -> int | None:
        """The rows the file says it has, where it says so."""

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[ColumnBatch]:
        """The columns that hold the leaves asked for, in file order."""

    def close(self) -> None:
        """Release the file."""


_OPENERS: dict[str, Callable[[FileIO, str, int | None], DataFile]] = {
    "PARQUET": open_parquet,
    "ORC": open_orc,
    "AVRO": open_avro,
}


@contextmanager
def open_file(io: FileIO, path: str, file_format: str, size: int | None, count: int | None) -> Iterator[DataFile]:
    """An open file; its size and its row count must be those the metadata gives.

    What its contents make the caller's code raise becomes an error that names the file.
    """
    opener = _OPENERS.get(file_format.upper())
    if opener is None:
        raise UnsupportedFeature(f"Cannot read {path}: files of format {file_format} hold no rows that can be read.")
    with translate_parse_errors(path, f"rows in {file_format.upper()}"):
        data = opener(io, path, size)
        try:
            if count is not None and data.record_count not in (count, None):
                raise CorruptFile(path, f"{count} rows, as the metadata says", f"{data.record_count}")
            yield data
        finally:
            data.close()
