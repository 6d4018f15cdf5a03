"""When to try again after a lost race: Iceberg's exponential back-off, with jitter so that losers do not meet again."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from neve.model.properties import TableProperties


class Phase(StrEnum):
    """The steps of an attempt, in order; an observer sees each before it is taken."""

    REFRESH = "refresh"
    CHECK = "check"
    DRAFT = "draft"
    LIST = "list"
    SWAP = "swap"
    SWAPPED = "swapped"
    CLEAN = "clean"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _snapshot_id() -> int:
    return secrets.randbits(63) or 1


@dataclass(frozen=True, slots=True)
class Environment:
    """What a commit takes from outside: time, chance, and someone who watches. Tests put their own here."""

    now_ms: Callable[[], int] = _now_ms
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random
    snapshot_id: Callable[[], int] = _snapshot_id
    observe: Callable[[Phase, int], None] = lambda phase, attempt: None


_MAX_WAIT_IN_ATTEMPTS = 8  # waits grow up to this many attempts' time: then so many writers mostly miss one another


def retry_wait_seconds(attempt: int, properties: TableProperties, attempt_ms: float, jitter: float) -> float:
    """Seconds to wait after some attempts, the last of which took `attempt_ms`: doubling, with a spread of half.

    The wait follows how long an attempt takes: waiting much longer than the others need helps nobody.
    """
    doubled = properties.commit_min_wait_ms * 2.0 ** min(attempt - 1, 32)
    enough = max(properties.commit_min_wait_ms, _MAX_WAIT_IN_ATTEMPTS * attempt_ms)
    return min(doubled, enough, properties.commit_max_wait_ms) * (0.5 + jitter / 2) / 1000
