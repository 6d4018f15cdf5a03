"""The block codecs of Avro: compression, and bounded decompression of untrusted bytes.

A decompressor gets a budget. It raises `OutputTooLarge` if the output would exceed the budget, and `DamagedBlock` if
the bytes are not valid. The caller turns both into errors that name the file.
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
DEFLATE_LEVEL = 5  # on manifests as small as level 6, and a tenth faster
LZMA_MEMORY = 256 << 20  # limit of the dictionary that a stream may request
SIZE_GUESSES = ((8, 4096), (1040, 0))  # output bytes per input byte, and a constant; deflate's maximum is 1032
LARGEST_GUESS = 16 << 20  # larger output is produced piece by piece
PIECE = 1 << 20


class DamagedBlock(Exception):
    """The compressed bytes cannot be decompressed."""


class OutputTooLarge(Exception):
    """The decompressed bytes exceed the budget."""


def _inflate(data: Bytes, budget: int) -> Bytes:
    """Decompress raw deflate. Bytes after the stream are ignored: some writers leave part of a checksum there."""
    if libdeflate is not None:
        for factor, constant in SIZE_GUESSES:
            guess = min(len(data) * factor + constant, LARGEST_GUESS, budget)
            try:
                return libdeflate.deflate_decompress(data, guess)
            except libdeflate.DeflateError:
                continue  # too small a guess or damaged bytes: only zlib can tell the difference
    return _join_within_budget(_decompressed_pieces(zlib.decompressobj(-15), data), budget)


def _decompressed_pieces(stream: Any, data: Bytes) -> Iterator[bytes]:
    """Yield the output of a standard library decompressor. It keeps unread input itself; only zlib gives it back."""
    while not stream.eof:
        piece = stream.decompress(data, PIECE)
        data = getattr(stream, "unconsumed_tail", b"")
        if not piece and not stream.eof and getattr(stream, "needs_input", not data):
            raise EOFError("the stream ends too early")
        yield piece


def _join_within_budget(pieces: Iterator[bytes], budget: int) -> bytearray:
    """Join all pieces, using no more memory than the budget and one piece."""
    out = bytearray()
    try:
        for piece in pieces:
            out += piece
            if len(out) > budget:
                raise OutputTooLarge
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as e:
        raise DamagedBlock(str(e)) from e
    return out


def _with_stdlib(decompressor: Callable[[], Any]) -> Callable[[Bytes, int], bytearray]:
    return lambda data, budget: _join_within_budget(_decompressed_pieces(decompressor(), data), budget)


def _unzstd(data: Bytes, budget: int) -> bytearray:
    stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "zstd")
    return _join_within_budget(iter(lambda: stream.read(PIECE), b""), budget)


def _unsnappy(data: Bytes, budget: int) -> bytes:
    """Decompress a snappy block, which starts with its size, and check the big-endian CRC-32 that follows it."""
    if len(data) < 5:
        raise DamagedBlock("too short for a checksum")
    body, checksum = data[:-4], int.from_bytes(data[-4:], "big")
    varint_end = next((i + 1 for i in range(min(5, len(body))) if body[i] < 128), None)
    if varint_end is None:
        raise DamagedBlock("no size in front")
    size = sum((byte & 127) << (7 * i) for i, byte in enumerate(body[:varint_end]))
    if size > budget:
        raise OutputTooLarge
    try:
        out: bytes = pa.decompress(pa.py_buffer(body), decompressed_size=size, codec="snappy", asbytes=True)
    except OSError as e:
        raise DamagedBlock(str(e)) from e
    if zlib.crc32(out) != checksum:
        raise DamagedBlock("the checksum does not match")
    return out


def _copy(data: Bytes, budget: int) -> Bytes:
    if len(data) > budget:
        raise OutputTooLarge
    return data


def _deflate(data: Bytes) -> Bytes:
    if libdeflate is not None:
        return libdeflate.deflate_compress(data, DEFLATE_LEVEL)
    stream = zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()


DECOMPRESSORS: dict[str, Callable[[Bytes, int], Bytes]] = {
    "null": _copy,
    "deflate": _inflate,
    "snappy": _unsnappy,
    "zstandard": _unzstd,
    "bzip2": _with_stdlib(bz2.BZ2Decompressor),
    "xz": _with_stdlib(lambda: lzma.LZMADecompressor(memlimit=LZMA_MEMORY)),
}
COMPRESSORS: dict[str, Callable[[Bytes], Bytes]] = {
    "null": lambda data: data,
    "deflate": _deflate,
    "zstandard": lambda data: pa.compress(pa.py_buffer(data), codec="zstd", asbytes=True),
}
