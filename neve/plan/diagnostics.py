"""Why a filter could not be judged, said in a bounded list: once per spec or partition, never more than a page.

>>> why = "unknown transform 'mystery' of partition field region_mystery"
>>> found = Diagnostics.of(Undecided(spec_id, None, why, partitions=2, files=3) for spec_id in (5, 4))
>>> print(found)
spec 4: unknown transform 'mystery' of partition field region_mystery; 3 files of 2 partitions taken
spec 5: unknown transform 'mystery' of partition field region_mystery; 3 files of 2 partitions taken
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from neve.display.format import several
from neve.model.partition import PartitionKey

__all__ = ["MOST", "Diagnostics", "Undecided"]

MOST = 32
"""How many undecided specs and partitions are listed; the others are counted."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """A spec, or one of its partitions, that a filter could not be judged for: its files were taken."""

    spec_id: int
    partition: PartitionKey | None  # None: every partition of the spec
    why: str
    partitions: int  # how many were taken
    files: int  # how many candidates are in them

    def __str__(self) -> str:
        where = f"spec {self.spec_id}" + (f", partition {self.partition.values}" if self.partition else "")
        return f"{where}: {self.why}; {several(self.files, 'file')} of {several(self.partitions, 'partition')} taken"

    def sort_key(self) -> tuple[Any, ...]:
        """By spec, the spec itself first, then its partitions in their order."""
        key = self.partition
        return (self.spec_id,) if key is None else key.sort_key()


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What a filter could not decide; empty when every file was judged by the whole filter."""

    undecided: tuple[Undecided, ...] = ()
    left_out: int = 0  # undecided specs and partitions that are not listed
    judged_in_part: str | None = None  # the condition, when some of what it says cannot choose files

    @classmethod
    def of(cls, undecided: Iterable[Undecided], judged_in_part: str | None = None) -> Diagnostics:
        """The first of them by spec and partition, whatever the order they were found in."""
        found = sorted(undecided, key=Undecided.sort_key)
        return cls(tuple(found[:MOST]), max(len(found) - MOST, 0), judged_in_part)

    def __bool__(self) -> bool:
        return bool(self.undecided) or self.judged_in_part is not None

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """A sentence for each."""
        if self.judged_in_part is not None:
            yield f"only comparisons of columns with constants choose files: {self.judged_in_part}"
        yield from map(str, self.undecided)
        if self.left_out:
            yield f"and {self.left_out} more"
