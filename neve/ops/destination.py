"""Where a write of rows goes: to a branch, or into a snapshot that is staged until it is audited and published.

The verb may name a branch or a WAP id. Otherwise, in a table with the property `write.wap.enabled`, the options
`spark.wap.id` and `spark.wap.branch` of the Spark session decide, as they do for Iceberg's own writes. Reads that name
no state of the table follow `spark.wap.branch` too, once the branch exists.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from neve.errors import UserError
from neve.ops.context import TableContext
from neve.run.spark.session import WAP_BRANCH_OPTION, WAP_ID_OPTION, audit_options


@dataclass(frozen=True, slots=True)
class Destination:
    """The branch that a write reads and moves. With a WAP id, its snapshot is staged, and the branch stays."""

    branch: str = MAIN_BRANCH
    creates_branch: bool = False  # from main, if it does not exist
    wap_id: str | None = None

    def __str__(self) -> str:
        return f"branch {self.branch}" if self.wap_id is None else f"staged as {self.wap_id!r}"

    def head(self, context: TableContext) -> Snapshot | None:
        """Return the snapshot that the write is made on."""
        is_missing = self.creates_branch and self.branch not in context.metadata.refs
        return context.head(MAIN_BRANCH if is_missing else self.branch)


def destination_of(context: TableContext, branch: str, wap_id: str | None) -> Destination:
    """Return where a write goes that names a branch, or `main` for none, and perhaps a WAP id."""
    session_id, session_branch = (None, None) if wap_id is not None else _session_audit(context)
    staged_as = wap_id if wap_id is not None else session_id
    if staged_as is not None and branch != MAIN_BRANCH:
        asked_by = "stage" if wap_id is not None else WAP_ID_OPTION
        raise UserError(
            f"Cannot write to branch {branch!r} of table {context.name} and stage the write as {staged_as!r} too, as "
            f"{asked_by} asks for. A staged write belongs to no branch. Give only one of them."
        )
    if staged_as is not None and not staged_as.strip():
        raise UserError(f"Cannot stage a write of table {context.name} as {staged_as!r}. Give an id that is not empty.")
    if session_branch is not None and branch == MAIN_BRANCH:
        return Destination(session_branch, creates_branch=True)
    return Destination(branch, wap_id=staged_as)


def audited_branch(context: TableContext) -> str | None:
    """Return the branch that the session audits, if it exists: reads that name no state of the table read it."""
    _, branch = _session_audit(context)
    return branch if branch in context.metadata.refs else None


def _session_audit(context: TableContext) -> tuple[str | None, str | None]:
    """Return the WAP id and the branch that the session sets for this table; at most one of them."""
    if not context.properties.write_audit_publish:
        return None, None
    wap_id, branch = audit_options(context.running_spark())
    if wap_id is not None and branch is not None:
        raise UserError(
            f"The Spark session sets both {WAP_ID_OPTION} ({wap_id!r}) and {WAP_BRANCH_OPTION} ({branch!r}), and table "
            f"{context.name} has the property write.wap.enabled. Unset one of them."
        )
    return wap_id, branch
