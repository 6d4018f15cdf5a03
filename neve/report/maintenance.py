"""What `maintain()` would do, and what a compaction would leave.

What `maintain()` would do, before and after.
"""

from __future__ import annotations

import re

import numpy as np

from neve.display.format import format_size, plural
from neve.display.html import Markup, join_markup, tag
from neve.errors import NeveError
from neve.ops.context import TableContext
from neve.ops.maintenance.maintain import Maintain, Proposal
from neve.plan.rewrite_plan import Reason, RewritePlan
from neve.report.html import NumberCell, bar, number_cell, panel, size_cell, table
from neve.report.values import MaintenanceOutlook, MaintenanceStep, Report

_COMMANDS = {
    "rewrite_data_files": "t.rewrite_data_files().execute()",
    "upgrade_spec": "t.rewrite_data_files().upgrade_spec().execute()",
    "rewrite_position_deletes": "t.rewrite_position_deletes().equality_deletes().execute()",
    "remove_dangling_deletes": "t.remove_dangling_deletes().execute()",
    "rewrite_manifests": "t.rewrite_manifests().execute()",
    "expire_snapshots": "t.expire_snapshots().execute()",
}


def maintenance_of(context: TableContext, compaction: RewritePlan) -> MaintenanceOutlook:
    """The steps of `maintain()` beside the plan of a compaction; a table too damaged to plan for is told as such."""
    try:
        steps, failure = tuple(map(_step, Maintain(context).plan().steps)), ""
    except (NeveError, OSError) as e:
        steps, failure = (), str(e)
    outputs = sum(g.output_files for g in compaction.groups)
    return MaintenanceOutlook(
        steps, compaction.files, compaction.bytes, outputs, _reasons(compaction), len(compaction.groups), failure
    )


def _step(proposal: Proposal) -> MaintenanceStep:
    command = _COMMANDS.get(proposal.verb, "t.maintain().execute()")
    return MaintenanceStep(proposal.verb, _readable(proposal.why), proposal.files_saved, proposal.bytes_read, command)


def _readable(why: str) -> str:
    """A sentence with its bytes in the unit that suits them."""
    return re.sub(r"\b([\d,]+) bytes\b", lambda found: format_size(int(found[1].replace(",", ""))), why)


def _reasons(plan: RewritePlan) -> tuple[tuple[str, bool, int], ...]:
    codes, counts = np.unique(plan.reason_codes, return_counts=True)
    found = [(Reason(int(code)), int(count)) for code, count in zip(codes, counts, strict=True)]
    return tuple((_REASON_TEXTS[reason], reason.is_chosen, count) for reason, count in reversed(found))


_REASON_TEXTS = {
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


_STEP_TITLES = {
    "rewrite_data_files": "Compact data files",
    "upgrade_spec": "Move old files to the current spec",
    "rewrite_position_deletes": "Rewrite delete files",
    "remove_dangling_deletes": "Remove deletes of nothing",
    "rewrite_manifests": "Rewrite manifests",
    "expire_snapshots": "Expire snapshots",
}


def maintenance_section(report: Report) -> Markup:
    """The steps, and what the table would look like."""
    upkeep = report.maintenance
    if upkeep.failure:
        failed = tag("p", tag("strong", "The steps could not be planned. "), upkeep.failure, class_="failure")
        return panel("upkeep", "What to do", "maintain() looks at the table and proposes steps.", failed)
    lede = _lede(report)
    return panel("upkeep", "What to do", lede, _steps_table(report), _before_after(report), _reasons_table(report))


def _lede(report: Report) -> str:
    steps = report.maintenance.steps
    if not steps:
        return "maintain() has nothing to do."
    return (
        f"maintain() would take {plural(len(steps), 'step')}, what pays most first. Each is planned by itself: a step "
        "may make the next one smaller."
    )


def _steps_table(report: Report) -> Markup:
    if not report.maintenance.steps:
        return Markup()
    heads = ("#", "Step", "What", "Files fewer to open", "Bytes to read", "In Python")
    rows = (_step_row(number, step) for number, step in enumerate(report.maintenance.steps, 1))
    return table("Steps of maintain()", heads, rows)


def _step_row(number: int, step: MaintenanceStep) -> tuple[NumberCell | str, ...]:
    read = size_cell(step.bytes_read) if step.bytes_read > 1 else NumberCell(0, "–")
    saved = number_cell(step.files_saved) if step.files_saved else NumberCell(0, "–")
    named = _STEP_TITLES.get(step.verb, step.verb)
    return number_cell(number), named, step.why, saved, read, tag("code", step.command)


def _before_after(report: Report) -> Markup:
    """Data files and their mean size now, and after a compaction."""
    if report.maintenance.output_files >= report.maintenance.files_to_rewrite:
        return Markup()
    total, after = report.total, report.files_after
    means = (total.mean_size, total.bytes / max(after, 1))
    rows = [
        _comparison("Data files", f"{total.files:,}", f"{after:,}", total.files, after),
        _comparison("Mean file size", format_size(means[0]), format_size(means[1]), *means),
    ]
    return tag("div", tag("h3", "Before and after a compaction"), *rows, class_="before-after")


def _comparison(what: str, now: str, then: str, before: float, after: float) -> Markup:
    most = max(before, after)
    lines = (
        tag("div", tag("span", word, class_="when"), bar([(colour, value)], most), tag("span", text, class_="value"))
        for word, text, value, colour in (("now", now, before, "before"), ("after", then, after, "after"))
    )
    return tag("div", tag("h4", what), join_markup(lines), class_="compared")


def _reasons_table(report: Report) -> Markup:
    if not report.maintenance.reasons:
        return Markup()
    rows = (
        ("taken" if is_taken else "left alone", why, number_cell(count))
        for why, is_taken, count in report.maintenance.reasons
    )
    return table("Why a compaction takes files or leaves them", ("A compaction", "Because", "Files"), rows)
