"""The time, the random numbers and the waits of a commit.

After a lost race, a commit waits with the exponential back-off of Iceberg. Jitter keeps the losers from colliding
again.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from neve.model.properties import TableProperties


class Phase(StrEnum):
    """The steps of an attempt, in order; an observer sees each before it begins."""

    REFRESH = "refresh"
    CHECK = "check"
    DRAFT = "draft"
    LIST = "list"
    SWAP = "swap"
    SWAPPED = "swapped"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class Environment:
    """What a commit takes from outside: time, random numbers and an observer. Tests replace them."""

    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random
    snapshot_id: Callable[[], int] = lambda: secrets.randbits(63) or 1
    observe: Callable[[Phase, int], None] = lambda phase, attempt: None


_MAX_WAIT_IN_ATTEMPTS = 8  # the longest wait, in durations of an attempt: enough for as many writers to miss each other


def retry_wait_seconds(attempt: int, properties: TableProperties, attempt_ms: float, jitter: float) -> float:
    """Return the seconds to wait after an attempt: doubled each time, and reduced by up to half at random.

    `attempt_ms` is the duration of the last attempt. It limits the wait, because waiting much longer than the other
    writers need helps nobody.
    """
    doubled = properties.commit_min_wait_ms * 2.0 ** min(attempt - 1, 32)
    longest = max(properties.commit_min_wait_ms, _MAX_WAIT_IN_ATTEMPTS * attempt_ms)
    return min(doubled, longest, properties.commit_max_wait_ms) * (0.5 + jitter / 2) / 1000
