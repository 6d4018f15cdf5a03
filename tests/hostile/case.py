"""One hostile table: which honest table it is made of, what is done to it, and what may come of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.hostile.honest_tables import Place


@dataclass(frozen=True)
class Case:
    """Damage to a table.

    `told_by`: who can notice, by a checksum, a length or a contradiction, so that other rows than those of the honest
    table are a fault: every reader, the audit alone, or nobody, since the metadata is all there is to say which rows a
    table has. `audited`: `verify` opens what was damaged, so that it must not call the table sound when a scan fails.
    `lies`: the damage is in what metadata says about other files, so that an error may name one of those. `names`: what
    else an error may name.
    """

    family: str
    name: str
    version: int
    apply: Callable[[Place], object]
    told_by: Literal["reader", "audit", "nobody"] = "reader"
    audited: bool = True
    lies: bool = False
    names: tuple[str, ...] = ()
    memory: int = 900 << 20  # bytes it may take; those of an answer that is honestly large are the caller's business
    apart: bool = False  # each verb in a process of its own: one may leave no memory to the next
    deletes: bool = False  # run the verbs that delete files too, not only their plans

    @property
    def kind(self) -> tuple[str, str]:
        """The damage apart from the version it is done to."""
        return self.family, self.name

    @property
    def label(self) -> str:
        return f"{self.family}: v{self.version}: {self.name}"


def chance(*seed: object) -> random.Random:
    """Randomness that is the same in every run."""
    return random.Random(repr(seed))
