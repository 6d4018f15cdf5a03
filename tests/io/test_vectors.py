"""Deletion vectors: what is written reads back anywhere, and bytes that lie are refused."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from neve.errors import CorruptFile, LimitExceeded, TableError, UserError
from neve.io.deletion_vectors import MAX_POSITION, PositionSet, decode_vector

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
needs_fixtures = pytest.mark.skipif(not FIXTURES.exists(), reason=f"no fixtures at {FIXTURES}")
NAME = "s3://lake/t/data/dv.puffin"


def framed(bitmap: bytes) -> bytes:
    body = b"\xd1\xd3\x39\x64" + bitmap
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def plain_reading(bitmap: bytes) -> list[int]:
    """The values of a 64-bit portable bitmap, read one number at a time."""
    at, values = 8, []
    for _ in range(int.from_bytes(bitmap[:8], "little")):
        high = int.from_bytes(bitmap[at : at + 4], "little")
        at, lows = plain_bitmap(bitmap, at + 4)
        values += [high << 32 | low for low in lows]
    return values


def plain_bitmap(data: bytes, at: int) -> tuple[int, list[int]]:
    def short(where: int) -> int:
        return int.from_bytes(data[where : where + 2], "little")

    cookie = int.from_bytes(data[at : at + 4], "little")
    if cookie == 12346:
        count, flags, at = int.from_bytes(data[at + 4 : at + 8], "little"), 0, at + 8
    else:
        count = (cookie >> 16) + 1
        size = (count + 7) // 8
        flags, at = int.from_bytes(data[at + 4 : at + 4 + size], "little"), at + 4 + size
    heads = [(short(at + 4 * i), short(at + 4 * i + 2) + 1) for i in range(count)]
    at += 4 * count + (4 * count if cookie == 12346 or count >= 4 else 0)
    lows: list[int] = []
    for i, (key, cardinality) in enumerate(heads):
        if flags >> i & 1:
            runs = [(short(at + 2 + 4 * r), short(at + 4 + 4 * r)) for r in range(short(at))]
            found, at = [v for first, more in runs for v in range(first, first + more + 1)], at + 2 + 4 * len(runs)
        elif cardinality > 4096:
            bits = int.from_bytes(data[at : at + 8192], "little")
            found, at = [v for v in range(65536) if bits >> v & 1], at + 8192
        else:
            found, at = [short(at + 2 * v) for v in range(cardinality)], at + 2 * cardinality
        lows += [key << 16 | v for v in found]
    return at, lows


SHAPES = {
    "empty": [],
    "one": [7],
    "array": range(0, 9_000, 3),
    "bits": range(0, 60_000, 2),
    "run": range(10, 70_000),
    "mixed": [1, 3, *range(65_536, 131_072, 2), *range(200_000, 230_000), 2**32, 2**32 + 5, *range(2**33, 2**33 + 9)],
    "five containers with runs": [c * 65_536 + v for c in range(5) for v in (*range(100), 200, 300)],
    "highest": [MAX_POSITION],
}


@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES)
def test_an_encoded_vector_is_read_alike_by_us_by_pyroaring_and_by_plain_python(values: Iterable[int]) -> None:
    expected = list(values)
    blob = PositionSet.of(expected).encode()
    assert list(decode_vector(blob, NAME, len(expected)).positions()) == expected
    assert list(BitMap64.deserialize(blob[8:-4])) == expected
    assert plain_reading(blob[8:-4]) == expected


@given(st.sets(st.one_of(st.integers(0, 300_000), st.integers(0, MAX_POSITION))))
def test_any_set_of_positions_survives_a_round_trip(values: set[int]) -> None:
    vector = PositionSet.of(values)
    assert vector.cardinality == len(values)
    assert vector.maximum == max(values, default=None)
    assert decode_vector(vector.encode(), NAME, len(values)) == vector
    assert vector.positions().tolist() == sorted(values)


@given(st.sets(st.integers(0, 200_000)), st.sets(st.integers(0, 200_000)), st.sets(st.integers(0, 2**40)))
def test_union_is_set_union_and_leaves_its_operands_alone(a: set[int], b: set[int], c: set[int]) -> None:
    left, right, third = PositionSet.of(a), PositionSet.of(b), PositionSet.of(c)
    assert left.union(right, third).positions().tolist() == sorted(a | b | c)
    assert left.positions().tolist() == sorted(a)


@given(st.sets(st.one_of(st.integers(0, 200_000), st.integers(0, 2**45))))
def test_chunks_hold_exactly_the_bits_of_the_positions(values: set[int]) -> None:
    chunks, words = PositionSet.of(values).chunks()
    assert words.shape == (len(chunks), 1024)
    assert words.dtype == chunks.dtype == np.int64
    assert chunks.tolist() == sorted({v >> 16 for v in values})
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").reshape(len(chunks), 65_536)
    row, low = np.nonzero(bits)
    assert (chunks[row] * 65_536 + low).tolist() == sorted(values)


@pytest.mark.parametrize(
    "positions",
    [
        np.array([5, 2, 2, 9], dtype=np.int32),
        np.array([5, 2, 9], dtype=np.uint64),
        np.array([5, 0, 2, 0, 9])[::2],
        pa.array([9, 5, 2], pa.int64()),
        pa.chunked_array([[5], [2, 9]], pa.int32()),
        iter([2, 5, 9]),
        {2, 5, 9},
    ],
    ids=["repeats", "unsigned", "strided", "arrow", "chunked", "iterator", "set"],
)
def test_a_vector_is_made_from_any_column_of_integers(positions: Any) -> None:
    assert PositionSet.of(positions).positions().tolist() == [2, 5, 9]


@pytest.mark.parametrize(
    "positions",
    [[-1], [MAX_POSITION + 1], [2**64], [1.5], np.array([2**63], dtype=np.uint64), pa.array([1, None], pa.int64())],
    ids=["negative", "beyond the format", "beyond 64 bits", "fraction", "unsigned overflow", "null"],
)
def test_a_position_no_row_can_have_is_refused(positions: Any) -> None:
    with pytest.raises(UserError, match="Row positions must"):
        PositionSet.of(positions)


def test_a_set_covers_a_file_when_it_has_each_of_its_rows() -> None:
    found = PositionSet.of([0, 1, 2, 9])
    assert [rows for rows in range(12) if found.covers(rows)] == [0, 1, 2, 3]
    assert not found.covers(None) and not found.covers(-1)


def test_encoding_compresses_runs() -> None:
    assert len(PositionSet.of(np.arange(1_000_000)).encode()) < 300


def test_a_million_positions_take_milliseconds_not_seconds() -> None:
    positions = np.arange(0, 5_000_000, 5)
    start = time.process_time()
    decode_vector(PositionSet.of(positions).encode(), NAME, 1_000_000).chunks()
    assert time.process_time() - start < 1


@needs_fixtures
@pytest.mark.parametrize("name", ["all-container-types", "empty", "small-alternating-values", "small-and-large-values"])
def test_a_golden_vector_decodes_and_encodes_to_the_same_bytes(name: str) -> None:
    golden = (FIXTURES / "iceberg_dv_golden" / f"{name}-position-index.bin").read_bytes()
    vector = decode_vector(golden, name)
    assert vector.positions().tolist() == plain_reading(golden[8:-4])
    assert vector.encode() == golden


@needs_fixtures
@pytest.mark.parametrize("name", ["64map32bitvals", "64mapspreadvals", "64mapempty"])
def test_a_golden_bitmap_decodes(name: str) -> None:
    golden = (FIXTURES / "iceberg_dv_golden" / f"{name}.bin").read_bytes()
    assert decode_vector(framed(golden), name).positions().tolist() == plain_reading(golden)


@needs_fixtures
def test_the_golden_bitmap_with_keys_out_of_range_is_refused() -> None:
    golden = (FIXTURES / "iceberg_dv_golden" / "64maphighvals.bin").read_bytes()
    with pytest.raises(
        CorruptFile, match=f"{NAME}.*a key above -1 and at most 2147483646, found 4022190063 at byte 16"
    ):
        decode_vector(framed(golden), NAME)


@needs_fixtures
def test_a_delta_vector_has_the_same_blob() -> None:
    (stored,) = (FIXTURES / "delta_dv_small").glob("*.bin")
    vector = decode_vector(stored.read_bytes()[1:], str(stored), expected_cardinality=2)  # one version byte comes first
    assert vector.cardinality == 2


@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES)
def test_a_truncated_vector_is_refused(values: Iterable[int]) -> None:
    blob = PositionSet.of(values).encode()
    for size in {*range(min(len(blob), 64)), *range(0, len(blob), 997), len(blob) - 1}:
        with pytest.raises(CorruptFile, match=NAME):
            decode_vector(blob[:size], NAME)


@pytest.mark.parametrize("name", ["mixed", "five containers with runs"])
def test_every_flipped_bit_is_noticed(name: str) -> None:
    blob = PositionSet.of(SHAPES[name]).encode()
    for at in {*range(min(len(blob), 200)), *range(0, len(blob), 211), len(blob) - 1}:
        bad = bytearray(blob)
        bad[at] ^= 1 << at % 8
        with pytest.raises(CorruptFile, match=NAME):
            decode_vector(bytes(bad), NAME)


@settings(max_examples=300)
@given(st.data())
def test_a_forged_bitmap_with_a_right_checksum_is_refused_or_means_what_it_says(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(SHAPES)))
    bitmap = bytearray(PositionSet.of(SHAPES[name]).encode()[8:-4])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(bitmap), 120) - 1) | st.integers(0, len(bitmap) - 1))
        bitmap[at] = data.draw(st.sampled_from([0, 1, 255]) | st.integers(0, 255))
    try:
        vector = decode_vector(framed(bytes(bitmap)), NAME)
    except TableError:
        return
    said = plain_reading(bytes(bitmap))
    assert said == sorted(set(said)) == vector.positions().tolist()


def u16(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}H", *values)


def one_bitmap(body: bytes, key: int = 0) -> bytes:
    return struct.pack("<QI", 1, key) + body


ARRAY = struct.pack("<II", 12346, 1) + u16(0, 2) + struct.pack("<I", 16)
RUN = struct.pack("<IB", 12347, 1)
TWO_KEYS = struct.pack("<II", 12346, 2)
FORGERIES = {
    "array not ascending": (one_bitmap(ARRAY + u16(5, 5, 6)), "ascending"),
    "containers not ascending": (
        one_bitmap(TWO_KEYS + u16(3, 0, 3, 0) + struct.pack("<II", 24, 26) + u16(1, 1)),
        "keys",
    ),
    "offset elsewhere": (one_bitmap(ARRAY[:-4] + struct.pack("<I", 18) + u16(1, 2, 3, 4)), "follow one another"),
    "offset outside": (one_bitmap(ARRAY[:-4] + struct.pack("<I", 2**31) + u16(1, 2, 3)), "offsets within"),
    "offset before the body": (one_bitmap(ARRAY[:-4] + struct.pack("<I", 0) + u16(1, 2, 3)), "offsets within"),
    "no runs": (one_bitmap(RUN + u16(0, 0, 0)), "at least one run"),
    "runs overlap": (one_bitmap(RUN + u16(0, 19, 2, 0, 9, 5, 9)), "apart"),
    "runs touch": (one_bitmap(RUN + u16(0, 19, 2, 0, 9, 10, 9)), "apart"),
    "run past the end": (one_bitmap(RUN + u16(0, 9, 1, 65_530, 9)), "below 65536"),
    "run count lies": (one_bitmap(RUN + u16(0, 8, 1, 0, 9)), "descriptor says"),
    "run beyond the bytes": (one_bitmap(RUN + u16(0, 8, 9_000, 0, 9)), "bytes of containers"),
    "bit count lies": (
        one_bitmap(ARRAY[:8] + u16(0, 5_000) + ARRAY[12:] + b"\xff" * 512 + bytes(7_680)),
        "as many bits",
    ),
    "cookie": (one_bitmap(struct.pack("<II", 12345, 0)), "cookie"),
    "65537 containers": (one_bitmap(struct.pack("<II", 12346, 65_537)), "at most 65536 containers"),
    "containers beyond the bytes": (one_bitmap(struct.pack("<II", 12346, 65_536)), "container descriptors"),
    "bitmaps beyond the bytes": (struct.pack("<Q", 2**63), "at most 0 bitmaps"),
    "key too high": (one_bitmap(struct.pack("<II", 12346, 0), 2**31 - 1), "at most 2147483646"),
    "keys repeat": (struct.pack("<QIIIIII", 2, 4, 12346, 0, 4, 12346, 0), "a key above 4"),
    "more bytes": (struct.pack("<QI", 0, 1), "4 more bytes"),
}


@pytest.mark.parametrize(("bitmap", "message"), FORGERIES.values(), ids=FORGERIES)
def test_a_forged_bitmap_is_refused_with_its_reason(bitmap: bytes, message: str) -> None:
    with pytest.raises(CorruptFile, match=f"Corrupt file {NAME}: expected .*{message}"):
        decode_vector(framed(bitmap), NAME)


def test_empty_bitmaps_between_keys_are_legal() -> None:
    empty = struct.pack("<II", 12346, 0)
    bitmap = struct.pack("<Q", 3) + b"".join(
        struct.pack("<I", key) + body for key, body in ((0, empty), (1, empty), (2, ARRAY + u16(1, 2, 3)))
    )
    assert decode_vector(framed(bitmap), NAME, 3).positions().tolist() == [2**33 + v for v in (1, 2, 3)]


def test_the_error_names_the_byte_in_the_file() -> None:
    blob = framed(one_bitmap(struct.pack("<II", 12345, 0)))
    with pytest.raises(CorruptFile, match=r"found 12345 at byte 1020\."):
        decode_vector(blob, NAME, offset=1000)


def test_another_number_of_positions_than_the_metadata_says_is_refused() -> None:
    with pytest.raises(CorruptFile, match="expected 4 deleted positions, as the metadata says, found 3"):
        decode_vector(PositionSet.of([1, 2, 3]).encode(), NAME, expected_cardinality=4)


def test_a_small_blob_naming_billions_of_positions_costs_nothing_until_expanded() -> None:
    full = struct.pack("<I", 12347 | 65_535 << 16) + b"\xff" * 8_192
    full += np.stack([np.arange(65_536), np.full(65_536, 65_535)], 1).astype("<u2").tobytes()
    full += (8_196 + 8 * 65_536 + 6 * np.arange(65_536)).astype("<u4").tobytes() + u16(1, 0, 65_535) * 65_536
    start = time.process_time()
    vector = decode_vector(framed(one_bitmap(full)), NAME)
    assert vector.cardinality == 2**32
    for expand in (vector.positions, vector.chunks):
        with pytest.raises(LimitExceeded, match="4294967296 positions"):
            expand()
    assert time.process_time() - start < 2


def test_a_vector_spread_over_too_many_chunks_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="spread over 100 chunks"):
        PositionSet.of(np.arange(100) << 16).chunks(limit=50 * 1024)


def test_too_many_bitmaps_are_refused_quickly() -> None:
    count = 70_000
    pairs = np.stack([np.arange(count), np.full(count, 12346), np.zeros(count)], 1).astype("<u4").tobytes()
    with pytest.raises(LimitExceeded, match="70000 bitmaps"):
        decode_vector(framed(struct.pack("<Q", count) + pairs), NAME)
