"""Theta sketches: how many distinct values a column has, estimated from the smallest hashes of the values.

A sketch with no more than 4,096 hashes is exact but for collisions; a larger set is estimated within about 3 %.
Sketches of parts of the rows unite to the sketch of all rows. The bytes are those of Apache DataSketches, which Iceberg
names as the format of the blob `apache-datasketches-theta-v1`.

>>> some, others = (ThetaSketch.of(np.arange(a, b, dtype=np.uint64) << np.uint64(50)) for a, b in ((1, 6), (4, 9)))
>>> (some | others).estimate
8.0
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOB_TYPE = "apache-datasketches-theta-v1"
SEED = 9001  # of the hash function, in all sketches of Iceberg
_SEED_HASH = 0x93CC  # the lower bits of the hash of the seed
_SIZE = 4096  # hashes that a sketch keeps
_PIECE = 1 << 16
_EVERY_HASH = (1 << 63) - 1  # theta of a sketch that has lost none

_SERIAL_VERSION, _COMPACT_FAMILY = 3, 3
_READ_ONLY, _EMPTY, _COMPACT, _ORDERED, _SINGLE = 2, 4, 8, 16, 32
_PREAMBLE = struct.Struct("<BBBBBBH")

Hashes = NDArray[np.uint64]


def _no_hashes() -> Any:
    return np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class ThetaSketch:
    """Distinct hashes of 63 bits, in order, all below theta."""

    hashes: Hashes = field(default_factory=_no_hashes)
    theta: int = _EVERY_HASH

    @classmethod
    def of(cls, hashes: Hashes) -> ThetaSketch:
        """Return the sketch of some hashes, which may repeat."""
        return cls().adding(hashes)

    def __or__(self, other: ThetaSketch) -> ThetaSketch:
        return ThetaSketch(self.hashes, min(self.theta, other.theta)).adding(other.hashes)

    @property
    def estimate(self) -> float:
        """The estimated number of distinct values."""
        return float(len(self.hashes)) * (float(_EVERY_HASH) / self.theta)

    def to_bytes(self) -> bytes:
        """Return the sketch in the compact form of DataSketches."""
        count, is_exact = len(self.hashes), self.theta == _EVERY_HASH
        flags = _READ_ONLY | _COMPACT | _ORDERED
        if is_exact and count <= 1:
            flags |= _SINGLE if count else _EMPTY
            return _preamble(1, flags) + self.hashes.astype("<u8").tobytes()
        parts = [_preamble(2 if is_exact else 3, flags), struct.pack("<if", count, 1.0)]
        parts += [] if is_exact else [struct.pack("<q", self.theta)]
        return b"".join([*parts, self.hashes.astype("<u8").tobytes()])

    def adding(self, hashes: Hashes) -> ThetaSketch:
        """Return the sketch with further hashes, which may repeat."""
        # Piece by piece: after the first pieces, few of the others are below theta.
        kept, theta = self.hashes[self.hashes < np.uint64(self.theta)], self.theta
        for start in range(0, len(hashes), _PIECE):
            piece = hashes[start : start + _PIECE]
            below = piece[(piece < np.uint64(theta)) & (piece > np.uint64(0))]  # 0 stands for no hash
            kept = _distinct(np.concatenate([kept, below])) if len(below) else kept
            if len(kept) > _SIZE:
                kept, theta = kept[:_SIZE], int(kept[_SIZE])
        return ThetaSketch(kept, theta)


def _distinct(hashes: Hashes) -> Hashes:
    ordered = np.sort(hashes)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]


def _preamble(longs: int, flags: int) -> bytes:
    return _PREAMBLE.pack(longs, _SERIAL_VERSION, _COMPACT_FAMILY, 0, 0, flags, _SEED_HASH)
