"""Read the bloom filters of a Parquet file: a column chunk that surely lacks a value need not be read.

A filter has blocks of eight words. The hash of a value chooses a block, and one bit in each of its words; where one of
these bits is not set, the chunk lacks the value. Other kinds of filters, and damaged ones, say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

from neve.errors import CorruptFile
from neve.io.parquet_footer import ChunkStatistics, read_at
from neve.io.thrift import SPAN, DamagedThrift, decode_struct

_MAX_HEADER_BYTES = 64
_MAX_BYTES = 128 << 20
_BYTES, _ALGORITHM, _HASH, _COMPRESSION = 1, 2, 3, 4  # Parquet's fields by number
_BLOCK_WORDS, _WORD_BYTES = 8, 4
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)


@dataclass(frozen=True)
class BloomFilter:
    """The bits of a filter: a row of words for each block."""

    blocks: NDArray[np.uint32]

    def may_hold(self, value: bytes) -> bool:
        """Return whether a value may be in the column chunk; it is given as plainly encoded, without a length."""
        found = xxh64_intdigest(value)
        block = self.blocks[(found >> 32) * len(self.blocks) >> 32]
        with np.errstate(over="ignore"):
            bits = (np.uint32(found & 0xFFFFFFFF) * _SALTS) >> np.uint32(27)
        return bool(((block >> bits) & np.uint32(1)).all())


def read_bloom_filter(stream: Any, size: int, chunk: ChunkStatistics, path: str) -> BloomFilter | None:
    """Read the filter of a column chunk in an open file of `size` bytes; None if it has none that can be used."""
    start = chunk.bloom_filter_start
    if not start or start >= size:
        return None
    head = read_at(stream, start, min(_MAX_HEADER_BYTES, size - start), path)
    try:
        header = decode_struct(head)
        length, bits_start = header.get(_BYTES), start + header[SPAN][1]
    except DamagedThrift:
        return None
    is_known = all(isinstance(kind := header.get(n), dict) and 1 in kind for n in (_ALGORITHM, _HASH, _COMPRESSION))
    if not is_known or not isinstance(length, int) or not 0 < length <= min(_MAX_BYTES, size - bits_start):
        return None
    if length % (_BLOCK_WORDS * _WORD_BYTES):
        return None
    try:
        words = np.frombuffer(read_at(stream, bits_start, length, path), "<u4")
    except CorruptFile:
        return None
    return BloomFilter(words.reshape(-1, _BLOCK_WORDS))
