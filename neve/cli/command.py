"""The frame of every verb: its shared options, the lake it works on, and how it ends.

A verb is a function whose first argument is a `Work`; `@verb` makes it a command. Errors become one block and an exit
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
from neve.cli.console import Code, Screen, tell_error, tell_object
from neve.cli.options import READING, WRITING
from neve.cli.process import Interrupts, running_spark, spark_apart
from neve.errors import UserError

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.ops.context import TableContext
    from neve.table import Table


@dataclass
class Work:
    """One command on its way: where its tables are, how it answers, and the table it changes."""

    verb: str
    lake_path: Path = Path("lake")
    catalog: str | None = None
    as_json: bool = False
    debug: bool = False
    dry_run: bool = False
    yes: bool = False
    writes: bool = False  # whether it may have changed something, also before it is known what
    began: TableContext | None = field(default=None, repr=False)  # the table it changes, as it was

    @property
    def screen(self) -> Screen:
        """Where the answers go."""
        return Screen(self.as_json)

    @property
    def table_name(self) -> str | None:
        """The table it changes, if that is known."""
        return None if self.began is None else self.began.name

    def lake(self, *, makes_one: bool = False) -> Lake:
        """The lake to work on; looking makes none."""
        if self.catalog:
            return neve.connect(catalog=self.catalog)
        if not makes_one and not (self.lake_path / "catalog.db").is_file():
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
        self.began = found.context
        return found

    def document(self, status: str, **facts: Any) -> None:
        """The one JSON object that a verb which changes something prints."""
        self.screen.document({"verb": self.verb, "table": self.table_name, "status": status, **facts})

    def nothing_to_do(self, why: str, **facts: Any) -> typer.Exit:
        """The end of a verb that found nothing to do."""
        if self.as_json:
            self.document("nothing-to-do", summary=why, **facts)
        else:
            self.screen.text(f"Nothing to do: {why}.")
        return typer.Exit(Code.NOTHING_TO_DO)


def verb(function: Callable[..., None]) -> Callable[..., None]:
    """A command that reads: the options every verb has are added."""
    return _command(function, READING)


def writing_verb(function: Callable[..., None]) -> Callable[..., None]:
    """A command that writes: it can be tried without writing, and told not to ask."""
    return _command(function, WRITING)


def _command(function: Callable[..., None], shared: tuple[inspect.Parameter, ...]) -> Callable[..., None]:
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    names = [parameter.name for parameter in shared]

    @wraps(function)
    def run(**given: Any) -> None:
        work = Work(function.__name__, **{name: given.pop(name) for name in names})
        framed(work, lambda: function(work, **given))

    as_keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    run.__signature__ = inspect.Signature([*as_keywords, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*as_keywords, *shared)}
    return run


def framed(work: Work, act: Callable[[], None]) -> None:
    """Run a verb: the screen is its own, and whatever ends it is told."""
    with nullcontext() if work.debug else spark_apart(), Interrupts() as interrupts:
        _ended(work, act, interrupts)


def _ended(work: Work, act: Callable[[], None], interrupts: Interrupts) -> None:
    """Run a verb to its end, whatever that is."""
    try:
        act()
    except typer.Exit:
        raise
    except BrokenPipeError:  # who reads has seen enough, as `head` does
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(Code.FAILED) from None
    except (KeyboardInterrupt, typer.Abort) as interrupt:
        raise _interrupted(work, interrupt) from None
    except Exception as error:
        if interrupts.asked:  # what a verb says whose jobs were cancelled
            raise _interrupted(work, error) from None
        raise typer.Exit(tell_error(error, work.screen, work.table_name, work.debug)) from None


def _interrupted(work: Work, interrupt: BaseException) -> typer.Exit:
    if work.debug:
        traceback.print_exception(interrupt, file=sys.stderr)
    said = _what_became(work)
    if work.as_json:
        tell_object("Interrupted", said, "", Code.INTERRUPTED)
    else:
        work.screen.aside(f"Interrupted. {said}", "yellow")
    return typer.Exit(Code.INTERRUPTED)


def _what_became(work: Work) -> str:
    """The state of the table after an interrupt, compared with that before."""
    before = work.began
    if before is None:
        return "It may have been done already: look before you run it again." if work.writes else "Nothing was changed."
    try:
        after = before.refreshed()
    except Exception as e:
        return f"Table {before.name} cannot be looked at now ({e}); look at it before you run this again."
    if after.iceberg.metadata_location == before.iceberg.metadata_location:
        head = after.metadata.current_snapshot()
        same = f"Table {before.name} is unchanged{'' if head is None else f': snapshot {head.snapshot_id} is current'}."
        # A task that is killed cannot delete what it has written so far.
        return same if running_spark() is None else f"{same} Files that were being written are left for `neve orphans`."
    known = {s.snapshot_id for s in before.metadata.snapshots}
    new = [str(s.snapshot_id) for s in after.metadata.snapshots if s.snapshot_id not in known]
    since = f"snapshots {', '.join(new)} have landed since it began" if new else "its metadata has changed since"
    return f"Table {before.name} has changed: {since}. What was committed stays."
