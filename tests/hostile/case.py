"""One hostile table: the valid table it is derived from, the damage, and the allowed results."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.hostile.honest_tables import DamagedLake


@dataclass(frozen=True)
class Case:
    """Damage to a table.

    `detected_by`: who can detect the damage by a checksum, a length or a contradiction, so that rows other than those
    of the valid table are a fault: every reader, only the audit, or nobody, because only the metadata defines the rows
    of a table. `audited`: `verify` opens the damaged file, so it must not report a sound table if a scan fails. `lies`:
    the damage is in metadata about other files, so an error may name one of those. `names`: what else an error may
    name.
    """

    family: str
    name: str
    version: int
    apply: Callable[[DamagedLake], object]
    detected_by: Literal["reader", "audit", "nobody"] = "reader"
    audited: bool = True
    lies: bool = False
    names: tuple[str, ...] = ()
    memory: int = 900 << 20  # bytes it may use; a case with a large valid result raises this
    separate_processes: bool = False  # each verb in its own process: one may leave no memory for the next
    deletes: bool = False  # run the verbs that delete files too, not only their plans

    @property
    def kind(self) -> tuple[str, str]:
        """The damage, without the format version."""
        return self.family, self.name

    @property
    def label(self) -> str:
        return f"{self.family}: v{self.version}: {self.name}"


def seeded_random(*seed: object) -> random.Random:
    """Return a random generator that is the same in every run."""
    return random.Random(repr(seed))
