"""The block codecs of Avro: bounded decompression of untrusted bytes, and compression.

A decompressor gets a budget and raises `TooLarge` when the output would pass it, `Damaged` when the bytes are not what
the codec wrote. The caller turns both into errors that name the file.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

try:
    import deflate as libdeflate
except ImportError:  # the standard library does the same at half the speed
    libdeflate = None

__all__ = ["COMPRESSORS", "DECOMPRESSORS", "Damaged", "TooLarge"]

Bytes = bytes | bytearray | memoryview
LEVEL = 5  # of deflate: as small as 6 on manifests, a tenth cheaper
LZMA_MEMORY = 256 << 20  # the dictionary a stream may ask for
GUESSES = ((8, 4096), (1040, 0))  # output for a byte of input and a constant; deflate makes at most 1032 of one
LARGEST_GUESS = 16 << 20  # beyond it, output is made piece by piece


class Damaged(Exception):
    """The compressed bytes cannot be decompressed."""


class TooLarge(Exception):
    """The decompressed bytes pass the budget."""


def _inflate(data: Bytes, budget: int) -> Bytes:
    """Raw deflate; what follows the stream is ignored, as some writers leave a piece of a checksum there."""
    if libdeflate is not None:
        for factor, constant in GUESSES:
            guess = min(len(data) * factor + constant, LARGEST_GUESS, budget)
            try:
                return libdeflate.deflate_decompress(data, guess)
            except libdeflate.DeflateError:
                continue  # too small a guess and damaged bytes look the same here; zlib tells them apart
    return _bounded(zlib.decompressobj(-15), data, budget, zlib.error)


def _bounded(stream: Any, data: Bytes, budget: int, error: type[Exception]) -> bytes:
    try:
        out: bytes = stream.decompress(data, budget + 1)
    except error as e:
        raise Damaged(str(e)) from e
    if len(out) > budget:
        raise TooLarge
    if not stream.eof:
        raise Damaged("the stream ends too early")
    return out


def _bunzip(data: Bytes, budget: int) -> bytes:
    return _bounded(bz2.BZ2Decompressor(), data, budget, OSError)


def _unxz(data: Bytes, budget: int) -> bytes:
    return _bounded(lzma.LZMADecompressor(memlimit=LZMA_MEMORY), data, budget, lzma.LZMAError)


def _unzstd(data: Bytes, budget: int) -> bytes:
    try:
        out: bytes = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "zstd").read(budget + 1)
    except OSError as e:
        raise Damaged(str(e)) from e
    if len(out) > budget:
        raise TooLarge
    return out


def _unsnappy(data: Bytes, budget: int) -> bytes:
    """A snappy block, which names its size first, and the big-endian CRC-32 of what it holds."""
    if len(data) < 5:
        raise Damaged("too short for a checksum")
    body, checksum = data[:-4], int.from_bytes(data[-4:], "big")
    size = sum((byte & 127) << (7 * i) for i, byte in enumerate(_varint_bytes(body)))
    if size > budget:
        raise TooLarge
    try:
        out: bytes = pa.decompress(pa.py_buffer(body), decompressed_size=size, codec="snappy", asbytes=True)
    except OSError as e:
        raise Damaged(str(e)) from e
    if zlib.crc32(out) != checksum:
        raise Damaged("the checksum does not match")
    return out


def _varint_bytes(data: Bytes) -> Bytes:
    end = next((i for i in range(min(5, len(data))) if data[i] < 128), None)
    if end is None:
        raise Damaged("no size in front")
    return data[: end + 1]


def _plain(data: Bytes, budget: int) -> Bytes:
    if len(data) > budget:
        raise TooLarge
    return data


def _deflate(data: Bytes) -> Bytes:
    if libdeflate is not None:
        return libdeflate.deflate_compress(data, LEVEL)
    stream = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
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
