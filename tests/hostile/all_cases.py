"""All hostile cases in a fixed order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import chain
from zlib import crc32

from tests.hostile.case import Case
from tests.hostile.families import avro, bombs, metadata, parquet, paths, raw, values, vectors

QUICK = 40
FULL = 4_800  # about a quarter of an hour; some 3,600 of them are one case of each kind
PINNED = (  # each failed once, or is a bomb that is quick to create
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
_SLOW = ("bomb",)  # most of their time is spent on creating the files


@cache
def corpus() -> tuple[Case, ...]:
    """Return all cases."""
    families = (raw, avro, parquet, vectors, metadata, values, paths, bombs)
    return tuple(chain.from_iterable(family.cases() for family in families))


def select_cases(everything: bool, part: str = "") -> list[Case]:
    """Return one case of each kind and a sample of the others, or a quick sample; `part` selects by label instead."""
    if part:
        return [case for case in corpus() if part in case.label]
    first = pinned_cases() + (one_of_each(corpus()) if everything else [])
    taken = {case.label for case in first}
    others = [case for case in corpus() if case.label not in taken and (everything or case.family not in _SLOW)]
    return first + sample(others, FULL - len(first) if everything else QUICK)


def pinned_cases() -> list[Case]:
    """Return the cases that always run."""
    return [case for case in corpus() if case.label in PINNED]


def one_of_each(cases: Sequence[Case]) -> list[Case]:
    """Return a case of each kind that is not pinned: the same damage on several versions is one kind.

    A hash of its name selects the version of a kind, so that the choice is independent of the order of the kinds.
    """
    kinds: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in cases:
        kinds[case.kind].append(case)
    unpinned_kinds = [of_kind for of_kind in kinds.values() if not any(case.label in PINNED for case in of_kind)]
    return [of_kind[crc32(repr(of_kind[0].kind).encode()) % len(of_kind)] for of_kind in unpinned_kinds]


def sample(cases: Sequence[Case], count: int) -> list[Case]:
    """Return `count` cases, evenly spread over families and versions; large families fill up for small ones."""
    by_family: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_family[case.family].append(case)
    picked: list[Case] = []
    for done, family_cases in enumerate(sorted(by_family.values(), key=len)):
        wanted = min(len(family_cases), (count - len(picked)) // (len(by_family) - done))
        picked += [family_cases[(2 * i + 1) * len(family_cases) // (2 * wanted)] for i in range(wanted)]
    return picked
