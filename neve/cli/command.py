"""The frame of every verb: its shared options, the lake it works on, and how it ends.

A verb is a function whose first argument is a `Command`; `@verb` makes it a command. Errors become one block and an exit
code. An interrupt is told together with what became of the table, which is looked up, not assumed.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import wraps
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
    """One command on its way: where its tables are, how it answers, and the table it changes."""

    verb: str
    lake_path: Path = Path("lake")
    catalog: str | None = None
    as_json: bool = False
    debug: bool = False
    dry_run: bool = False
    yes: bool = False
    may_have_written: bool = False  # whether it may have changed something, also before it is known what
    table_before: TableContext | None = field(default=None, repr=False)  # the table it changes, as it was

    @property
    def screen(self) -> Screen:
        """Where the answers go."""
        return Screen(self.as_json)

    @property
    def table_name(self) -> str | None:
        """The table it changes, if that is known."""
        return None if self.table_before is None else self.table_before.name

    def lake(self, *, create_if_missing: bool = False) -> Lake:
        """The lake to work on; looking makes none."""
        if self.catalog:
            return neve.connect(catalog=self.catalog)
        if not create_if_missing and not (self.lake_path / "catalog.db").is_file():
            raise UserError(
                f"There is no lake in {self.lake_path}. Name its folder with --lake, or a catalog with --catalog."
            )
        return neve.connect(self.lake_path)

    def table(self, name: str) -> Table:
        """The table to read."""
        return self.lake().table(name)

    def table_to_change(self, name: str) -> Table:
        """The table to change: when the work is interrupted, it is said what became of it."""
        found = self.table(name)
        self.table_before = found.context
        return found

    def print_json(self, status: str, **facts: Any) -> None:
        """The one JSON object that a verb which changes something prints."""
        self.screen.print_json_line({"verb": self.verb, "table": self.table_name, "status": status, **facts})

    def exit_with_nothing_to_do(self, why: str, **facts: Any) -> typer.Exit:
        """The end of a verb that found nothing to do."""
        if self.as_json:
            self.print_json("nothing-to-do", summary=why, **facts)
        else:
            self.screen.print_text(f"Nothing to do: {why}.")
        return typer.Exit(ExitCode.NOTHING_TO_DO)


def verb(function: Callable[..., None]) -> Callable[..., None]:
    """A command that reads: the options every verb has are added."""
    return _make_command(function, READ_PARAMETERS)


def writing_verb(function: Callable[..., None]) -> Callable[..., None]:
    """A command that writes: it can be tried without writing, and told not to ask."""
    return _make_command(function, WRITE_PARAMETERS)


def _make_command(
    function: Callable[..., None], shared_parameters: tuple[inspect.Parameter, ...]
) -> Callable[..., None]:
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    names = [parameter.name for parameter in shared_parameters]

    @wraps(function)
    def run(**given: Any) -> None:
        work = Command(function.__name__, **{name: given.pop(name) for name in names})
        run_guarded(work, lambda: function(work, **given))

    as_keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    run.__signature__ = inspect.Signature([*as_keywords, *shared_parameters])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*as_keywords, *shared_parameters)}
    return run


def run_guarded(work: Command, body: Callable[[], None]) -> None:
    """Run a verb: the screen is its own, and whatever ends it is told."""
    with nullcontext() if work.debug else redirect_spark_output(), InterruptHandler() as interrupts:
        _run_to_exit(work, body, interrupts)


def _run_to_exit(work: Command, body: Callable[[], None], interrupts: InterruptHandler) -> None:
    """Run a verb to its end, whatever that is."""
    try:
        body()
    except typer.Exit:
        raise
    except BrokenPipeError:  # who reads has seen enough, as `head` does
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.FAILED) from None
    except (KeyboardInterrupt, typer.Abort) as interrupt:
        raise _report_interrupt(work, interrupt) from None
    except Exception as error:
        if interrupts.is_interrupted:  # what a verb says whose jobs were cancelled
            raise _report_interrupt(work, error) from None
        raise typer.Exit(print_error(error, work.screen, work.table_name, work.debug)) from None


def _report_interrupt(work: Command, interrupt: BaseException) -> typer.Exit:
    if work.debug:
        traceback.print_exception(interrupt, file=sys.stderr)
    said = _state_after_interrupt(work)
    if work.as_json:
        print_json_error("Interrupted", said, "", ExitCode.INTERRUPTED)
    else:
        work.screen.print_note(f"Interrupted. {said}", "yellow")
    return typer.Exit(ExitCode.INTERRUPTED)


def _state_after_interrupt(work: Command) -> str:
    """The state of the table after an interrupt, compared with that before."""
    before = work.table_before
    if before is None:
        return (
            "It may have been done already: look before you run it again."
            if work.may_have_written
            else "Nothing was changed."
        )
    try:
        after = before.refreshed()
    except Exception as e:
        return f"Table {before.name} cannot be looked at now ({e}); look at it before you run this again."
    if after.iceberg.metadata_location == before.iceberg.metadata_location:
        head = after.metadata.current_snapshot()
        same = f"Table {before.name} is unchanged{'' if head is None else f': snapshot {head.snapshot_id} is current'}."
        # A task that is killed cannot delete what it has written so far.
        return (
            same
            if active_spark_context() is None
            else f"{same} Files that were being written are left for `neve orphans`."
        )
    known = {s.snapshot_id for s in before.metadata.snapshots}
    new = [str(s.snapshot_id) for s in after.metadata.snapshots if s.snapshot_id not in known]
    since = f"snapshots {', '.join(new)} have landed since it began" if new else "its metadata has changed since"
    return f"Table {before.name} has changed: {since}. What was committed stays."
