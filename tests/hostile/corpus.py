"""Every hostile case there is, in one order."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import chain

from tests.hostile.case import Case
from tests.hostile.families import avro, bombs, metadata, parquet, paths, raw, values, vectors

QUICK = 72
FULL = 3_600
PINNED = (  # each was met badly once, or is a bomb that is quickly made
    "avro: v2: list: every field a string",
    "bomb: v1: list: lists of a billion nothings",
    "bomb: v1: manifest: a million empty records",
    "metadata: v1: a value somewhere, 0",
    "metadata: v1: a value somewhere, 28",
    "metadata: v2: a fixed of 2^62 bytes",
    "metadata: v2: a spec of 10,000 fields",
    "metadata: v4: 100,000 columns",
    "no file: v1: a pipe as metadata",
    "no file: v2: a pipe as data",
    "no file: v4: a pipe as manifest",
    "path: v2: elsewhere as an older metadata file",
    "path: v2: the data lies above the lake",
    "path: v2: the table lies at the root of the disk",
    "path: v4: the table lies above the lake",
    "value: v1: manifest: field 2, 1",
    "value: v2: a manifest listed 2000 times",
    "value: v3: list: field 29, 2",
)
_SLOW = ("bomb",)  # most of their time is spent on making them


@cache
def corpus() -> tuple[Case, ...]:
    """All of them."""
    families = (raw, avro, parquet, vectors, metadata, values, paths, bombs)
    return tuple(chain.from_iterable(family.cases() for family in families))


def chosen(everything: bool, part: str = "") -> list[Case]:
    """Very many cases or a quick spread of them; `part` plays every one whose label has it."""
    if part:
        return [case for case in corpus() if part in case.label]
    pinned = [case for case in corpus() if case.label in PINNED]
    others = [case for case in corpus() if case.label not in PINNED]
    return pinned + spread(others, FULL if everything else QUICK)


def spread(cases: list[Case], count: int) -> list[Case]:
    """So many cases, as evenly over families and versions as it goes."""
    shelves: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        shelves[case.family].append(case)
    each = max(1, count // max(1, len(shelves)))
    picked = []
    for family, shelf in shelves.items():
        wanted = 0 if family in _SLOW and count == QUICK else min(len(shelf), each)
        picked += [shelf[(2 * i + 1) * len(shelf) // (2 * wanted)] for i in range(wanted)]
    return picked
