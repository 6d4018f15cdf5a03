"""What `maintain()` would do, and what a compaction would leave."""

from __future__ import annotations

import re

import numpy as np

from neve.display.format import size
from neve.errors import NeveError
from neve.ops.context import TableContext
from neve.ops.maintenance.maintain import Maintain, Proposal
from neve.plan.rewrite_plan import Reason, RewritePlan
from neve.report.values import Step, Upkeep

__all__ = ["upkeep_of"]

_COMMANDS = {
    "rewrite_data_files": "t.rewrite_data_files().execute()",
    "upgrade_spec": "t.rewrite_data_files().upgrade_spec().execute()",
    "rewrite_position_deletes": "t.rewrite_position_deletes().equality_deletes().execute()",
    "remove_dangling_deletes": "t.remove_dangling_deletes().execute()",
    "rewrite_manifests": "t.rewrite_manifests().execute()",
    "expire_snapshots": "t.expire_snapshots().execute()",
}


def upkeep_of(context: TableContext, compaction: RewritePlan) -> Upkeep:
    """The steps of `maintain()` beside the plan of a compaction; a table too damaged to plan for is told as such."""
    try:
        steps, failure = tuple(map(_step, Maintain(context).plan().steps)), ""
    except (NeveError, OSError) as e:
        steps, failure = (), str(e)
    outputs = sum(g.output_files for g in compaction.groups)
    return Upkeep(
        steps, compaction.files, compaction.bytes, outputs, _reasons(compaction), len(compaction.groups), failure
    )


def _step(proposal: Proposal) -> Step:
    command = _COMMANDS.get(proposal.verb, "t.maintain().execute()")
    return Step(proposal.verb, _readable(proposal.why), proposal.files_saved, proposal.bytes_read, command)


def _readable(why: str) -> str:
    """A sentence with its bytes in the unit that suits them."""
    return re.sub(r"\b([\d,]+) bytes\b", lambda found: size(int(found[1].replace(",", ""))), why)


def _reasons(plan: RewritePlan) -> tuple[tuple[str, bool, int], ...]:
    codes, counts = np.unique(plan.reason_codes, return_counts=True)
    found = [(Reason(int(code)), int(count)) for code, count in zip(codes, counts, strict=True)]
    return tuple((_WORDS[reason], reason.is_chosen, count) for reason, count in reversed(found))


_WORDS = {
    Reason.NOT_MATCHING_PARTITION: "outside the filter, by partition",
    Reason.NOT_MATCHING_STATISTICS: "outside the filter, by statistics",
    Reason.WELL_SIZED: "of a good size",
    Reason.IN_TARGET_SPEC: "under the target spec",
    Reason.GROUP_TOO_SMALL: "too few to join in their partition",
    Reason.OVER_MAX_FILES: "beyond the limit of files",
    Reason.TOO_SMALL: "too small",
    Reason.TOO_LARGE: "too large",
    Reason.DELETE_FILES: "too many delete files apply",
    Reason.DELETED_ROWS: "too many of their rows are deleted",
    Reason.OTHER_SPEC: "under another spec",
    Reason.REWRITE_ALL: "all are rewritten",
}
