"""Decode the column statistics and the encodings in the footer of an untrusted Parquet file.

Arrow's column chunk metadata ends the process if the footer contradicts itself: its C++ exception cannot reach Python.
So untrusted footers are decoded here (`neve.io.thrift`).
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from neve.errors import CorruptFile, LimitExceeded, UnsupportedFeature
from neve.io.thrift import SPAN, DamagedThrift, decode_struct

MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_FIRST_READ_BYTES = 64 << 10  # read from the end of a file first; contains most footers
_TAIL = struct.Struct("<I4s")
_LIMIT = 64 << 20

# Parquet's fields by number
_ROW_GROUPS, COLUMN_ORDERS, _CHUNKS, _CHUNK_METADATA, _TYPE, _PATH, _NUM_VALUES, _STATISTICS = 4, 7, 1, 3, 1, 3, 5, 12
_PAGE_ENCODINGS, _PAGE_KIND, _PAGE_ENCODING = 13, 1, 2
_SCHEMA, _FILE_ROWS, _NOTES, _NOTE_NAME, _NOTE_VALUE, _GROUP_ROWS = 2, 3, 5, 1, 2, 3
_CHUNK_BYTES, _DATA_START, _DICTIONARY_START, _BLOOM_FILTER_START = 7, 9, 11, 14
_ARROW_SCHEMA = b"ARROW:schema"  # the note from which Arrow restores types that Parquet does not have
_OLD_MAX, _OLD_MIN, _NULL_COUNT, _MAX, _MIN, _MAX_IS_EXACT, _MIN_IS_EXACT = 1, 2, 3, 5, 6, 7, 8

_FIXED_WIDTH = {0: "<?", 1: "<i", 2: "<q", 4: "<f", 5: "<d"}  # by physical type: boolean, int32, int64, float, double
INT32, INT64, BYTE_ARRAY, FIXED_LENGTH_BYTE_ARRAY = 1, 2, 6, 7  # other physical types
_BYTE_ARRAYS = (BYTE_ARRAY, FIXED_LENGTH_BYTE_ARRAY)
_DATA_PAGES = (0, 3)  # old and new
_DICTIONARY_ENCODINGS = (2, 8)  # old and new

PhysicalValue = bool | int | float | bytes


@dataclass(frozen=True, slots=True)
class ChunkStatistics:
    """Statistics of one column in one row group; None if the footer does not contain them.

    Bounds of long values may be truncated. They are still bounds, but need not occur in the column.
    """

    lower: PhysicalValue | None = None
    upper: PhysicalValue | None = None
    nulls: int | None = None
    values: int | None = None  # nulls included
    is_lower_exact: bool = True
    is_upper_exact: bool = True
    stored_bytes: int | None = None  # of the chunk, compressed; None for a page
    start: int | None = None  # of the first page of the chunk in the file; None for a page
    bloom_filter_start: int | None = None
    physical_type: int | None = None

    @property
    def minimum(self) -> PhysicalValue | None:
        """The least value, if the footer has it in full."""
        return self.lower if self.is_lower_exact else None

    @property
    def maximum(self) -> PhysicalValue | None:
        """The greatest value, if the footer has it in full."""
        return self.upper if self.is_upper_exact else None


@dataclass(frozen=True)
class Footer:
    """The footer of a file, decoded when it is needed."""

    raw: bytes
    path: str

    @cached_property
    def fields(self) -> dict[int, Any]:
        """The fields by number. Raises CorruptFile."""
        try:
            return decode_struct(self.raw)
        except DamagedThrift as e:
            raise CorruptFile(self.path, f"{len(self.raw)} bytes of a Parquet footer", str(e)) from None


def read_footer(stream: Any, size: int, path: str) -> Footer:
    """Read the footer of an open file of `size` bytes, without the length and the magic after it."""
    start = max(0, size - _FIRST_READ_BYTES)
    end = read_at(stream, start, size - start, path)
    if len(end) < _TAIL.size:
        raise CorruptFile(path, f"{_TAIL.size} bytes of a Parquet footer", f"{len(end)}")
    length, magic = _TAIL.unpack(end[-_TAIL.size :])
    if magic == _ENCRYPTED:
        raise UnsupportedFeature(f"Cannot read {path}: its footer is encrypted, and encryption is not supported.")
    if magic != MAGIC or length + _TAIL.size > size:
        raise CorruptFile(path, f"a Parquet footer within {size} bytes", f"a length of {length} before {magic!r}")
    if length > _LIMIT:
        raise LimitExceeded(f"the footer of {path}", _LIMIT, "Rewrite the file with fewer row groups.")
    missing = length + _TAIL.size - len(end)
    if missing > 0:
        end = read_at(stream, start - missing, missing, path) + end
    return Footer(end[-_TAIL.size - length : -_TAIL.size], path)


def parse_statistics(footer: Footer) -> list[list[ChunkStatistics]]:
    """Parse a footer; return the statistics of each column of each row group."""
    is_ordered = COLUMN_ORDERS in footer.fields  # without column orders, the newer pair of bounds has no meaning
    groups = _struct_list(footer.fields, _ROW_GROUPS)
    return [[_chunk_statistics(chunk, is_ordered) for chunk in _struct_list(group, _CHUNKS)] for group in groups]


def _chunk_statistics(chunk: dict[int, Any], is_ordered: bool) -> ChunkStatistics:
    metadata = _struct_field(chunk, _CHUNK_METADATA)
    statistics, kind = _struct_field(metadata, _STATISTICS), metadata.get(_TYPE)
    low, high = (statistics.get(_MIN), statistics.get(_MAX)) if is_ordered else (None, None)
    if low is None and high is None and kind not in _BYTE_ARRAYS:  # the old pair has no defined order for bytes
        low, high = statistics.get(_OLD_MIN), statistics.get(_OLD_MAX)
    return ChunkStatistics(
        decode_bound(low, kind),
        decode_bound(high, kind),
        _count_or_none(statistics.get(_NULL_COUNT)),
        _count_or_none(metadata.get(_NUM_VALUES)),
        statistics.get(_MIN_IS_EXACT, True) is True,
        statistics.get(_MAX_IS_EXACT, True) is True,
        _count_or_none(metadata.get(_CHUNK_BYTES)),
        # Some writers say 0 for a dictionary that does not exist.
        _count_or_none(metadata.get(_DICTIONARY_START)) or _count_or_none(metadata.get(_DATA_START)),
        _count_or_none(metadata.get(_BLOOM_FILTER_START)),
        kind if isinstance(kind, int) else None,
    )


def row_counts(footer: Footer) -> list[int]:
    """Return the number of rows of each row group; raise CorruptFile unless they add up to those of the file."""
    counts = [_count_or_none(group.get(_GROUP_ROWS)) for group in _struct_list(footer.fields, _ROW_GROUPS)]
    valid = [count for count in counts if count is not None]
    total = footer.fields.get(_FILE_ROWS)
    if len(valid) < len(counts) or sum(valid) != total:
        raise CorruptFile(footer.path, "row groups that add up to the rows of the file", f"{counts} of {total}")
    return valid


def schema_bytes(footer: Footer) -> bytes:
    """Return the bytes that decide the columns of a file: equal bytes mean equal columns."""
    elements = _struct_list(footer.fields, _SCHEMA)
    if not elements:
        raise CorruptFile(footer.path, "a schema in a Parquet footer", "none")
    notes = {note.get(_NOTE_NAME): note.get(_NOTE_VALUE) for note in _struct_list(footer.fields, _NOTES)}
    return footer.raw[elements[0][SPAN][0] : elements[-1][SPAN][1]] + bytes(notes.get(_ARROW_SCHEMA) or b"")


def dictionary_columns(footer: Footer) -> set[str]:
    """Return the top-level columns of byte arrays whose pages all refer to a dictionary, in every row group."""
    groups = [_struct_list(group, _CHUNKS) for group in _struct_list(footer.fields, _ROW_GROUPS)]
    named = [{_dictionary_column(_struct_field(chunk, _CHUNK_METADATA)) for chunk in group} for group in groups]
    return {name for name in named[0].intersection(*named) if name} if named else set()


def _dictionary_column(metadata: dict[int, Any]) -> str:
    """Return the name of a column if it is one of these in its chunk, otherwise nothing."""
    pages = [page for page in _struct_list(metadata, _PAGE_ENCODINGS) if page.get(_PAGE_KIND) in _DATA_PAGES]
    refers = [page.get(_PAGE_ENCODING) in _DICTIONARY_ENCODINGS for page in pages]
    path = metadata.get(_PATH)
    is_name = isinstance(path, list) and len(path) == 1 and isinstance(path[0], bytes) and b"." not in path[0]
    is_dictionary = metadata.get(_TYPE) == BYTE_ARRAY and refers and all(refers)
    return str(path[0], errors="replace") if is_dictionary and path and is_name else ""


def _count_or_none(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def decode_bound(raw: Any, kind: Any) -> PhysicalValue | None:
    """Decode a bound of a column of a physical type; None if it does not fit the type."""
    if not isinstance(raw, bytes):
        return None
    if kind in _BYTE_ARRAYS:
        return raw
    layout = _FIXED_WIDTH.get(kind)
    if layout is None or struct.calcsize(layout) != len(raw):
        return None
    value: PhysicalValue = struct.unpack(layout, raw)[0]
    return value


def _struct_list(fields: dict[int, Any], number: int) -> list[dict[int, Any]]:
    values = fields.get(number)
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []


def _struct_field(fields: dict[int, Any], number: int) -> dict[int, Any]:
    value = fields.get(number)
    return value if isinstance(value, dict) else {}


def read_at(stream: Any, at: int, length: int, path: str) -> bytes:
    """Read bytes of an open file; raise CorruptFile if they are not there."""
    if at < 0:
        raise CorruptFile(path, f"{length} bytes of a Parquet footer", "a shorter file")
    stream.seek(at, os.SEEK_SET)
    data = bytes(stream.read(length))
    if len(data) != length:
        raise CorruptFile(path, f"{length} bytes of a Parquet footer", f"{len(data)}")
    return data
