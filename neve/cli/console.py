"""What a command prints: for people on a terminal, or with `--json` for programs.

With `--json`
- verbs that show rows (`tables`, `inspect`, `scan`, queries of `sql`) print one JSON object a line, one a row;
- verbs that change something print one object: `verb`, `table`, `status` (`done`, `nothing-to-do`, `planned`), what
  the result of the Python API has under the names it has there, and its `summary`; a dry run prints `plan` and
  `explain` instead;
- an error is one object on the standard error: `error` (the class), `message`, `hint`, `exit_code`.

Keys are always there, also when their value is null, zero or empty. Times are ISO 8601, bytes are hexadecimal, decimals
and numbers JSON does not have (NaN, infinities) are text.

Errors as one clear block: what failed, what to do, and nothing else unless `--debug`.

Exit codes that scripts can use.
"""

from __future__ import annotations

import json
import math
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time
from enum import IntEnum
from inspect import getmembers
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from neve.display.format import plural, readable_values
from neve.display.html import replace_unprintable
from neve.display.terminal import render_arrow_table
from neve.errors import (
    CommitConflict,
    CommitUnknown,
    CorruptFile,
    MissingFile,
    NeveError,
    UnknownName,
    UnsupportedFeature,
    UserError,
    WriteFailed,
)

_HIDDEN_FACTS = ("snapshot_id", "snapshot_ids", "seconds", "attempts", "filter_stats", "groups", "files_kept")


@dataclass(frozen=True)
class Screen:
    """Where the answers of a command go, and in which form."""

    as_json: bool = False

    @property
    def out(self) -> Console:
        """The standard output."""
        return Console(highlight=False, emoji=False)

    @property
    def err(self) -> Console:
        """The standard error: plans, questions, progress."""
        return Console(stderr=True, highlight=False, emoji=False)

    def print_rows(self, table: Any, title: str, limit: int) -> None:
        """The rows of an Arrow table, up to a limit when people read them."""
        if not self.as_json:
            console = self.out
            console.print(render_arrow_table(table, title, limit, console.width))
            return
        names = list(table.column_names)
        if twice := [name for at, name in enumerate(names) if name in names[:at]]:
            raise UserError(
                f"Cannot print rows as JSON: two columns are called {twice[0]!r}. Name one of them with AS."
            )
        for row in zip(*map(readable_values, table.columns), strict=True):
            self.print_json_line(dict(zip(names, row, strict=True)))

    def print_json_line(self, value: Mapping[str, Any]) -> None:
        """One JSON object on a line."""
        sys.stdout.write(json.dumps(to_json_value(value), ensure_ascii=False, allow_nan=False) + "\n")

    def print_text(self, text: str, style: str = "") -> None:
        """Lines as they are."""
        _print_wrapped(self.out, Text(without_control_characters(text), style))

    def print_note(self, text: str, style: str = "") -> None:
        """Lines beside the answer."""
        self.print_styled_note(Text(without_control_characters(text), style))

    def print_styled_note(self, text: Text) -> None:
        """Coloured lines beside the answer."""
        _print_wrapped(self.err, text)

    def print_result(self, result: Any) -> None:
        """What a verb did, for people: a sentence, then what counts."""
        told = facts_of(result)
        self.print_text(f"Done: {told.get('summary') or 'it has landed'}.", "green")
        shown = {name: _short_text(value) for name, value in told.items() if name not in {*_HIDDEN_FACTS, "summary"}}
        grid = Grid.grid(padding=(0, 2))
        for name, value in {**_snapshots_and_seconds(told), **{n: v for n, v in shown.items() if v}}.items():
            grid.add_row(Text(f"  {name.replace('_', ' ')}"), Text(replace_unprintable(value)))
        self.out.print(grid)


def _print_wrapped(console: Console, text: Text) -> None:
    """Lines broken between words on a terminal; as they are for a file or another program."""
    console.print(text, soft_wrap=not console.is_terminal)


def without_control_characters(text: str) -> str:
    """Lines of text without control characters."""
    return "\n".join(replace_unprintable(line) for line in text.splitlines())


def facts_of(result: Any) -> dict[str, Any]:
    """The fields and properties of a result by name, its summary last."""
    if isinstance(result, Mapping):
        return dict(result)
    kept = [f.name for f in fields(result)]
    made = [name for name, of in getmembers(type(result)) if isinstance(of, property) and not name.startswith("_")]
    names = sorted(dict.fromkeys((*kept, *made)), key=lambda name: name == "summary")
    return {name: getattr(result, name) for name in names}


