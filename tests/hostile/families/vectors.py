"""Malicious deletion vectors: frames and checksums are right, but the bitmap or the metadata about it is wrong."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.hostile.case import Case
from tests.hostile.containers import edit_entries
from tests.hostile.honest_tables import DamagedLake

MAGIC = b"\xd1\xd3\x39\x64"
NO_RUNS, WITH_RUNS = 12346, 12347


def frame(bitmap: bytes, magic: bytes = MAGIC, crc: int | None = None, length: int | None = None) -> bytes:
    body = magic + bitmap
    size = len(body) if length is None else length
    return struct.pack(">I", size & 0xFFFFFFFF) + body + struct.pack(">I", zlib.crc32(body) if crc is None else crc)


def bitmaps(*keyed: tuple[int, bytes], count: int | None = None) -> bytes:
    head = struct.pack("<Q", len(keyed) if count is None else count)
    return head + b"".join(struct.pack("<I", key) + body for key, body in keyed)


def arrays(
    *containers: tuple[int, list[int]], sizes: list[int] | None = None, offsets: list[int] | None = None
) -> bytes:
    """Encode a 32-bit bitmap of sorted arrays; sizes and offsets may be wrong."""
    count = len(containers)
    stated = sizes or [len(values) for _, values in containers]
    head = struct.pack("<II", NO_RUNS, count)
    head += b"".join(struct.pack("<HH", key, (n - 1) & 0xFFFF) for (key, _), n in zip(containers, stated, strict=True))
    at, default_offsets = len(head) + 4 * count, []
    for _, values in containers:
        default_offsets.append(at)
        at += 2 * len(values)
    head += b"".join(struct.pack("<I", offset) for offset in offsets or default_offsets)
    return head + b"".join(struct.pack(f"<{len(v)}H", *v) for _, v in containers)


def runs(*pairs: tuple[int, int], cardinality: int, stated: int | None = None) -> bytes:
    """Encode a 32-bit bitmap of one container of runs (first, how many more)."""
    head = struct.pack("<IB", (0 << 16) | WITH_RUNS, 1) + struct.pack("<HH", 0, (cardinality - 1) & 0xFFFF)
    count = len(pairs) if stated is None else stated
    return head + struct.pack("<H", count) + b"".join(struct.pack("<HH", *pair) for pair in pairs)


ONE = arrays((0, [1]))
BLOBS: dict[str, bytes] = {
    "an empty blob": b"",
    "four bytes": b"\0\0\0\4",
    "a frame of nothing": frame(b""),
    "a negative length": frame(bitmaps((0, ONE)), length=-1),
    "a huge length": frame(bitmaps((0, ONE)), length=0x7FFFFFFF),
    "another magic": frame(bitmaps((0, ONE)), magic=b"\0\0\0\0"),
    "a wrong checksum": frame(bitmaps((0, ONE)), crc=7),
    "another row under the old checksum": frame(
        bitmaps((0, arrays((0, [9])))), crc=zlib.crc32(MAGIC + bitmaps((0, ONE)))
    ),
    "a count of 2^63": frame(bitmaps((0, ONE), count=1 << 63)),
    "a count of 2^40": frame(bitmaps((0, ONE), count=1 << 40)),
    "a bitmap too few": frame(bitmaps((0, ONE), count=2)),
    "a bitmap too many": frame(bitmaps((0, ONE), (1, ONE), count=1)),
    "a key of 10^8": frame(bitmaps((100_000_000, ONE))),
    "a key of 2^31 - 1": frame(bitmaps((0x7FFFFFFF, ONE))),
    "a key of 2^32 - 1": frame(bitmaps((0xFFFFFFFF, ONE))),
    "a key twice": frame(bitmaps((0, ONE), (0, ONE))),
    "keys that descend": frame(bitmaps((1, ONE), (0, ONE))),
    "an unknown cookie": frame(bitmaps((0, b"\xff" * 16))),
    "70,000 containers": frame(bitmaps((0, struct.pack("<II", NO_RUNS, 70_000) + bytes(64)))),
    "2^32 - 1 containers": frame(bitmaps((0, struct.pack("<II", NO_RUNS, 0xFFFFFFFF) + bytes(64)))),
    "no containers": frame(bitmaps((0, struct.pack("<II", NO_RUNS, 0)))),
    "containers that descend": frame(bitmaps((0, arrays((1, [1]), (0, [1]))))),
    "a container twice": frame(bitmaps((0, arrays((0, [1]), (0, [2]))))),
    "values that descend": frame(bitmaps((0, arrays((0, [3, 1]))))),
    "a value twice": frame(bitmaps((0, arrays((0, [1, 1]))))),
    "a container larger than the blob": frame(bitmaps((0, arrays((0, [1]), sizes=[4000])))),
    "a container of bits without bits": frame(bitmaps((0, arrays((0, [1]), sizes=[60_000])))),
    "an offset beyond the end": frame(bitmaps((0, arrays((0, [1]), offsets=[1 << 30])))),
    "an offset into the head": frame(bitmaps((0, arrays((0, [1]), offsets=[0])))),
    "an odd offset": frame(bitmaps((0, arrays((0, [1]), offsets=[17])))),
    "containers that overlap": frame(bitmaps((0, arrays((0, [1]), (1, [2]), offsets=[24, 24])))),
    "no runs": frame(bitmaps((0, runs(cardinality=1)))),
    "a run beyond the end": frame(bitmaps((0, runs((65_535, 10), cardinality=11)))),
    "runs that overlap": frame(bitmaps((0, runs((0, 10), (5, 10), cardinality=22)))),
    "runs that descend": frame(bitmaps((0, runs((50, 1), (5, 1), cardinality=4)))),
    "more runs than bytes": frame(bitmaps((0, runs((0, 1), cardinality=2, stated=60_000)))),
    "bytes after the bitmaps": frame(bitmaps((0, ONE)) + b"more"),
    "every row of four billion": frame(bitmaps((0, b""))),
}


BEYOND_THE_FILE = ("a key of 10^8", "a key of 2^31 - 1")
"""Valid bitmaps of rows that the data file does not have: nothing is deleted, as the format defines."""


def _all_rows(keys: int) -> bytes:
    """Encode runs over every position below keys * 2^32: billions of rows in a few hundred kilobytes."""
    full = struct.pack("<I", (65_535 << 16) | WITH_RUNS) + b"\xff" * 8192
    full += b"".join(struct.pack("<HH", key, 0xFFFF) for key in range(65_536))
    at = len(full) + 4 * 65_536
    full += b"".join(struct.pack("<I", at + 6 * i) for i in range(65_536))
    full += struct.pack("<HHH", 1, 0, 0xFFFF) * 65_536
    return frame(bitmaps(*((key, full) for key in range(keys))))


PUFFINS: dict[str, Callable[[bytes], bytes]] = {
    "a footer of 2^31 - 1 bytes": lambda d: d[:-12] + struct.pack("<i", 0x7FFFFFFF) + d[-8:],
    "a negative footer": lambda d: d[:-12] + struct.pack("<i", -1) + d[-8:],
    "unknown flags": lambda d: d[:-8] + b"\xff\xff\xff\xff" + d[-4:],
    "a compressed footer": lambda d: d[:-8] + b"\1\0\0\0" + d[-4:],
    "another magic": lambda d: d[:-4] + b"XXXX",
    "another first magic": lambda d: b"XXXX" + d[4:],
    "a footer that is no JSON": lambda d: d[:-20] + b"\xff" * 8 + d[-12:],
    "a deep footer": lambda d: _with_footer(d, b'{"blobs":' + b"[" * 100_000),
    "a footer of 10^6 blobs": lambda d: _with_footer(d, b'{"blobs":[' + b"{}," * 1_000_000 + b"{}]}"),
    "a blob that is no object": lambda d: _with_footer(d, b'{"blobs":[7]}'),
    "a blob beyond the end": lambda d: _with_footer(
        d,
        b'{"blobs":[{"type":"deletion-vector-v1","fields":[1],"snapshot-id":1,"sequence-number":1,"offset":4,"length":99999999999}]}',
    ),
    "a footer of null": lambda d: _with_footer(d, b"null"),
}


def _with_footer(data: bytes, payload: bytes) -> bytes:
    length = int.from_bytes(data[-12:-8], "little")
    return data[: -16 - length] + b"PFA1" + payload + struct.pack("<i4s4s", len(payload), bytes(4), b"PFA1")


WRONG_VALUES: dict[str, dict[str, Any]] = {
    **{f"an offset of {n}": {"content_offset": n} for n in (-1, 0, 1 << 40, (1 << 63) - 1)},
    **{f"a size of {n}": {"content_size_in_bytes": n} for n in (-1, 0, 8, 1 << 40, (1 << 63) - 1)},
    **{f"{n} positions": {"record_count": n} for n in (-1, 0, 7, (1 << 63) - 1)},
    "no offset": {"content_offset": None},
    "no size": {"content_size_in_bytes": None},
    "no data file": {"referenced_data_file": None},
    "an unknown data file": {"referenced_data_file": "file:///nowhere/x.parquet"},
}


def cases() -> Iterator[Case]:
    """A bitmap is accepted only if all of it is valid and its count equals that of the metadata."""
    for what, blob in BLOBS.items():
        detected_by = "audit" if what in BEYOND_THE_FILE else "reader"
        yield Case("vector", what, 3, partial(_replace_blob, blob, 1), detected_by=detected_by)
    for keys in (1, 8):
        rows = keys << 32
        yield Case(
            "vector",
            f"{rows} positions",
            3,
            lambda p, k=keys, n=rows: _replace_blob(_all_rows(k), n, p),
            detected_by="nobody",
        )
    yield Case(
        "vector",
        "another count than the metadata",
        3,
        partial(_replace_blob, frame(bitmaps((0, arrays((0, [1, 2]))))), 1),
    )
    yield Case(
        "vector",
        "a position beyond the file",
        3,
        partial(_replace_blob, frame(bitmaps((0, arrays((0, [9999]))))), 1),
        detected_by="audit",
    )
    for version in (3, 4):
        for what, make in PUFFINS.items():
            yield Case("vector", f"file with {what}", version, partial(_rewrite_puffin, make), audited=False)
    for what, values in WRONG_VALUES.items():
        detected_by = "audit" if "data file" in what else "reader"
        yield Case(
            "vector", f"said to have {what}", 3, partial(_set_entry_values, values), detected_by=detected_by, lies=True
        )


def _replace_blob(blob: bytes, rows: int, lake: DamagedLake) -> None:
    path = lake.path("vector")
    path.write_bytes(b"PFA1" + blob + path.read_bytes()[-200:])
    stated = {"content_offset": 4, "content_size_in_bytes": len(blob), "record_count": rows}
    edit_entries(lake, path.name, lambda file: file.update(stated, file_size_in_bytes=path.stat().st_size))


def _rewrite_puffin(make: Callable[[bytes], bytes], lake: DamagedLake) -> None:
    path = lake.path("vector")
    path.write_bytes(make(path.read_bytes()))


def _set_entry_values(values: dict[str, Any], lake: DamagedLake) -> None:
    edit_entries(lake, lake.path("vector").name, lambda file: file.update(values))
