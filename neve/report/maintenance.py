"""What `maintain()` would do, and what a compaction would leave.

What `maintain()` would do, before and after.
"""

from __future__ import annotations

import re

import numpy as np

from neve.display.format import several, size
from neve.display.html import Markup, joined, tag
from neve.errors import NeveError
from neve.ops.context import TableContext
from neve.ops.maintenance.maintain import Maintain, Proposal
from neve.plan.rewrite_plan import Reason, RewritePlan
from neve.report.html import Amount, amount, bar, panel, sized, table
from neve.report.values import Report, Step, Upkeep

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


_NAMES = {
    "rewrite_data_files": "Compact data files",
    "upgrade_spec": "Move old files to the current spec",
    "rewrite_position_deletes": "Rewrite delete files",
    "remove_dangling_deletes": "Remove deletes of nothing",
    "rewrite_manifests": "Rewrite manifests",
    "expire_snapshots": "Expire snapshots",
}


def maintenance_section(report: Report) -> Markup:
    """The steps, and what the table would look like."""
    upkeep = report.upkeep
    if upkeep.failure:
        failed = tag("p", tag("strong", "The steps could not be planned. "), upkeep.failure, class_="failure")
        return panel("upkeep", "What to do", "maintain() looks at the table and proposes steps.", failed)
    lede = _lede(report)
    return panel("upkeep", "What to do", lede, _steps(report), _before_after(report), _reasons_table(report))


def _lede(report: Report) -> str:
    steps = report.upkeep.steps
    if not steps:
        return "maintain() has nothing to do."
    return (
        f"maintain() would take {several(len(steps), 'step')}, what pays most first. Each is planned by itself: a step "
        "may make the next one smaller."
    )


def _steps(report: Report) -> Markup:
    if not report.upkeep.steps:
        return Markup()
    heads = ("#", "Step", "What", "Files fewer to open", "Bytes to read", "In Python")
    rows = (_step_row(number, step) for number, step in enumerate(report.upkeep.steps, 1))
    return table("Steps of maintain()", heads, rows)


def _step_row(number: int, step: Step) -> tuple[Amount | str, ...]:
    read = sized(step.bytes_read) if step.bytes_read > 1 else Amount(0, "–")
    saved = amount(step.files_saved) if step.files_saved else Amount(0, "–")
    named = _NAMES.get(step.verb, step.verb)
    return amount(number), named, step.why, saved, read, tag("code", step.command)


def _before_after(report: Report) -> Markup:
    """Data files and their mean size now, and after a compaction."""
    if report.upkeep.outputs >= report.upkeep.taken:
        return Markup()
    total, after = report.total, report.files_after
    means = (total.mean, total.bytes / max(after, 1))
    rows = [
        _compared("Data files", f"{total.files:,}", f"{after:,}", total.files, after),
        _compared("Mean file size", size(means[0]), size(means[1]), *means),
    ]
    return tag("div", tag("h3", "Before and after a compaction"), *rows, class_="before-after")


def _compared(what: str, now: str, then: str, before: float, after: float) -> Markup:
    most = max(before, after)
    lines = (
        tag("div", tag("span", word, class_="when"), bar([(colour, value)], most), tag("span", text, class_="value"))
        for word, text, value, colour in (("now", now, before, "before"), ("after", then, after, "after"))
    )
    return tag("div", tag("h4", what), joined(lines), class_="compared")


def _reasons_table(report: Report) -> Markup:
    if not report.upkeep.reasons:
        return Markup()
    rows = (
        ("taken" if is_taken else "left alone", why, amount(count)) for why, is_taken, count in report.upkeep.reasons
    )
    return table("Why a compaction takes files or leaves them", ("A compaction", "Because", "Files"), rows)
