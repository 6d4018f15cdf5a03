"""Exit codes that scripts can use."""

from __future__ import annotations

from enum import IntEnum

from neve.errors import CommitConflict, UserError

__all__ = ["Code", "code_of"]


class Code(IntEnum):
    """How a command ended."""

    DONE = 0
    FAILED = 1  # also when the answer to a question was no, when some groups failed, and when an audit finds errors
    USAGE = 2  # the command line, or what it names, is wrong; nothing was done
    CONFLICT = 3  # another writer got in the way; nothing was done
    NOTHING_TO_DO = 4
    INTERRUPTED = 130


def code_of(error: BaseException) -> Code:
    """The code an error ends a command with."""
    match error:
        case KeyboardInterrupt():
            return Code.INTERRUPTED
        case CommitConflict():
            return Code.CONFLICT
        case UserError():
            return Code.USAGE
        case _:
            return Code.FAILED
