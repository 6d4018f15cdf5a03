"""Deletion vectors: the row positions that are deleted from one data file.

A vector is stored as a `deletion-vector-v1` blob inside a Puffin file: length, magic, 64-bit roaring bitmap, CRC-32.
Format versions 3 and 4 use the same bytes. A `PositionSet` stays compressed. Only `positions` and `chunks` expand it,
within a limit, because a blob of a few kilobytes can hold billions of positions.

The portable layout of a 64-bit roaring bitmap is little-endian: the number of 32-bit bitmaps, then for each a 4-byte
key (the high half of its values, ascending) and the bitmap: cookie, descriptors (16-bit key, cardinality - 1), offsets,
containers. A container holds the low 16 bits as a sorted array, as 8,192 bytes of bits, or as runs.

The C library that decodes bitmaps relies on sorted keys, sorted values and correct counts, so all bytes are checked
here first. Every size is compared with the remaining bytes before anything is allocated.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64, FrozenBitMap64

from neve.errors import CorruptFile, LimitExceeded, UserError

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

MAX_KEY = 2**31 - 2  # positions are 63-bit, and the reference implementation reserves one key
MAX_POSITION = (MAX_KEY << 32) | 0x8000_0000  # the same limit as in the reference implementation
MAX_EXPANDED = 1 << 28  # positions in memory at once: 2 GiB
MAX_BITMAPS = 65_536  # 2.8e14 rows: no data file has so many
MAGIC = b"\xd1\xd3\x39\x64"
WORDS_PER_CHUNK = 1_024  # 64-bit words in a chunk of 65,536 rows
_NO_RUNS, _WITH_RUNS = 12_346, 12_347
_OFFSETS_FROM = 4  # a bitmap with runs stores offsets if it has at least this many containers
_ARRAY_MAX = 4_096
_BITS_UNITS = 4_096  # size of a container of bits, in 16-bit units
_CHUNK_BITS, _WORD_BITS = 16, 6
_HINT = "Rewrite the data file without its deleted rows, or raise the limit of this call."


@dataclass(frozen=True, slots=True)
class UntrustedBytes:
    """Untrusted bytes, with the file and the offset they were read from."""

    data: bytes
    path: str
    offset: int = 0

    def corruption(self, at: int, expected: str, found: str) -> CorruptFile:
        """Return the error for wrong data at a position of these bytes."""
        return CorruptFile(self.path, expected, f"{found} at byte {self.offset + at}")

    def number(self, layout: str, at: int, what: str) -> int:
        """Read one number; `layout` is in `struct` notation."""
        self._require(at, struct.calcsize(layout), what)
        return int(struct.unpack_from(layout, self.data, at)[0])

    def read_array(self, dtype: str, count: int, at: int, what: str) -> NDArray[Any]:
        """Read `count` consecutive numbers without copying them."""
        self._require(at, count * np.dtype(dtype).itemsize, what)
        return np.frombuffer(self.data, dtype, count, at)

    def _require(self, at: int, size: int, what: str) -> None:
        if at + size > len(self.data):
            raise self.corruption(at, f"{what} of {size} bytes", f"{max(len(self.data) - at, 0)}")


@dataclass(frozen=True, slots=True)
class _Containers:
    """The containers of one 32-bit bitmap as columns; starts and sizes count 16-bit units of `body`."""

    source: UntrustedBytes
    at: int  # byte position of the body
    body: NDArray[np.uint16]
    starts: Ints
    cardinalities: Ints
    is_run: Flags

    def filter(self, mask: Flags) -> _Containers:
        return replace(self, starts=self.starts[mask], cardinalities=self.cardinalities[mask], is_run=self.is_run[mask])

    def corruption(self, expected: str, found: str) -> CorruptFile:
        return self.source.corruption(self.at, expected, found)


def checked_cardinality(source: UntrustedBytes) -> int:
    """Check the whole structure of a serialized 64-bit bitmap and return the number of its values."""
    count, possible = source.number("<Q", 0, "a bitmap count"), (len(source.data) - 8) // 12
    if count > possible:
        raise source.corruption(0, f"at most {possible} bitmaps in {len(source.data)} bytes", f"{count}")
    if count > MAX_BITMAPS:
        raise LimitExceeded(f"{count} bitmaps in one deletion vector", MAX_BITMAPS, "No data file has so many rows.")
    at, last, total = 8, -1, 0
    for _ in range(count):
        key = source.number("<I", at, "a bitmap key")
        if not last < key <= MAX_KEY:
            raise source.corruption(at, f"a key above {last} and at most {MAX_KEY}", f"{key}")
        at, cardinality = _check_bitmap(source, at + 4)
        last, total = key, total + cardinality
    if at != len(source.data):
        raise source.corruption(at, "the end of the bitmaps", f"{len(source.data) - at} more bytes")
    return total


def _check_bitmap(source: UntrustedBytes, at: int) -> tuple[int, int]:
    """Check the 32-bit bitmap at a byte position; return its end and its cardinality."""
    descriptors_at, is_run, has_offsets = _read_bitmap_header(source, at)
    count = len(is_run)
    if count == 0:
        return descriptors_at, 0
    raw = source.read_array("<u2", 2 * count, descriptors_at, "container descriptors")
    descriptors = raw.reshape(-1, 2).astype(np.int64)
    if np.any(np.diff(descriptors[:, 0]) <= 0):
        raise source.corruption(descriptors_at, "container keys in ascending order", "one that is not")
    offsets_at = descriptors_at + 4 * count
    offsets = source.read_array("<u4", count, offsets_at, "container offsets").astype(np.int64) if has_offsets else None
    body_at = offsets_at + (4 * count if has_offsets else 0)
    body = source.read_array("<u2", (len(source.data) - body_at) // 2, body_at, "containers")
    containers = _Containers(source, body_at, body, np.zeros(count, dtype=np.int64), descriptors[:, 1] + 1, is_run)
    containers, end = _locate_containers(containers, None if offsets is None else offsets - (body_at - at))
    is_bits = ~is_run & (containers.cardinalities > _ARRAY_MAX)
    for mask, check in ((is_run, _check_runs), (is_bits, _check_bits), (~is_run & ~is_bits, _check_arrays)):
        if mask.any():
            check(containers.filter(mask))
    return body_at + 2 * end, int(containers.cardinalities.sum())


def _read_bitmap_header(source: UntrustedBytes, at: int) -> tuple[int, Flags, bool]:
    """Return where the descriptors start, which containers hold runs, and whether offsets follow the descriptors."""
    cookie = source.number("<I", at, "a roaring cookie")
    if cookie == _NO_RUNS:
        count = source.number("<I", at + 4, "a container count")
        if count > 65_536:
            raise source.corruption(at + 4, "at most 65536 containers", f"{count}")
        return at + 8, np.zeros(count, dtype=bool), True
    if cookie & 0xFFFF != _WITH_RUNS:
        raise source.corruption(at, f"a roaring cookie, {_NO_RUNS} or {_WITH_RUNS},", f"{cookie}")
    count = (cookie >> 16) + 1
    flags = source.read_array("u1", (count + 7) // 8, at + 4, "run flags")
    is_run = np.unpackbits(flags, bitorder="little")[:count].astype(bool)
    return at + 4 + len(flags), is_run, count >= _OFFSETS_FROM


def _locate_containers(containers: _Containers, offsets: Ints | None) -> tuple[_Containers, int]:
    """Return the containers with their starts, and the end of the last. Gaps between containers are rejected.

    `offsets` are in bytes from the start of the body; without them there are at most three containers.
    """
    body, is_run = containers.body, containers.is_run
    sizes = np.where(containers.cardinalities > _ARRAY_MAX, _BITS_UNITS, containers.cardinalities)
    if offsets is None:
        starts = np.zeros_like(sizes)
        for i in range(len(starts)):
            starts[i] = starts[i - 1] + sizes[i - 1] if i else 0
            if is_run[i] and starts[i] >= len(body):
                raise containers.corruption("a run container", "the end of the bytes")
            if is_run[i]:
                sizes[i] = 1 + 2 * int(body[starts[i]])
    else:
        if np.any((offsets & 1 != 0) | (offsets < 0) | (offsets >> 1 >= len(body))):
            raise containers.corruption(f"container offsets within {2 * len(body)} bytes", "one outside")
        starts = offsets >> 1
        sizes = np.where(is_run, 1 + 2 * body[starts].astype(np.int64), sizes)
    ends = starts + sizes
    if starts[0] != 0 or np.any(ends[:-1] != starts[1:]):
        raise containers.corruption("containers that follow one another", "a gap or an overlap between them")
    if ends[-1] > len(body):
        raise containers.corruption(f"{2 * int(ends[-1])} bytes of containers", f"{2 * len(body)}")
    return replace(containers, starts=starts), int(ends[-1])


def _check_arrays(containers: _Containers) -> None:
    values = containers.body[_flat_indices(containers.starts, containers.cardinalities)].astype(np.int64)
    if np.any((np.diff(values) <= 0) & ~_starts_container(containers.cardinalities)[1:]):
        raise containers.corruption("values of an array container in ascending order", "one that is not")


def _check_bits(containers: _Containers) -> None:
    indices = _flat_indices(containers.starts, np.full(len(containers.starts), _BITS_UNITS))
    rows = containers.body[indices].reshape(-1, _BITS_UNITS)
    if np.any(np.bitwise_count(rows).sum(axis=1, dtype=np.int64) != containers.cardinalities):
        raise containers.corruption("as many bits in a container as its descriptor says", "another number")


def _check_runs(containers: _Containers) -> None:
    counts = containers.body[containers.starts].astype(np.int64)
    if np.any(counts == 0):
        raise containers.corruption("at least one run in a run container", "none")
    runs = containers.body[_flat_indices(containers.starts + 1, 2 * counts)].astype(np.int64).reshape(-1, 2)
    firsts, lasts, opens = runs[:, 0], runs[:, 0] + runs[:, 1], _starts_container(counts)
    # Adjacent runs must be written as one run: the decoder relies on it.
    if np.any(lasts > 0xFFFF) or np.any((firsts[1:] <= lasts[:-1] + 1) & ~opens[1:]):
        raise containers.corruption("runs in ascending order, apart, below 65536", "one that is not")
    if np.any(np.add.reduceat(lasts - firsts + 1, np.flatnonzero(opens)) != containers.cardinalities):
        raise containers.corruption(
            "as many values in the runs of a container as its descriptor says", "another number"
        )


def _starts_container(lengths: Ints) -> Flags:
    """Return which elements are the first of their container, for the elements of all containers in one row.

    No container is empty.
    """
    opens = np.zeros(int(lengths.sum()), dtype=bool)
    opens[np.cumsum(lengths) - lengths] = True
    return opens


def _flat_indices(starts: Ints, lengths: Ints) -> Ints:
    """Return the indices of many slices, concatenated."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class PositionSet:
    """An immutable set of row positions within one data file."""

    bitmap: FrozenBitMap64 = field(default_factory=FrozenBitMap64)

    @classmethod
    def of(cls, positions: NDArray[np.integer] | pa.Array | pa.ChunkedArray | Iterable[int]) -> PositionSet:
        """Build the set from positions in any order, with or without duplicates."""
        if isinstance(positions, (pa.Array, pa.ChunkedArray)):
            if positions.null_count:
                raise UserError(f"Row positions must not be null, got {positions.null_count} nulls.")
            positions = positions.to_numpy(zero_copy_only=False)
        raw = positions if isinstance(positions, np.ndarray) else np.asarray(list(positions))
        if len(raw) and not np.issubdtype(raw.dtype, np.integer):
            raise UserError(f"Row positions must be 64-bit integers, got {raw.dtype}.")
        values = np.ascontiguousarray(raw, dtype=np.int64)
        if len(values) and not 0 <= values.min() <= values.max() <= MAX_POSITION:
            span = f"{values.min()} to {values.max()}"
            raise UserError(f"Row positions must be between 0 and {MAX_POSITION}, got {span}.")
        return cls(FrozenBitMap64(array("Q", values.tobytes())))

    @property
    def cardinality(self) -> int:
        """The number of positions in the set."""
        return len(self.bitmap)

    @property
    def maximum(self) -> int | None:
        """The last position, for comparison with the record count of the data file; None if the set is empty."""
        return self.bitmap.max() if self.bitmap else None

    def covers(self, rows: int | None) -> bool:
        """Return whether the set contains every row of a file with this many rows; later positions are ignored.

        Old imports left negative row counts. They mean "unknown", so no set covers such a file.
        """
        return rows is not None and rows >= 0 and (rows == 0 or self.bitmap.rank(rows - 1) == rows)

    def between(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the positions from `start` to before `stop`, in order."""
        return np.frombuffer((self.bitmap & FrozenBitMap64(range(start, stop))).to_array(), np.int64)

    def union(self, *others: PositionSet) -> PositionSet:
        """Return the positions that are in this set or in one of the others."""
        return PositionSet(self.bitmap.union(*(other.bitmap for other in others)))

    def intersection(self, other: PositionSet) -> PositionSet:
        """Return the positions that are in both sets."""
        return PositionSet(self.bitmap & other.bitmap)

    def complement(self, rows: int) -> PositionSet:
        """Return the positions of a file with this many rows that are not in this set."""
        return PositionSet(FrozenBitMap64(BitMap64(range(rows)) - self.bitmap))

    def positions(self, limit: int = MAX_EXPANDED) -> Ints:
        """Return the positions in ascending order."""
        if self.cardinality > limit:
            raise LimitExceeded(f"A deletion vector with {self.cardinality} positions", limit, _HINT)
        return np.frombuffer(self.bitmap.to_array(), dtype=np.int64)

    def chunks(self, limit: int = MAX_EXPANDED) -> tuple[Ints, Ints]:
        """Return the ascending chunk numbers (position >> 16), and for each a row of 1,024 words with its deleted rows.

        Position p is bit `p & 63` of word `(p >> 6) & 1023`. A row takes 8 KiB for a file of any size. The limit counts
        expanded positions and, separately, words.
        """
        positions = self.positions(limit)
        word_numbers = positions >> _WORD_BITS
        firsts = np.flatnonzero(np.diff(word_numbers, prepend=-1))  # the first position in each word
        bits = np.left_shift(np.uint64(1), (positions & 63).astype(np.uint64))
        at_word, words = word_numbers[firsts], np.bitwise_or.reduceat(bits, firsts).view(np.int64)
        chunks, row = np.unique(at_word >> (_CHUNK_BITS - _WORD_BITS), return_inverse=True)
        if len(chunks) * WORDS_PER_CHUNK > limit:
            what = f"A deletion vector spread over {len(chunks)} chunks of rows"
            raise LimitExceeded(what, limit // WORDS_PER_CHUNK, _HINT)
        table = np.zeros((len(chunks), WORDS_PER_CHUNK), dtype=np.int64)
        table[row, at_word & (WORDS_PER_CHUNK - 1)] = words
        return chunks, table

    def encode(self) -> bytes:
        """Return the `deletion-vector-v1` blob."""
        compact = BitMap64(self.bitmap)
        compact.run_optimize()
        body = MAGIC + compact.serialize()
        # Puffin: length and CRC are big-endian, the bitmap is not.
        return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def decode_vector(blob: bytes, path: str, expected_cardinality: int | None = None, offset: int = 0) -> PositionSet:
    """Decode and check a `deletion-vector-v1` blob that was read at `offset` of the file `path`."""
    source = UntrustedBytes(blob, path, offset)
    length, rest = source.number(">I", 0, "a vector length"), len(blob) - 8
    if length != rest or length < len(MAGIC):
        raise source.corruption(0, f"a vector length of {rest}, for a blob of {len(blob)} bytes,", f"{length}")
    body = blob[4:-4]
    if not body.startswith(MAGIC):
        raise source.corruption(4, f"the magic {MAGIC.hex()}", body[:4].hex())
    stored = source.number(">I", len(blob) - 4, "a CRC-32")
    if (crc := zlib.crc32(body)) != stored:
        raise source.corruption(len(blob) - 4, f"the CRC-32 {crc:08x} of the bytes before it", f"{stored:08x}")
    bitmap = UntrustedBytes(body[4:], path, offset + 8)
    cardinality = checked_cardinality(bitmap)
    if expected_cardinality is not None and cardinality != expected_cardinality:
        raise bitmap.corruption(0, f"{expected_cardinality} deleted positions, as the metadata says", f"{cardinality}")
    return PositionSet(FrozenBitMap64.deserialize(bitmap.data))
