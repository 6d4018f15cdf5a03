"""Databases in files do not wait for the disk of this machine: no test cuts its power.

The catalog of a lake syncs at each commit and at each close, which takes longer than most tests compute.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy.event import listen, remove
from sqlalchemy.pool import Pool


def _turn_syncs_off(connection: Any, record: object) -> None:
    """Commits of one connection no longer wait."""
    if isinstance(connection, sqlite3.Connection):
        with suppress(sqlite3.Error):  # locked or damaged: the first query says so
            connection.execute("PRAGMA synchronous=OFF")


@contextmanager
def databases_do_not_wait() -> Iterator[None]:
    """New connections of this process do not wait for the disk."""
    listen(Pool, "connect", _turn_syncs_off)
    yield
    remove(Pool, "connect", _turn_syncs_off)


@contextmanager
def databases_wait() -> Iterator[None]:
    """New connections are again as a user has them."""
    remove(Pool, "connect", _turn_syncs_off)
    yield
    listen(Pool, "connect", _turn_syncs_off)
