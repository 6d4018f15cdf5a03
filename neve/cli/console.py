"""What a command prints: for people on a terminal, or with `--json` for programs.

With `--json`
- commands that show rows (`tables`, `inspect`, `scan`, queries of `sql`) print one JSON object per row, each on a line;
- commands that change something print one object: `verb`, `table`, `status` (`done`, `nothing-to-do`, `planned`), the
  fields of the Python API's result under the same names, and its `summary`; a dry run prints `plan` and `explain`
  instead;
- an error is one object on standard error: `error` (the class), `message`, `hint`, `exit_code`.

All keys are always present, also if their value is null, zero or empty. Times are ISO 8601 and bytes are hexadecimal;
decimals, and numbers that JSON lacks (NaN, infinities), are text.

Without `--json` an error is one block: what failed and what to do; `--debug` adds the traceback.
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

_HIDDEN_FACTS = (
    "summary",
    "snapshot_id",
    "snapshot_ids",
    "seconds",
    "attempts",
    "filter_stats",
    "groups",
    "files_kept",
)


@dataclass(frozen=True)
class Screen:
    """The output of a command, as text or as JSON."""

    as_json: bool = False

    @property
    def out(self) -> Console:
        """Standard output, for results."""
        return Console(highlight=False, emoji=False)

    @property
    def err(self) -> Console:
        """Standard error, for plans, prompts and progress."""
        return Console(stderr=True, highlight=False, emoji=False)

    def print_rows(self, table: Any, title: str, limit: int) -> None:
        """Print the rows of an Arrow table; the limit applies to the table for people, not to JSON."""
        if not self.as_json:
            console = self.out
            console.print(render_arrow_table(table, title, limit, console.width))
            return
        names = list(table.column_names)
        if duplicates := [name for at, name in enumerate(names) if name in names[:at]]:
            raise UserError(
                f"Cannot print rows as JSON: two columns are called {duplicates[0]!r}. Name one of them with AS."
            )
        for row in zip(*map(readable_values, table.columns), strict=True):
            self.print_json_line(dict(zip(names, row, strict=True)))

    def print_json_line(self, value: Mapping[str, Any]) -> None:
        """Print one JSON object on one line."""
        sys.stdout.write(json.dumps(to_json_value(value), ensure_ascii=False, allow_nan=False) + "\n")

    def print_text(self, text: str, style: str = "") -> None:
        """Print text to standard output."""
        _print_wrapped(self.out, Text(without_control_characters(text), style))

    def print_note(self, text: str, style: str = "") -> None:
        """Print text to standard error."""
        self.print_styled_note(Text(without_control_characters(text), style))

    def print_styled_note(self, text: Text) -> None:
        """Print coloured text to standard error."""
        _print_wrapped(self.err, text)

    def print_result(self, result: Any) -> None:
        """Print what a command did, for people: one sentence, then the facts that are not empty."""
        facts = facts_of(result)
        self.print_text(f"Done: {facts.get('summary') or 'committed'}.", "green")
        ids = [i for i in (facts.get("snapshot_id"), *(facts.get("snapshot_ids") or ())) if i is not None]
        seconds = facts.get("seconds") or 0
        total = sum(seconds.values()) if isinstance(seconds, Mapping) else seconds
        shown = ((name, _short_text(value)) for name, value in facts.items() if name not in _HIDDEN_FACTS)
        lines = [
            ("snapshot" if len(ids) == 1 else "snapshots", ", ".join(map(str, ids))),
            ("seconds", f"{total:.1f}" if seconds else ""),
            *shown,
        ]
        grid = Grid.grid(padding=(0, 2))
        for name, text in {n: t for n, t in lines if t}.items():
            grid.add_row(Text(f"  {name.replace('_', ' ')}"), Text(replace_unprintable(text)))
        self.out.print(grid)


def _print_wrapped(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=not console.is_terminal)  # no line breaks are added in a file or a pipe


def without_control_characters(text: str) -> str:
    """Replace control characters in each line of a text."""
    return "\n".join(replace_unprintable(line) for line in text.splitlines())


def facts_of(result: Any) -> dict[str, Any]:
    """Return the fields and properties of a result by name, its summary last; its rows for SQL are the same facts."""
    if isinstance(result, Mapping):
        return dict(result)
    members = getmembers(type(result), lambda member: isinstance(member, property))
    properties = [name for name, _ in members if name[0] != "_" and name != "output_rows"]
    names = sorted(dict.fromkeys((*(f.name for f in fields(result)), *properties)), key=lambda name: name == "summary")
    return {name: getattr(result, name) for name in names}


def to_json_value(value: Any) -> Any:
    """Convert a value for JSON; the module describes values without an equivalent there."""
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


def _short_text(value: Any) -> str:
    """Format a value on one line; zero and empty values are left out, and lists of objects are counted."""
    if not value or (not isinstance(value, str) and is_dataclass(value)):
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {v}" for k, v in value.items())
    if isinstance(value, tuple | list):
        has_parts = any(is_dataclass(v) or isinstance(v, Mapping) for v in value)
        return f"{len(value)}" if has_parts else ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


class ExitCode(IntEnum):
    """How a command ended, for scripts."""

    DONE = 0
    FAILED = 1  # also if a prompt was answered with no, if some groups failed, or if an audit finds errors
    USAGE = 2  # wrong usage or input; nothing was done
    CONFLICT = 3  # conflict with a concurrent writer; nothing was done
    NOTHING_TO_DO = 4
    INTERRUPTED = 130


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code for an error."""
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
    """Print an error and return the exit code."""
    code = exit_code_of(error)
    message, hint = str(error).strip(), _hint(error, table)
    if not isinstance(error, NeveError):  # an error of another library: its class and its first line
        first_line = message.splitlines()[0] if message else "no message"
        message = f"{type(error).__name__}: {first_line}"[:_MAX_MESSAGE_LENGTH]
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
    """Print an error as JSON."""
    facts = {"error": error, "message": message, "hint": hint, "exit_code": int(code)}
    sys.stderr.write(json.dumps(facts, ensure_ascii=False) + "\n")


def _hint(error: Exception, table: str | None) -> str:
    """Return what to do, unless the message itself says it."""
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
            return f"{files} could not be deleted; `neve orphans {name}` finds them once they are old enough."
        case UnsupportedFeature() | NeveError():
            return ""
        case _:
            return "This error is unexpected. Run the command again with --debug to see where it comes from."
