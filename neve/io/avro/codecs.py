"""The block codecs of Avro: bounded decompression of untrusted bytes, and compression.

A decompressor gets a budget and raises `OutputTooLarge` when the output would pass it, `DamagedBlock` when the bytes are not what
the codec wrote. The caller turns both into errors that name the file.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

try:
    import deflate as libdeflate
except ImportError:  # the standard library does the same at half the speed
    libdeflate = None


Bytes = bytes | bytearray | memoryview
DEFLATE_LEVEL = 5  # of deflate: as small as 6 on manifests, a tenth cheaper
LZMA_MEMORY = 256 << 20  # the dictionary a stream may ask for
SIZE_GUESSES = ((8, 4096), (1040, 0))  # output for a byte of input and a constant; deflate makes at most 1032 of one
LARGEST_GUESS = 16 << 20  # beyond it, output is made piece by piece
PIECE = 1 << 20


class DamagedBlock(Exception):
    """The compressed bytes cannot be decompressed."""


class OutputTooLarge(Exception):
    """The decompressed bytes pass the budget."""


def _inflate(data: Bytes, budget: int) -> Bytes:
    """Raw deflate; what follows the stream is ignored, as some writers leave a piece of a checksum there."""
    if libdeflate is not None:
        for factor, constant in SIZE_GUESSES:
            guess = min(len(data) * factor + constant, LARGEST_GUESS, budget)
            try:
                return libdeflate.deflate_decompress(data, guess)
            except libdeflate.DeflateError:
                continue  # too small a guess and damaged bytes look the same here; zlib tells them apart
    return _join_within_budget(_inflated_pieces(data), budget)


def _inflated_pieces(data: Bytes) -> Iterator[bytes]:
    stream = zlib.decompressobj(-15)
    rest: Bytes = data
    while not stream.eof:
        piece = stream.decompress(rest, PIECE)
        rest = stream.unconsumed_tail
        if not piece and not rest and not stream.eof:
            raise EOFError("the stream ends too early")
        yield piece


def _decompressed_pieces(stream: Any, data: Bytes) -> Iterator[bytes]:
    """The output of a decompressor of the standard library that keeps its own unread input."""
    while not stream.eof:
        piece = stream.decompress(data, PIECE)
        data = b""
        if not piece and stream.needs_input and not stream.eof:
            raise EOFError("the stream ends too early")
        yield piece


def _join_within_budget(pieces: Iterator[bytes], budget: int) -> bytearray:
    """All pieces in one; no more memory is touched than the budget and a piece."""
    out = bytearray()
    try:
        for piece in pieces:
            out += piece
            if len(out) > budget:
                raise OutputTooLarge
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as e:
        raise DamagedBlock(str(e)) from e
    return out


def _bunzip(data: Bytes, budget: int) -> bytearray:
    return _join_within_budget(_decompressed_pieces(bz2.BZ2Decompressor(), data), budget)


def _unxz(data: Bytes, budget: int) -> bytearray:
    return _join_within_budget(_decompressed_pieces(lzma.LZMADecompressor(memlimit=LZMA_MEMORY), data), budget)


def _unzstd(data: Bytes, budget: int) -> bytearray:
    stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "zstd")
    return _join_within_budget(iter(lambda: stream.read(PIECE), b""), budget)


def _unsnappy(data: Bytes, budget: int) -> bytes:
    """A snappy block, which names its size first, and the big-endian CRC-32 of what it holds."""
    if len(data) < 5:
        raise DamagedBlock("too short for a checksum")
    body, checksum = data[:-4], int.from_bytes(data[-4:], "big")
    size = sum((byte & 127) << (7 * i) for i, byte in enumerate(_varint_bytes(body)))
    if size > budget:
        raise OutputTooLarge
    try:
        out: bytes = pa.decompress(pa.py_buffer(body), decompressed_size=size, codec="snappy", asbytes=True)
    except OSError as e:
        raise DamagedBlock(str(e)) from e
    if zlib.crc32(out) != checksum:
        raise DamagedBlock("the checksum does not match")
    return out


def _varint_bytes(data: Bytes) -> Bytes:
    end = next((i for i in range(min(5, len(data))) if data[i] < 128), None)
    if end is None:
        raise DamagedBlock("no size in front")
    return data[: end + 1]


def _plain(data: Bytes, budget: int) -> Bytes:
    if len(data) > budget:
        raise OutputTooLarge
    return data


def _deflate(data: Bytes) -> Bytes:
    if libdeflate is not None:
        return libdeflate.deflate_compress(data, DEFLATE_LEVEL)
    stream = zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()


def _zstd(data: Bytes) -> Bytes:
    out: bytes = pa.compress(pa.py_buffer(data), codec="zstd", asbytes=True)
    return out


DECOMPRESSORS: dict[str, Callable[[Bytes, int], Bytes]] = {
    "null": _plain,
    "deflate": _inflate,
    "snappy": _unsnappy,
    "zstandard": _unzstd,
    "bzip2": _bunzip,
    "xz": _unxz,
}
COMPRESSORS: dict[str, Callable[[Bytes], Bytes]] = {"null": lambda data: data, "deflate": _deflate, "zstandard": _zstd}
