"""`neve dangling`: delete files that delete nothing go."""

from __future__ import annotations

from neve.cli.carrying import Deed, carry_out
from neve.cli.options import Branch, TableName
from neve.cli.work import Work, writing_verb

__all__ = ["dangling"]


@writing_verb
def dangling(work: Work, table: TableName, branch: Branch = "main") -> None:
    """Remove delete files that apply to no live data file."""
    deed = Deed.of(
        f"Removing dangling deletes of {table}",
        work.table_to_change(table).remove_dangling_deletes().branch(branch),
        facts=lambda plan: {
            "snapshot_id": plan.snapshot_id,
            "delete_files": plan.delete_files,
            "dangling": len(plan.deletes),
            "files": plan.files,
        },
        is_empty=lambda plan: not len(plan.deletes),
        did_nothing=lambda result: result.snapshot_id is None,
    )
    carry_out(work, deed)
