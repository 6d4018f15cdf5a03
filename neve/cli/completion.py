"""What a shell completes beside verbs and options: names of tables and views.

The names are read from the catalog file of a lake as it lies there. Opening it as a catalog would take seconds.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import typer

__all__ = ["one_of", "table_names"]


def table_names(context: typer.Context, incomplete: str) -> list[str]:
    """The tables of the lake that begin so."""
    lake = context.params.get("lake_path") or os.environ.get("NEVE_LAKE") or "lake"
    file = Path(lake) / "catalog.db"
    found: list[str] = []
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as stored:
        rows = stored.execute("SELECT table_namespace, table_name FROM iceberg_tables ORDER BY 1, 2")
        found = [".".join(row) for row in rows]
    return [name for name in found if name.startswith(incomplete)]


def one_of(*words: str) -> Callable[[str], list[str]]:
    """A choice of words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]
