"""Read single pages of a Parquet file, which Arrow does not do: a few rows of a row group cost a few pages.

The offset index of a column chunk tells which rows each of its pages holds. The wanted pages, after the dictionary of
the chunk, are put before a footer of their own: a small Parquet file, which Arrow decodes like any other.

The column index has bounds of each page, which rule out pages as those of the footer rule out row groups.

Only columns with one value per row are read like this. If an index is missing, or does not fit the pages, there is
nothing to choose from, and the caller reads the whole row group.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from neve.errors import CorruptFile
from neve.io.parquet_footer import COLUMN_ORDERS, MAGIC, ChunkStatistics, Footer, decode_bound, read_at
from neve.io.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    SPAN,
    STRUCT,
    DamagedThrift,
    decode_struct,
    encode_bytes,
    encode_integer,
    encode_list,
    encode_struct,
)
from neve.io.untrusted import translate_decoder_errors
from neve.model.values import combine_chunks

# Parquet's fields by number
_SCHEMA, _ROW_GROUPS, _CHUNKS, _CHUNK_METADATA, _INDEX_OFFSET, _INDEX_LENGTH, _CRYPTO = 2, 4, 1, 3, 4, 5, 8
_BOUNDS_OFFSET, _BOUNDS_LENGTH, _NULL_PAGES, _LOWER_BOUNDS, _UPPER_BOUNDS, _NULL_COUNTS = 6, 7, 1, 2, 3, 5
_TRUE_ELEMENT = 1  # a true value in a list
_REPETITION, _CHILDREN, _REPEATED = 3, 5, 2
_TYPE, _ENCODINGS, _PATH, _CODEC = 1, 2, 3, 4
_CHUNK_VALUES, _COMPRESSED_SIZE, _DATA_OFFSET, _DICTIONARY_OFFSET = 5, 7, 9, 11
_LOCATIONS, _PAGE_OFFSET, _PAGE_SIZE, _FIRST_ROW = 1, 1, 2, 3
_DATA_PAGE_HEADERS = (5, 8)  # old and new
_VALUES_IN_PAGE = 1

ARROW_OPTIONS: dict[str, Any] = {  # of Arrow's reader
    "page_checksum_verification": True,
    "coerce_int96_timestamp_unit": "us",
    "arrow_extensions_enabled": False,
}
_MAX_GAP = 1 << 20  # bytes between two pages that are read along: another request would take longer
_MAX_INDEX_BYTES = 16 << 20

Rows = NDArray[np.int64]


class _NoPages(Exception):
    """The pages of a column cannot be read one by one."""


_NO_INDEX = (DamagedThrift, _NoPages, LookupError, TypeError, ValueError, OverflowError, CorruptFile)


@dataclass(frozen=True)
class ColumnPages:
    """The pages of a column in one row group, and what is needed to decode some of them."""

    name: str
    element: bytes  # of the schema, encoded
    chunk_fields: tuple[tuple[int, int, bytes], ...]  # those that stay as they are stored
    dictionary: tuple[int, int]  # where it begins and ends; empty if there is none
    starts: Rows
    ends: Rows
    first_rows: Rows  # of each page, and the end of the last

    def pages_with(self, rows: Rows) -> Rows:
        """Return the pages that hold some rows of the row group, given in ascending order."""
        return np.flatnonzero(self.count_by_page(rows))

    def count_by_page(self, rows: Rows) -> Rows:
        """Return how many of some rows, given in ascending order, each page holds."""
        return np.diff(np.searchsorted(rows, self.first_rows))

    def row_counts(self, pages: Rows) -> Rows:
        """Return how many rows each of some pages has."""
        return np.asarray(self.first_rows[pages + 1] - self.first_rows[pages])


def find_pages(stream: Any, footer: Footer, row_group: int, leaves: Sequence[int]) -> list[ColumnPages] | None:
    """Return the pages of some columns in a row group; None if they cannot be read one by one."""
    try:
        elements = _leaf_elements(footer.raw, footer.fields[_SCHEMA])
        chunks = footer.fields[_ROW_GROUPS][row_group][_CHUNKS]
        ranges = [_index_range(chunks[leaf], _INDEX_OFFSET, _INDEX_LENGTH) for leaf in leaves]
        indexes = _read_ranges(stream, ranges, footer.path)
        return [
            _column_pages(chunks[leaf][_CHUNK_METADATA], elements[leaf], decode_struct(index))
            for leaf, index in zip(leaves, indexes, strict=True)
        ]
    except _NO_INDEX:
        return None


def page_statistics(
    stream: Any, footer: Footer, row_group: int, leaves: Sequence[int]
) -> list[tuple[Rows, list[ChunkStatistics]]] | None:
    """Return the first rows and the statistics of the pages of some columns; None if the file does not have them."""
    try:
        columns = find_pages(stream, footer, row_group, leaves)
        if columns is None or COLUMN_ORDERS not in footer.fields:  # without column orders, bounds have no meaning
            return None
        chunks = [footer.fields[_ROW_GROUPS][row_group][_CHUNKS][leaf] for leaf in leaves]
        ranges = [_index_range(chunk, _BOUNDS_OFFSET, _BOUNDS_LENGTH) for chunk in chunks]
        indexes = _read_ranges(stream, ranges, footer.path)
        return [
            (column.first_rows, _statistics_of_pages(column, chunk[_CHUNK_METADATA][_TYPE], decode_struct(index)))
            for column, chunk, index in zip(columns, chunks, indexes, strict=True)
        ]
    except _NO_INDEX:
        return None


def _statistics_of_pages(column: ColumnPages, kind: int, index: dict[int, Any]) -> list[ChunkStatistics]:
    counts = column.row_counts(np.arange(len(column.starts))).tolist()
    unknown = [None] * len(counts)
    listed = zip(
        index[_NULL_PAGES],
        index[_LOWER_BOUNDS],
        index[_UPPER_BOUNDS],
        index.get(_NULL_COUNTS, unknown),
        counts,
        strict=True,
    )
    return [
        ChunkStatistics(None, None, count, count)
        if is_null == _TRUE_ELEMENT
        else ChunkStatistics(decode_bound(low, kind), decode_bound(high, kind), nulls, count)
        for is_null, low, high, nulls, count in listed
    ]


def read_pages(
    stream: Any, path: str, columns: Sequence[ColumnPages], rows: Rows, as_dictionaries: Container[str] = ()
) -> list[pa.Array] | None:
    """Return the values of columns in some rows of the row group; None if a page does not hold what the index says.

    The rows are given in ascending order.
    Columns whose pages hold the same rows are decoded together: a file for each of them would cost more than its pages.
    """
    pages = [column.pages_with(rows) for column in columns]
    ranges: list[tuple[int, int]] = []
    alike: dict[bytes, list[int]] = defaultdict(list)
    for n, (column, chosen) in enumerate(zip(columns, pages, strict=True)):
        starts, ends = column.starts[chosen].tolist(), column.ends[chosen].tolist()
        ranges += [column.dictionary, *zip(starts, ends, strict=True)]
        alike[column.first_rows[np.append(chosen, chosen + 1)].tobytes()].append(n)
    data = iter(_read_ranges(stream, ranges, path))
    contents = [(next(data), [next(data) for _ in chosen]) for chosen in pages]
    arrays: dict[int, pa.Array] = {}
    for same in alike.values():
        column, chosen = columns[same[0]], pages[same[0]]
        counts = column.row_counts(chosen)
        if any([_count_values(page) for page in contents[n][1]] != counts.tolist() for n in same):
            return None
        parts = [(columns[n], *contents[n]) for n in same]
        table = _decode_pages(parts, as_dictionaries, int(counts.sum()), path)
        if len(rows) < table.num_rows:
            shift = column.first_rows[chosen] - np.append(0, np.cumsum(counts)[:-1])  # pages left out before each page
            table = table.take(pa.array(rows - np.repeat(shift, column.count_by_page(rows)[chosen])))
        arrays |= zip(same, map(combine_chunks, table.columns), strict=True)
    return [arrays[n] for n in range(len(columns))]


def _leaf_elements(footer: bytes, schema: Sequence[dict[int, Any]]) -> list[bytes | None]:
    """Return the encoded schema elements of all columns; None for those inside other columns."""
    elements: list[bytes | None] = []
    open_children = [schema[0][_CHILDREN]]
    for element in schema[1:]:
        children = element.get(_CHILDREN) or 0
        is_flat = len(open_children) == 1 and element.get(_REPETITION) != _REPEATED
        if not children:
            elements.append(footer[slice(*element[SPAN])] if is_flat else None)
        open_children[-1] -= 1
        open_children += [children] if children else []
        while len(open_children) > 1 and not open_children[-1]:
            open_children.pop()
    return elements


def _index_range(chunk: dict[int, Any], offset_field: int, length_field: int) -> tuple[int, int]:
    """Return where an index of a chunk begins and ends."""
    start, length = chunk[offset_field], chunk[length_field]
    if _CRYPTO in chunk or length > _MAX_INDEX_BYTES:
        raise _NoPages
    return start, start + length


def _column_pages(chunk: dict[int, Any], element: bytes | None, index: dict[int, Any]) -> ColumnPages:
    locations = [(one[_PAGE_OFFSET], one[_PAGE_SIZE], one[_FIRST_ROW]) for one in index[_LOCATIONS]]
    starts, sizes, rows = np.array(locations, np.int64).reshape(-1, 3).T
    begin = min(chunk[_DATA_OFFSET], chunk.get(_DICTIONARY_OFFSET) or chunk[_DATA_OFFSET])
    first_rows, ends = np.append(rows, chunk[_CHUNK_VALUES]), starts + sizes
    fits_chunk = (
        len(starts)
        and first_rows[0] == 0
        and (np.diff(first_rows) > 0).all()
        and (sizes > 0).all()
        and (starts[1:] >= ends[:-1]).all()
        and 0 <= begin <= starts[0]
        and ends[-1] - begin <= chunk[_COMPRESSED_SIZE]
    )
    if element is None or not fits_chunk:
        raise _NoPages
    stored = (
        (_TYPE, I32, encode_integer(chunk[_TYPE])),
        (_ENCODINGS, LIST, encode_list(I32, [encode_integer(one) for one in chunk[_ENCODINGS]])),
        (_PATH, LIST, encode_list(BINARY, [encode_bytes(name) for name in chunk[_PATH]])),
        (_CODEC, I32, encode_integer(chunk[_CODEC])),
    )
    name = chunk[_PATH][0].decode(errors="replace")
    return ColumnPages(name, element, stored, (begin, int(starts[0])), starts, ends, first_rows)


def _read_ranges(stream: Any, ranges: Sequence[tuple[int, int]], path: str) -> list[bytes]:
    """Read parts of a file, neighbours at once; return them in the given order."""
    order = sorted(range(len(ranges)), key=lambda n: ranges[n])
    parts, start, data = [b""] * len(ranges), 0, b""
    for rank, n in enumerate(order):
        begin, end = ranges[n]
        if end > start + len(data):
            run_end = end
            for other in order[rank + 1 :]:
                if ranges[other][0] - run_end > _MAX_GAP:
                    break
                run_end = max(run_end, ranges[other][1])
            start, data = begin, read_at(stream, begin, run_end - begin, path)
        parts[n] = data[begin - start : end - start]
    return parts


def _count_values(page: bytes) -> int | None:
    """Return the number of values in a data page, nulls included; None if it is not a data page."""
    try:
        header = decode_struct(page)
    except DamagedThrift:
        return None
    of_data = next((header[number] for number in _DATA_PAGE_HEADERS if number in header), None)
    return of_data.get(_VALUES_IN_PAGE) if isinstance(of_data, dict) else None


def _decode_pages(
    columns: Sequence[tuple[ColumnPages, bytes, list[bytes]]], as_dictionaries: Container[str], rows: int, path: str
) -> pa.Table:
    """Decode pages of several columns, each with its dictionary, as a file of their own."""
    content, chunks = bytearray(MAGIC), []
    for column, dictionary, pages in columns:
        chunks.append(_chunk_of(column, len(content), len(dictionary), sum(map(len, pages)), rows))
        content += b"".join([dictionary, *pages])
    footer = _footer_of([column.element for column, _, _ in columns], chunks, len(content), rows)
    file = b"".join([content, footer, struct.pack("<I", len(footer)), MAGIC])
    with translate_decoder_errors(path, "readable Parquet pages"):
        names = [column.name for column, _, _ in columns if column.name in as_dictionaries]
        table = pq.ParquetFile(pa.BufferReader(file), read_dictionary=names, **ARROW_OPTIONS).read(use_threads=False)
    if table.num_rows != rows:
        raise CorruptFile(path, f"{rows} rows in {len(columns[0][2])} pages", f"{table.num_rows}")
    return table


def _chunk_of(column: ColumnPages, start: int, dictionary_bytes: int, page_bytes: int, rows: int) -> bytes:
    """Return the metadata of a column chunk that begins at `start`."""
    size, first = encode_integer(dictionary_bytes + page_bytes), encode_integer(start)
    fields = [
        *column.chunk_fields,
        (_CHUNK_VALUES, I64, encode_integer(rows)),
        (6, I64, size),
        (_COMPRESSED_SIZE, I64, size),
    ]
    fields += [(_DATA_OFFSET, I64, encode_integer(start + dictionary_bytes))]
    fields += [(_DICTIONARY_OFFSET, I64, first)] if dictionary_bytes else []
    return encode_struct([(2, I64, first), (_CHUNK_METADATA, STRUCT, encode_struct(fields))])


def _footer_of(elements: list[bytes], chunks: list[bytes], end: int, rows: int) -> bytes:
    count, size = encode_integer(rows), encode_integer(end - len(MAGIC))
    group = encode_struct([(_CHUNKS, LIST, encode_list(STRUCT, chunks)), (2, I64, size), (3, I64, count)])
    root = encode_struct([(4, BINARY, encode_bytes(b"schema")), (_CHILDREN, I32, encode_integer(len(elements)))])
    return encode_struct(
        [
            (1, I32, encode_integer(2)),
            (_SCHEMA, LIST, encode_list(STRUCT, [root, *elements])),
            (3, I64, count),
            (_ROW_GROUPS, LIST, encode_list(STRUCT, [group])),
        ]
    )
