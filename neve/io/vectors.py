"""Deletion vectors: the row positions that are deleted from one data file.

A vector is stored as a `deletion-vector-v1` blob inside a Puffin file: length, magic, 64-bit roaring bitmap, CRC-32.
The same bytes serve format versions 3 and 4. A `PositionSet` stays compressed; it is expanded only by `positions` and
`chunks`, within a limit, because a blob of a few kilobytes can name billions of positions.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64, FrozenBitMap64

from neve.errors import LimitExceeded, UserError
from neve.io.roaring import MAX_KEY, Stretch, checked_cardinality

MAGIC = b"\xd1\xd3\x39\x64"
MAX_POSITION = (MAX_KEY << 32) | 0x8000_0000  # what the reference accepts
MAX_EXPANDED = 1 << 28  # positions held at once: 2 GiB
WORDS = 1_024  # 64-bit words in a chunk of 65,536 rows
_CHUNK_BITS, _WORD_BITS = 16, 6
_HINT = "Rewrite the data file without its deleted rows, or raise the limit of this call."


@dataclass(frozen=True, slots=True)
class PositionSet:
    """An immutable set of row positions within one data file."""

    bitmap: FrozenBitMap64 = field(default_factory=FrozenBitMap64)

    @classmethod
    def of(cls, positions: NDArray[np.integer] | pa.Array | pa.ChunkedArray | Iterable[int]) -> PositionSet:
        """The set of these positions, in any order, with or without repeats."""
        values = _as_int64(positions)
        if len(values) and not 0 <= values.min() <= values.max() <= MAX_POSITION:
            raise UserError(
                f"Row positions must lie between 0 and {MAX_POSITION}, got {values.min()} to {values.max()}."
            )
        return cls(FrozenBitMap64(array("Q", values.tobytes())))

    @property
    def cardinality(self) -> int:
        """How many positions are in the set."""
        return len(self.bitmap)

    @property
    def maximum(self) -> int | None:
        """The last position, to be compared with the record count of the data file; None when the set is empty."""
        return self.bitmap.max() if self.bitmap else None

    def covers(self, rows: int | None) -> bool:
        """Whether every row of a file with so many is in the set; positions beyond its end do not count.

        A negative count, as old imports left it, is not known and covers nothing.
        """
        return rows is not None and rows >= 0 and (rows == 0 or self.bitmap.rank(rows - 1) == rows)

    def union(self, *others: PositionSet) -> PositionSet:
        """Every position in this set or in one of the others."""
        return PositionSet(self.bitmap.union(*(other.bitmap for other in others)))

    def complement(self, rows: int) -> PositionSet:
        """The positions of a file with so many rows that are not in this set."""
        return PositionSet(FrozenBitMap64(BitMap64(range(rows)) - self.bitmap))

    def positions(self, limit: int = MAX_EXPANDED) -> NDArray[np.int64]:
        """The positions in ascending order."""
        if self.cardinality > limit:
            raise LimitExceeded(f"A deletion vector with {self.cardinality} positions", limit, _HINT)
        return np.frombuffer(self.bitmap.to_array(), dtype=np.int64)

    def chunks(self, limit: int = MAX_EXPANDED) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Chunk numbers (position >> 16), ascending, and for each a row of 1,024 words that holds its deleted rows.

        Position p is bit `p & 63` of word `(p >> 6) & 1023`. A row is 8 KiB however big the file is. The limit counts
        expanded positions and, separately, words.
        """
        positions = self.positions(limit)
        at_word, words = _words(positions)
        chunk_of_word = at_word >> (_CHUNK_BITS - _WORD_BITS)
        chunks, row = np.unique(chunk_of_word, return_inverse=True)
        if len(chunks) * WORDS > limit:
            raise LimitExceeded(f"A deletion vector spread over {len(chunks)} chunks of rows", limit // WORDS, _HINT)
        table = np.zeros((len(chunks), WORDS), dtype=np.int64)
        table[row, at_word & (WORDS - 1)] = words
        return chunks, table

    def encode(self) -> bytes:
        """The `deletion-vector-v1` blob."""
        compact = BitMap64(self.bitmap)
        compact.run_optimize()
        body = MAGIC + compact.serialize()
        # Puffin: length and CRC are big-endian, the bitmap is not.
        return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def decode(blob: bytes, path: str, expected_cardinality: int | None = None, offset: int = 0) -> PositionSet:
    """The positions in a `deletion-vector-v1` blob that was read at `offset` of the file `path`."""
    bitmap = _unframed(Stretch(blob, path, offset))
    cardinality = checked_cardinality(bitmap)
    if expected_cardinality is not None and cardinality != expected_cardinality:
        raise bitmap.corrupt(0, f"{expected_cardinality} deleted positions, as the metadata says", f"{cardinality}")
    return PositionSet(FrozenBitMap64.deserialize(bitmap.data))


def _unframed(blob: Stretch) -> Stretch:
    """The bitmap inside the frame of length, magic and CRC."""
    data, length = blob.data, blob.number(">I", 0, "a vector length")
    if length != len(data) - 8 or length < len(MAGIC):
        raise blob.corrupt(0, f"a vector length of {len(data) - 8}, for a blob of {len(data)} bytes,", f"{length}")
    body = data[4:-4]
    if not body.startswith(MAGIC):
        raise blob.corrupt(4, f"the magic {MAGIC.hex()}", body[:4].hex())
    stored = blob.number(">I", len(data) - 4, "a CRC-32")
    if zlib.crc32(body) != stored:
        raise blob.corrupt(len(data) - 4, f"the CRC-32 {zlib.crc32(body):08x} of the bytes before it", f"{stored:08x}")
    return Stretch(body[4:], blob.path, blob.offset + 8)


def _as_int64(positions: NDArray[np.integer] | pa.Array | pa.ChunkedArray | Iterable[int]) -> NDArray[np.int64]:
    if isinstance(positions, (pa.Array, pa.ChunkedArray)):
        if positions.null_count:
            raise UserError(f"Row positions must not be null, got {positions.null_count} nulls.")
        positions = positions.to_numpy(zero_copy_only=False)
    values = positions if isinstance(positions, np.ndarray) else np.asarray(list(positions))
    if len(values) and not np.issubdtype(values.dtype, np.integer):
        raise UserError(f"Row positions must be 64-bit integers, got {values.dtype}.")
    return np.ascontiguousarray(values, dtype=np.int64)


def _words(positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The 64-bit words that hold ascending positions: their numbers and their bits."""
    if not len(positions):
        return positions, positions
    at_word = positions >> _WORD_BITS
    firsts = np.flatnonzero(np.diff(at_word, prepend=-1))
    bits = np.left_shift(np.uint64(1), (positions & 63).astype(np.uint64))
    return at_word[firsts], np.bitwise_or.reduceat(bits, firsts).view(np.int64)
