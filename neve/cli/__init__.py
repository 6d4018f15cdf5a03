"""The command line, with the same terms as the Python API.

Every command takes `--lake` or `--catalog`, `--json` and `--debug`; every command that writes takes `--dry-run` and
`--yes`. Results go to standard output; plans, prompts, progress and errors go to standard error.

Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 conflict with a concurrent writer, 4 nothing to do, 130
interrupted. `neve.cli.console` describes them, and the output of `--json`.
"""

from __future__ import annotations

from neve.cli.app import app

__all__ = ["app"]