def to_json_value(value: Any) -> Any:
    """A value as JSON has it; see the module for what has no equal there."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case Mapping():
            return {str(k) if isinstance(k, str | int) else _as_text(k): to_json_value(v) for k, v in value.items()}
        case list() | tuple() | set() | frozenset():
            return [to_json_value(v) for v in value]
    if is_dataclass(value):
        return {f.name: to_json_value(getattr(value, f.name)) for f in fields(value)}
    return _as_text(value)


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)


def _snapshots_and_seconds(facts: Mapping[str, Any]) -> dict[str, str]:
    """Where the result is, and how long it took."""
    ids = [i for i in (facts.get("snapshot_id"), *(facts.get("snapshot_ids") or ())) if i is not None]
    seconds = facts.get("seconds") or 0
    total = sum(seconds.values()) if isinstance(seconds, Mapping) else seconds
    took = f"{total:.1f}" if seconds else ""
    said = {"snapshot" if len(ids) == 1 else "snapshots": ", ".join(map(str, ids)), "seconds": took}
    return {name: value for name, value in said.items() if value}


def _short_text(value: Any) -> str:
    """A value in a line; nothing for what is zero or empty."""
    if not value or (not isinstance(value, str) and is_dataclass(value)):
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {v}" for k, v in value.items())
    if isinstance(value, tuple | list):
        has_parts = any(is_dataclass(v) or isinstance(v, Mapping) for v in value)
        return f"{len(value)}" if has_parts else ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    FAILED = 1  # also when the answer to a question was no, when some groups failed, and when an audit finds errors
    USAGE = 2  # the command line, or what it names, is wrong; nothing was done
    CONFLICT = 3  # another writer got in the way; nothing was done
    NOTHING_TO_DO = 4
    INTERRUPTED = 130


def exit_code_of(error: BaseException) -> ExitCode:
    """The code an error ends a command with."""
    match error:
        case KeyboardInterrupt():
            return ExitCode.INTERRUPTED
        case CommitConflict():
            return ExitCode.CONFLICT
        case UserError():
            return ExitCode.USAGE
        case _:
            return ExitCode.FAILED


_MAX_MESSAGE_LENGTH = 2000


def print_error(error: Exception, screen: Screen, table: str | None, debug: bool) -> int:
    """Print an error; the code to exit with."""
    code = exit_code_of(error)
    message, hint = _message(error), _hint(error, table)
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if screen.as_json:
        print_json_error(type(error).__name__, message, hint, code)
        return code
    block = Text("Error: ", "bold red") + Text(without_control_characters(message))
    if hint:
        block += Text("\nHint:  ", "bold") + Text(without_control_characters(hint))
    screen.print_styled_note(block)
    return code


def print_json_error(error: str, message: str, hint: str, code: int) -> None:
    """Print an error for programs."""
    told = {"error": error, "message": message, "hint": hint, "exit_code": int(code)}
    sys.stderr.write(json.dumps(told, ensure_ascii=False) + "\n")


def _message(error: Exception) -> str:
    """What an error says; one that is not ours is named, and loses what follows its first line."""
    said = str(error).strip()
    if isinstance(error, NeveError):
        return said
    first = said.splitlines()[0] if said else "no message"
    return f"{type(error).__name__}: {first}"[:_MAX_MESSAGE_LENGTH]


def _hint(error: Exception, table: str | None) -> str:
    """What to do, where the message itself does not say it."""
    name = table or "TABLE"
    match error:
        case UnknownName(kind="table"):
            return "`neve tables` lists the tables; `--lake` or `--catalog` says where to look."
        case CorruptFile() | MissingFile():
            return f"`neve verify {name}` finds every file that is missing or damaged."
        case CommitUnknown():
            return f"Look at `neve inspect {name} snapshots` before you run it again."
        case WriteFailed(leftover=left) if left:
            files = plural(len(left), "file")
            return f"{files} could not be deleted; `neve orphans {name}` finds what is old enough."
        case UnsupportedFeature() | NeveError():
            return ""
        case _:
            return "This is not an error Névé knows. Run it again with --debug to see where it comes from."
