"""Arguments and options that commands share, their parsing, and shell completion of table names and fixed choices.

Table names are read directly from the catalog file of a lake, because opening it as a catalog would take seconds.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Annotated

import typer

from neve.errors import UserError


def table_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the tables of the lake whose names start with a text, for shell completion."""
    lake = context.params.get("lake_path") or os.environ.get("NEVE_LAKE") or "lake"
    file = Path(lake) / "catalog.db"
    names: list[str] = []
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as catalog:
        rows = catalog.execute("SELECT table_namespace, table_name FROM iceberg_tables ORDER BY 1, 2")
        names = [".".join(row) for row in rows]
    return [name for name in names if name.startswith(incomplete)]


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Return a shell completion for a fixed choice of words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


_shared_option = partial(typer.Option, rich_help_panel="Shared options")
_TIME_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SIZE_EXPONENTS = {"": 0, "b": 0, "k": 1, "kb": 1, "m": 2, "mb": 2, "g": 3, "gb": 3, "t": 4, "tb": 4}

TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="With its namespace: db.events.", autocompletion=table_names)
]
Where = Annotated[str | None, typer.Option("--where", metavar="CONDITION", help="In Spark SQL.")]
Branch = Annotated[str, typer.Option("--branch", help="The branch to work on.")]
Limit = Annotated[int, typer.Option("--limit", min=0, help="Rows to show.")]
OptionPairs = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="An option by its Iceberg name; may be repeated."),
]
SnapshotProperties = Annotated[
    list[str] | None,
    typer.Option("--snapshot-property", metavar="NAME=VALUE", help="A property for the snapshot; may be repeated."),
]
Mode = Annotated[str | None, typer.Option(help="copy-on-write or merge-on-read, instead of the table's mode.")]

_LAKE = Annotated[Path, _shared_option("--lake", help="Folder of the lake.", envvar="NEVE_LAKE")]
_CATALOG_HELP = "A catalog of PyIceberg's configuration, instead of a lake."
_CATALOG = Annotated[str | None, _shared_option("--catalog", help=_CATALOG_HELP, envvar="NEVE_CATALOG")]
_JSON = Annotated[bool, _shared_option("--json", help="Print JSON for other programs.")]
_DEBUG = Annotated[bool, _shared_option("--debug", help="Show traces and what Spark prints.")]
_DRY_RUN = Annotated[bool, typer.Option("--dry-run", help="Print what would be done; change nothing.")]
_YES = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def _parameter(name: str, annotation: object, default: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


READ_PARAMETERS = (
    _parameter("lake_path", _LAKE, Path("lake")),
    _parameter("catalog", _CATALOG, None),
    _parameter("as_json", _JSON, False),
    _parameter("debug", _DEBUG, False),
)
"""The options of every command."""

WRITE_PARAMETERS = (_parameter("dry_run", _DRY_RUN, False), _parameter("yes", _YES, False), *READ_PARAMETERS)
"""The options of every command that writes."""


def split_names(text: str | None) -> list[str] | None:
    """Split names at commas."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def parse_pairs(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """Parse the values of a repeated NAME=VALUE option."""
    pairs = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UserError(f"Cannot read {option} {text!r}. Write it as {option} NAME=VALUE.")
        pairs[name.strip()] = value.strip()
    return pairs


def parse_time(text: str | None) -> datetime | None:
    """Parse a point in time: ISO 8601, in UTC by default, or a duration before now such as 7d or 12h."""
    if text is None:
        return None
    ago = re.fullmatch(r"(\d+)\s*([smhdw])", text.strip())
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_TIME_UNITS[ago[2]]: int(ago[1])})
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UserError(
            f"Cannot read the time {text!r}. Write it as 2026-01-31 or 2026-01-31T12:00:00+01:00, or how long ago it "
            "is as 30m, 12h or 7d."
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def parse_size(text: str | None, option: str) -> int | None:
    """Parse a number of bytes: 1048576, 512kB, 128MB or 10GB, in powers of 1024."""
    if text is None:
        return None
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if size is None or size[2] not in _SIZE_EXPONENTS:
        raise UserError(f"Cannot read {option} {text!r}. Write it as 1048576, 512kB, 128MB or 10GB.")
    return int(float(size[1]) * 1024 ** _SIZE_EXPONENTS[size[2]])
