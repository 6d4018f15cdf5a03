"""Move a table with its whole history to another folder; it keeps its name and its id.

The files are copied as `copy_to` copies them, and then the catalog is pointed to the copy, in one step that fails if
the table was changed meanwhile: then what was added is copied too, and it is tried again. The files at the former
location stay, for readers that still use them. Delete that folder when none does.

A writer that has begun at the former location is rejected once it commits; statements that change rows run again. That
holds for Névé and PyIceberg: stop writers of other engines before, as they may commit files of the former location.

Only catalogs that let a client exchange the metadata of a table can do that: SQL catalogs, and the one of a lake.

Isolation: one state of the metadata; a concurrent change makes the move start again, and files that are there stay.
Writes: the files of the copy, its newest metadata file last.

>>> before = t.context.metadata.location
>>> result = t.relocate("moved/sales").execute()
>>> t.refresh().context.metadata.location == before, t.scan().count() > 0
(False, True)
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace

from neve.catalog.entries import leave_note
from neve.catalog.swap import LostRace, MaybeSwapped, NotSwapped, SwapStatus
from neve.commit.outcome import Check, Committed, Conflict, Outcome, Rejected
from neve.errors import CommitUnknown, UnsupportedFeature
from neve.io.files import delete_files
from neve.io.paths import canonical_path
from neve.ops.context import TableContext
from neve.ops.maintenance.copy_table import CopyPlan, CopyResult, TableCopy
from neve.ops.verb import Execution


@dataclass(frozen=True)
class RelocateTable(TableCopy):
    """A move of a table: `.on_spark()`, then `.plan()`, `.explain()` or `.execute()`."""

    _written: set[str] = field(default_factory=set, init=False, repr=False, compare=False)  # and not yet the table's

    title, verb = "move of the table", "move"

    def execute(self) -> CopyResult:
        """Move the table. If it stays, what was written is deleted, unless it is not known whether the move landed."""
        self._written.clear()
        try:
            return super().execute()
        except BaseException:
            delete_files(self.context.io, sorted(self._written))
            raise

    def _plan(self, context: TableContext) -> CopyPlan:
        if not context.catalog.exchanges_metadata:
            raise UnsupportedFeature(
                f"Cannot move table {context.name}: its catalog chooses the metadata file of a table by itself. Stop "
                "all writers, copy the table with copy_to(location), drop it without its files, and register the copy."
            )
        change = f"point {context.name} to the copy; the files in {context.metadata.location} stay"
        return replace(super()._plan(context), catalog_change=change)

    def _written_paths(self) -> Collection[str]:
        return {canonical_path(path) for path in self._written}

    def _write(self, context: TableContext, plan: CopyPlan, execution: Execution) -> CopyResult:
        result, written = self._write_copy(context, plan, execution)
        self._written.update(written)
        return replace(result, is_move=True)

    def _commit(self, context: TableContext, plan: CopyPlan, written: CopyResult, execution: Execution) -> Outcome:
        location, status, files = written.metadata_location, SwapStatus.LANDED, frozenset(self._written)
        self._written.clear()  # they may be the table's from here on
        try:
            context.catalog.point_to(context.iceberg, location)
        except NotSwapped as e:
            self._written.update(files)
            if not isinstance(e, LostRace):
                raise
            status = SwapStatus.NEVER
        except MaybeSwapped as e:
            status = context.catalog.swap_status(e)
            if status is SwapStatus.OPEN:
                raise CommitUnknown(
                    f"Cannot tell whether table {context.name} was moved ({e}). All files are at both locations. Look "
                    f"whether its metadata is {location} before you try again.",
                    location,
                ) from e
        if status is SwapStatus.NEVER:
            self._written.update(files)
            message = "Another writer changed the table while it was copied."
            return Rejected((Conflict(Check.CONCURRENT_UPDATE, message),))
        with suppress(Exception):  # the move has landed
            leave_note(context.catalog, context.refreshed().iceberg)
        return Committed(context.metadata.current_snapshot_id, location, execution.reruns + 1)
