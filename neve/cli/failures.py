"""Errors as one clear block: what failed, what to do, and nothing else unless `--debug`."""

from __future__ import annotations

import json
import sys
import traceback

from rich.text import Text

from neve.cli.codes import code_of
from neve.cli.screen import Screen, clean
from neve.display.format import several
from neve.errors import (
    CommitUnknown,
    CorruptFile,
    MissingFile,
    NeveError,
    UnknownName,
    UnsupportedFeature,
    WriteFailed,
)

__all__ = ["tell_error", "tell_object"]

_LONGEST = 2000


def tell_error(error: Exception, screen: Screen, table: str | None, debug: bool) -> int:
    """Print an error; the code to exit with."""
    code = code_of(error)
    message, hint = _message(error), _hint(error, table)
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if screen.as_json:
        tell_object(type(error).__name__, message, hint, code)
        return code
    block = Text("Error: ", "bold red") + Text(clean(message))
    if hint:
        block += Text("\nHint:  ", "bold") + Text(clean(hint))
    screen.block(block)
    return code


def tell_object(error: str, message: str, hint: str, code: int) -> None:
    """Print an error for programs."""
    told = {"error": error, "message": message, "hint": hint, "exit_code": int(code)}
    sys.stderr.write(json.dumps(told, ensure_ascii=False) + "\n")


def _message(error: Exception) -> str:
    """What an error says; one that is not ours is named, and loses what follows its first line."""
    said = str(error).strip()
    if isinstance(error, NeveError):
        return said
    first = said.splitlines()[0] if said else "no message"
    return f"{type(error).__name__}: {first}"[:_LONGEST]


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
            files = several(len(left), "file")
            return f"{files} could not be deleted; `neve orphans {name}` finds what is old enough."
        case UnsupportedFeature() | NeveError():
            return ""
        case _:
            return "This is not an error Névé knows. Run it again with --debug to see where it comes from."
