"""Damage independent of formats: truncated files, flipped bits, exchanged files, and paths that are not files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.hostile.case import Case, seeded_random
from tests.hostile.honest_tables import VERSIONS, DamagedLake

METADATA = ("metadata", "list", "old list", "manifest", "delete manifest")
ROLES = {
    1: ("metadata", "list", "old list", "manifest", "data", "data of another spec"),
    2: (*METADATA, "data", "data of another spec", "positions", "equality", "orc", "avro"),
    3: (*METADATA, "data", "data of another spec", "vector", "equality"),
    4: ("metadata", "list", "old list", "manifest", "data", "data of another spec", "vector"),
}
CUT_POSITIONS = (0, 1, 3, 4, 5, 8, 12, 16, 17, 33, 64, 150, -1, -2, -4, -5, -8, -9, -12, -13, -17, -40)
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)


def cases() -> Iterator[Case]:
    yield from cuts()
    yield from flips()
    yield from swaps()
    yield from replaced_contents()
    yield from non_files()


def cuts() -> Iterator[Case]:
    """A truncated file is never read as a complete one."""
    for version, roles in ROLES.items():
        for role in roles:
            for end in CUT_POSITIONS:
                yield Case("cut", f"{role} at {end}", version, partial(_cut, role, end))
            for share in SHARES:
                yield Case("cut", f"{role} at {share:.0%}", version, partial(_cut_share, role, share))


def _cut(role: str, end: int, lake: DamagedLake) -> None:
    data = lake.path(role).read_bytes()
    lake.path(role).write_bytes(data[:end] if abs(end) <= len(data) else data[: len(data) // 3])


def _cut_share(role: str, share: float, lake: DamagedLake) -> None:
    data = lake.path(role).read_bytes()
    lake.path(role).write_bytes(data[: int(len(data) * share)])


FLIPS: dict[str, Callable[[bytearray, object], object]] = {}


def _flip(function: Callable) -> Callable:
    FLIPS[function.__name__.strip("_").replace("_", " ")] = function
    return function


@_flip
def _one_bit(data: bytearray, r) -> None:
    data[r.randrange(len(data))] ^= 1 << r.randrange(8)


@_flip
def _a_bit_in_front(data: bytearray, r) -> None:
    data[r.randrange(min(len(data), 48))] ^= 1 << r.randrange(8)


@_flip
def _a_bit_at_the_end(data: bytearray, r) -> None:
    data[-1 - r.randrange(min(len(data), 48))] ^= 1 << r.randrange(8)


@_flip
def _a_few_bytes(data: bytearray, r) -> None:
    for _ in range(r.choice((2, 5, 30))):
        data[r.randrange(len(data))] = r.randrange(256)


@_flip
def _a_stretch_of_zeros(data: bytearray, r) -> None:
    at = r.randrange(len(data))
    data[at : at + 16] = bytes(len(data[at : at + 16]))


@_flip
def _a_stretch_of_ones(data: bytearray, r) -> None:
    at = r.randrange(len(data))
    data[at : at + 9] = b"\xff" * len(data[at : at + 9])


@_flip
def _a_stretch_twice(data: bytearray, r) -> None:
    at = r.randrange(len(data))
    data[at:at] = data[at : at + 40]


@_flip
def _a_byte_less(data: bytearray, r) -> None:
    del data[r.randrange(len(data))]


def flips(seeds: int = 3) -> Iterator[Case]:
    """Only vectors have a checksum over all relevant bytes; other files may give other values, without harm."""
    for version, roles in ROLES.items():
        for role in roles:
            detected_by = "reader" if role == "vector" else "nobody"
            audited = role in METADATA or role == "vector"
            for kind in FLIPS:
                for seed in range(seeds):
                    label = f"{kind} of {role}, {seed}"
                    change = partial(_flip_bytes, role, kind, f"{version} {label}")
                    lie = {"lies": True, "names": ("/db/t/",)} if role in METADATA else {}
                    yield Case("flip", label, version, change, detected_by=detected_by, audited=audited, **lie)


def _flip_bytes(role: str, kind: str, seed: str, lake: DamagedLake) -> None:
    data = bytearray(lake.path(role).read_bytes())
    FLIPS[kind](data, seeded_random(seed))
    lake.path(role).write_bytes(data)


def swaps() -> Iterator[Case]:
    """One file instead of another; an older list is valid by itself, so only an audit can detect it."""
    for version, roles in ROLES.items():
        for role in roles:
            for other in roles:
                if role != other:
                    detected_by = "audit" if {role, other} == {"list", "old list"} else "reader"
                    yield Case(
                        "swap",
                        f"{other} as {role}",
                        version,
                        partial(_copy_other_file, role, other),
                        detected_by=detected_by,
                    )


def _copy_other_file(role: str, other: str, lake: DamagedLake) -> None:
    lake.path(role).write_bytes(lake.path(other).read_bytes())


CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "ones": lambda data: b"\xff" * len(data),
    "noise": lambda data: seeded_random(len(data)).randbytes(len(data)),
    "a picture": lambda data: b"GIF89a" + data[6:],
    "a page of HTML": lambda data: b"<html><body>AccessDenied</body></html>",
    "itself twice": lambda data: data + data,
    "magic alone": lambda data: data[:4],
    "magic and noise": lambda data: data[:4] + seeded_random(1).randbytes(len(data)) + data[-4:],
    "an encrypted file": lambda data: b"AGS1" + data[4:],
    "a gzip of itself": lambda data: __import__("gzip").compress(data),
}


WITH_A_FOOTER = ("a picture", "an encrypted file", "magic and noise")  # an audit reads only the footer of a data file


def replaced_contents() -> Iterator[Case]:
    """Entirely different content; only metadata may be gzip."""
    for version, roles in ROLES.items():
        for role in roles:
            for what, make in CONTENTS.items():
                detected_by = "reader" if (role, what) != ("vector", "itself twice") else "nobody"
                audited = role in (*METADATA, "vector") or what not in WITH_A_FOOTER
                change = partial(_replace_content, role, make)
                yield Case("filling", f"{what} as {role}", version, change, detected_by=detected_by, audited=audited)


def _replace_content(role: str, make: Callable[[bytes], bytes], lake: DamagedLake) -> None:
    lake.path(role).write_bytes(make(lake.path(role).read_bytes()))


def non_files() -> Iterator[Case]:
    """Paths that are not regular files: opening them may never return."""
    replacements = {
        "nothing": lambda path: None,
        "a folder": lambda path: path.mkdir(),
        "a pipe": os.mkfifo,
        "a link to itself": lambda path: path.symlink_to(path),
        "a link to nowhere": lambda path: path.symlink_to(path.parent / "nowhere"),
        "a link to an endless file": lambda path: path.symlink_to("/dev/zero"),
        "a file of 64 GB": lambda path: (path.touch(), os.truncate(path, 64 << 30)),
    }
    for version in VERSIONS:
        for role in ROLES[version]:
            for what, make in replacements.items():
                yield Case("no file", f"{what} as {role}", version, partial(_replace_file, role, make))


def _replace_file(role: str, make: Callable[[Path], object], lake: DamagedLake) -> None:
    path = lake.path(role)
    path.unlink()
    make(path)
