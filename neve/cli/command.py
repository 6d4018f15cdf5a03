"""What all commands share: their common options, the lake, and how they end.

A command is a function whose first argument is a `Command`; the decorators `@verb` and `@writing_verb` add the shared
options. An error becomes one block of text and an exit code. After an interrupt, the table is read again to report
whether it has changed.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import neve
from neve.cli.console import ExitCode, Screen, print_error, print_json_error
from neve.cli.options import READ_PARAMETERS, WRITE_PARAMETERS
from neve.cli.process import InterruptHandler, active_spark_context, redirect_spark_output
from neve.errors import UserError

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.ops.context import TableContext
    from neve.table import Table


@dataclass
class Command:
    """One run of a command: its shared options, and the table that it changes."""

    verb: str
    lake_path: Path = Path("lake")
    catalog: str | None = None
    as_json: bool = False
    debug: bool = False
    dry_run: bool = False
    yes: bool = False
    may_have_written: bool = False  # it may have changed something, although `table_before` is not set
    table_before: TableContext | None = field(default=None, repr=False)  # the table to change, in its old state

    @property
    def screen(self) -> Screen:
        """Where results, notes and errors are printed."""
        return Screen(self.as_json)

    @property
    def table_name(self) -> str | None:
        """The name of the table to change, once it is known."""
        return None if self.table_before is None else self.table_before.name

    def lake(self, *, create_if_missing: bool = False) -> Lake:
        """Open the lake; a missing one is created only on request."""
        if self.catalog:
            return neve.connect(catalog=self.catalog)
        if not create_if_missing and not (self.lake_path / "catalog.db").is_file():
            raise UserError(
                f"There is no lake in {self.lake_path}. Give its folder with --lake, or a catalog with --catalog."
            )
        return neve.connect(self.lake_path)

    def table(self, name: str) -> Table:
        """Open a table to read it."""
        return self.lake().table(name)

    def table_to_change(self, name: str) -> Table:
        """Open a table to change it; after an interrupt, its state is compared with the state here."""
        table = self.table(name)
        self.table_before = table.context
        return table

    def print_json(self, status: str, **facts: Any) -> None:
        """Print the one JSON object of a command that changes something."""
        self.screen.print_json_line({"verb": self.verb, "table": self.table_name, "status": status, **facts})


def _make_command(
    function: Callable[..., None], shared_parameters: tuple[inspect.Parameter, ...]
) -> Callable[..., None]:
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

    @wraps(function)
    def run(**arguments: Any) -> None:
        command = Command(function.__name__, **{p.name: arguments.pop(p.name) for p in shared_parameters})
        run_guarded(command, lambda: function(command, **arguments))

    as_keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    run.__signature__ = inspect.Signature([*as_keywords, *shared_parameters])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*as_keywords, *shared_parameters)}
    return run


verb = partial(_make_command, shared_parameters=READ_PARAMETERS)
"""Make a command that reads: add the options that every command has."""

writing_verb = partial(_make_command, shared_parameters=WRITE_PARAMETERS)
"""Make a command that writes: add `--dry-run` and `--yes` too."""


def run_guarded(command: Command, body: Callable[[], None]) -> None:
    """Run a command without Spark's own output, and turn errors and interrupts into messages and exit codes."""
    with nullcontext() if command.debug else redirect_spark_output(), InterruptHandler() as interrupts:
        try:
            body()
        except typer.Exit:
            raise
        except BrokenPipeError:  # the reader closed the pipe, as `head` does
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.FAILED) from None
        except (KeyboardInterrupt, typer.Abort) as interrupt:
            raise _report_interrupt(command, interrupt) from None
        except Exception as error:
            if interrupts.is_interrupted:  # cancelled jobs end with an error of Spark
                raise _report_interrupt(command, error) from None
            raise typer.Exit(print_error(error, command.screen, command.table_name, command.debug)) from None


def _report_interrupt(command: Command, interrupt: BaseException) -> typer.Exit:
    if command.debug:
        traceback.print_exception(interrupt, file=sys.stderr)
    state = _state_after_interrupt(command)
    if command.as_json:
        print_json_error("Interrupted", state, "", ExitCode.INTERRUPTED)
    else:
        command.screen.print_note(f"Interrupted. {state}", "yellow")
    return typer.Exit(ExitCode.INTERRUPTED)


def _state_after_interrupt(command: Command) -> str:
    """Describe whether the table has changed."""
    before = command.table_before
    if before is None and command.may_have_written:
        return "The command may have finished: check before you run it again."
    if before is None:
        return "Nothing was changed."
    try:
        after = before.refreshed()
    except Exception as e:
        return f"Table {before.name} cannot be read ({e}); check it before you run this again."
    if after.iceberg.metadata_location == before.iceberg.metadata_location:
        head = after.metadata.current_snapshot()
        current = "" if head is None else f": snapshot {head.snapshot_id} is current"
        # A killed task cannot delete what it has written so far.
        leftover = "" if active_spark_context() is None else " `neve orphans` finds files that were being written."
        return f"Table {before.name} is unchanged{current}.{leftover}"
    old_ids = {s.snapshot_id for s in before.metadata.snapshots}
    new_ids = [str(s.snapshot_id) for s in after.metadata.snapshots if s.snapshot_id not in old_ids]
    change = f"snapshots {', '.join(new_ids)} were added" if new_ids else "its metadata is new"
    return f"Table {before.name} has changed since the command began: {change}. Committed changes stay."
