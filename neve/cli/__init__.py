"""The command line: the same words as the Python API, a verb a file.

Every verb takes `--lake` or `--catalog`, `--json` and `--debug`; every verb that writes takes `--dry-run` and `--yes`.
Results go to the standard output; plans, questions, progress and errors to the standard error.

Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 another writer got in the way, 4 nothing to do, 130 interrupted.
See `neve.cli.console`. What `--json` prints is told in `neve.cli.console`.
"""

from __future__ import annotations

from neve.cli.app import app

__all__ = ["app"]
