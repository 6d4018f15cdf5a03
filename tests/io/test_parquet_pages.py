"""Single pages hold what Arrow finds in the whole file, whoever wrote it; damage is refused or read around."""

from __future__ import annotations

import io
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.errors import CorruptFile
from neve.io.parquet_footer import read_footer
from neve.io.parquet_pages import ColumnPages, find_pages, read_pages

ROWS = 5000
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": False},
    "dictionaries": {"use_dictionary": True},
    "a dictionary that is full": {"use_dictionary": True, "dictionary_pagesize_limit": 300},
    "new pages": {"data_page_version": "2.0", "compression": "zstd"},
    "new pages not compressed": {"data_page_version": "2.0", "compression": "none"},
    "delta": {"use_dictionary": False, "column_encoding": {"number": "DELTA_BINARY_PACKED"}},
    "checksums": {"write_page_checksum": True, "compression": "gzip"},
    "old times": {"use_deprecated_int96_timestamps": True},
}


@cache
def rows() -> pa.Table:
    random = Random(0)

    def column(value: Any, kind: pa.DataType) -> pa.Array:
        return pa.array([None if random.random() < 0.1 else value() for _ in range(ROWS)], kind)

    start = datetime(2000, 1, 1)
    return pa.table(
        {
            "number": column(lambda: random.randrange(-(2**60), 2**60), pa.int64()),
            "small": column(lambda: random.randrange(7), pa.int32()),
            "text": column(lambda: "é" * random.randrange(9), pa.string()),
            "flag": column(lambda: random.random() < 0.5, pa.bool_()),
            "real": column(random.random, pa.float64()),
            "price": column(lambda: Decimal(random.randrange(10**6)) / 100, pa.decimal128(12, 2)),
            "huge": column(lambda: Decimal(random.randrange(10**25)), pa.decimal128(30, 0)),
            "day": column(lambda: date(2000, 1, 1) + timedelta(random.randrange(999)), pa.date32()),
            "time": column(lambda: start + timedelta(seconds=random.randrange(10**6)), pa.timestamp("us")),
            "fixed": column(lambda: random.randbytes(16), pa.binary(16)),
            "nothing": pa.nulls(ROWS, pa.int64()),
        }
    )


def stored(table: pa.Table, **options: Any) -> io.BytesIO:
    defaults = {"row_group_size": 3000, "data_page_size": 700, "write_batch_size": 64, "write_page_index": True}
    stream = io.BytesIO()
    pq.write_table(table, stream, **{**defaults, **options})
    return stream


def pages_of(stream: io.BytesIO, row_group: int, leaves: list[int]) -> list[ColumnPages] | None:
    return find_pages(stream, read_footer(stream, len(stream.getvalue()), "f"), row_group, leaves)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("row_group", [0, 1])
def test_single_rows_are_those_of_the_whole_file(layout: str, row_group: int):
    stream = stored(rows(), **LAYOUTS[layout])
    whole = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us").read_row_group(row_group)
    columns = pages_of(stream, row_group, list(range(whole.num_columns)))
    assert columns is not None
    random = np.random.default_rng(row_group)
    for count in (1, 2, 30, whole.num_rows):
        chosen = np.sort(random.choice(whole.num_rows, count, replace=False))
        found = read_pages(stream, "f", columns, chosen)
        assert found is not None
        assert pa.table(found, names=whole.column_names).equals(whole.take(chosen).cast(_nullable(whole.schema)))


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True).remove_metadata() for field in schema])


def test_pages_without_a_wanted_row_are_not_decoded():
    stream = stored(rows(), use_dictionary=False, compression="zstd")
    columns = pages_of(stream, 0, [2])
    assert columns is not None and len(columns[0].starts) > 3
    data = bytearray(stream.getvalue())
    start, end = int(columns[0].starts[1]), int(columns[0].ends[1])
    data[start + 40 : end] = b"x" * (end - start - 40)
    damaged = io.BytesIO(bytes(data))
    first, second = columns[0].first_rows[:2].tolist()
    assert read_pages(damaged, "f", columns, np.array([first])) == [rows()["text"].slice(first, 1).combine_chunks()]
    with pytest.raises(CorruptFile):
        read_pages(damaged, "f", columns, np.array([second]))


def test_columns_inside_others_are_left_to_arrow():
    table = pa.table({"a": range(9), "s": [{"x": 1, "y": [2]}] * 9, "l": [[1, 2]] * 9, "z": list("abcdefghi")})
    stream = stored(table)
    assert [pages_of(stream, 0, [leaf]) is None for leaf in range(5)] == [False, True, True, True, False]
    columns = pages_of(stream, 0, [0, 4])
    assert columns is not None
    assert read_pages(stream, "f", columns, np.array([2, 8])) == [pa.array([2, 8]), pa.array(["c", "i"])]


def test_a_file_without_an_index_is_left_to_arrow():
    assert pages_of(stored(rows(), write_page_index=False), 0, [0]) is None


def test_an_index_that_contradicts_its_pages_is_not_used():
    stream = stored(rows(), use_dictionary=False)
    columns = pages_of(stream, 0, [0])
    assert columns is not None
    shifted = columns[0].first_rows.copy()
    shifted[1:-1] += 1
    wrong = ColumnPages(**{**columns[0].__dict__, "first_rows": shifted})
    assert read_pages(stream, "f", [wrong], np.array([0])) is None


def test_a_damaged_index_never_gives_other_rows():
    whole = stored(rows(), use_dictionary=False, compression="zstd").getvalue()
    columns = pages_of(io.BytesIO(whole), 1, list(range(11)))
    assert columns is not None
    indexes = range(int(max(c.ends[-1] for c in columns)), len(whole) - len(footer_of(whole)) - 8)
    chosen, random, right = np.array([3, 2000]), Random(7), 0
    for _ in range(500):
        data = bytearray(whole)
        data[random.choice(indexes)] ^= 1 << random.randrange(8)
        stream = io.BytesIO(bytes(data))
        try:
            columns = pages_of(stream, 0, [0, 2])
            found = None if columns is None else read_pages(stream, "f", columns, chosen)
        except CorruptFile:
            continue
        if found is not None:
            assert found == [rows()[name].take(chosen).combine_chunks() for name in ("number", "text")]
            right += 1
    assert 0 < right < 500


def footer_of(data: bytes) -> bytes:
    return read_footer(io.BytesIO(data), len(data), "f").raw
