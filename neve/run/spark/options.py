"""Options of a Spark session for the time of a call, put back when it ends.

Calls in one session overlap: groups of a compaction are sorted several at once, and users have threads. Had each call
put back what it found, one that began later would put back what another had set, and that would stay. So what the
session itself says is remembered once, by the first call that changes an option, and returns with the last one's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from pyspark.sql import SparkSession

from neve.run.spark.session import is_classic

__all__ = ["options_around", "own_option"]


@dataclass(frozen=True)
class _Held:
    """An option that running calls have set: what the session says of it, and what each call does, oldest first."""

    own: str | None
    values: dict[object, str] = field(default_factory=dict)

    @property
    def now(self) -> str | None:
        return next(reversed(self.values.values()), self.own)


_held: dict[tuple[str, str], _Held] = {}  # by session and option
_lock = Lock()


@contextmanager
def options_around(spark: SparkSession, options: Mapping[str, str]) -> Iterator[None]:
    """Set session options for the time of a call; what was there is back when the last call that sets them ends.

    Where calls want different values at the same time, the one that began last has its own.
    """
    session, call = _identity(spark), object()
    try:
        with _lock:
            for name, value in options.items():
                key = session, name
                if key not in _held:
                    _held[key] = _Held(spark.conf.get(name, None))
                _held[key].values[call] = value
                _put(spark, name, value)
        yield
    finally:
        with _lock:
            for name in options:
                _let_go(spark, (session, name), call)


def own_option(spark: SparkSession, name: str) -> str | None:
    """What a session says of an option by itself, whatever running calls have set; None when it says nothing."""
    with _lock:
        held = _held.get((_identity(spark), name))
        return held.own if held else spark.conf.get(name, None)


def _let_go(spark: SparkSession, key: tuple[str, str], call: object) -> None:
    held = _held.get(key)
    if held is None or held.values.pop(call, None) is None:  # setting it failed, or one before it
        return
    if not held.values:
        del _held[key]
    _put(spark, key[1], held.now)


def _put(spark: SparkSession, name: str, value: str | None) -> None:
    if value is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, value)


def _identity(spark: SparkSession) -> str:
    """The same for all Python objects that stand for one session."""
    return str(spark._jsparkSession.sessionUUID() if is_classic(spark) else spark.session_id)  # type: ignore[attr-defined]
