"""Parquet footers decoded by hand say what Arrow says, and no bytes make the decoder do worse than refuse."""

from __future__ import annotations

import io
from decimal import Decimal
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.errors import CorruptFile, UnsupportedFeature
from neve.io.parquet_footer import ChunkStatistics, Footer, parse_statistics, read_footer

ROWS = pa.table(
    {
        "whole": pa.array([1, None, -3, 4]),
        "small": pa.array([1, 2, 3, 4], pa.int32()),
        "text": ["x", "y", None, ""],
        "real": [1.5, None, -2.5, 0.0],
        "float": pa.array([1.5, None, -2.5, 0.0], pa.float32()),
        "flag": [True, False, None, True],
        "list": [[1, 2], None, [], [3]],
        "decimal": pa.array([Decimal("1.25"), Decimal("-3.50"), None, None], pa.decimal128(20, 2)),
        "time": pa.array([0, 1, None, 2], pa.timestamp("us")),
        "nothing": pa.nulls(4, pa.int64()),
    }
)


def stored(rows: pa.Table = ROWS, **options) -> io.BytesIO:
    stream = io.BytesIO()
    pq.write_table(rows, stream, row_group_size=2, **options)
    return stream


def footer(stream: io.BytesIO) -> bytes:
    return read_footer(stream, len(stream.getvalue()), "f").raw


def statistics(stream: io.BytesIO) -> list[list[ChunkStatistics]]:
    return parse_statistics(Footer(footer(stream), "f"))


def test_statistics_are_those_arrow_finds():
    stream = stored()
    found = statistics(stream)
    metadata = pq.ParquetFile(stream).metadata
    assert len(found) == metadata.num_row_groups == 2
    for group, chunks in enumerate(found):
        assert len(chunks) == metadata.num_columns
        for column, ours in enumerate(chunks):
            peer = metadata.row_group(group).column(column).statistics
            ends = (peer.min_raw, peer.max_raw) if peer.has_min_max else (None, None)
            assert (ours.minimum, ours.maximum, ours.nulls) == (*ends, peer.null_count)
            assert ours.values == metadata.row_group(group).column(column).num_values


def test_a_file_without_statistics_tells_nothing():
    stream = stored(write_statistics=False)
    for chunks in statistics(stream):
        assert {(c.minimum, c.maximum, c.nulls) for c in chunks} == {(None, None, None)}


@pytest.mark.parametrize("kept", [0, 4, 7, 11])
def test_a_file_too_short_for_its_footer_is_refused_by_name(kept):
    raw = stored().getvalue()[-kept:] if kept else b""
    with pytest.raises(CorruptFile, match="name-of-it"):
        read_footer(io.BytesIO(raw), len(raw), "name-of-it")


def test_a_footer_longer_than_the_first_read_is_read_whole():
    wide = stored(pa.table({f"column_{i}": [1, 2, 3, 4] for i in range(400)}))
    raw = wide.getvalue()
    length = int.from_bytes(raw[-8:-4], "little")
    assert length > 64 << 10
    assert footer(wide) == raw[-8 - length : -8]
    assert len(statistics(wide)[0]) == 400


def test_a_file_with_an_encrypted_footer_is_not_supported():
    raw = stored().getvalue()[:-4] + b"PARE"
    with pytest.raises(UnsupportedFeature, match=r"name-of-it.*encrypted"):
        read_footer(io.BytesIO(raw), len(raw), "name-of-it")


def test_every_truncated_footer_is_refused():
    whole = footer(stored())
    for length in range(0, len(whole) - 1, 7):
        with pytest.raises(CorruptFile):
            parse_statistics(Footer(whole[:length], "f"))


@pytest.mark.parametrize(
    "hostile",
    [
        b"\x19\xfc\xff\xff\xff\xff\x0f",  # a list of four billion structures
        b"\x18\xff\xff\xff\xff\x0f",  # four gigabytes of text
        b"\x1c" * 1000,  # structures a thousand deep
        b"\x19\x19" * 1000,  # lists a thousand deep
        b"\x16" + b"\xff" * 20,  # a number without an end
        b"\x1f\x00",  # a type that does not exist
    ],
)
def test_hostile_footers_are_refused(hostile):
    with pytest.raises(CorruptFile):
        parse_statistics(Footer(hostile, "f"))


def test_random_damage_is_read_or_refused():
    whole, chance = footer(stored()), Random(3)
    for _ in range(300):
        damaged = bytearray(whole)
        for at in chance.sample(range(len(whole)), 3):
            damaged[at] = chance.randrange(256)
        try:
            parse_statistics(Footer(bytes(damaged), "f"))
        except CorruptFile:
            continue
