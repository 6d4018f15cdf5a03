"""The section about maintenance: the steps of `maintain()`, and the table before and after a compaction."""

from __future__ import annotations

import re

import numpy as np

from neve.display.format import format_size, plural
from neve.display.html import Markup, join_markup, tag
from neve.errors import NeveError
from neve.ops.context import TableContext
from neve.ops.maintenance.maintain import propose_steps
from neve.plan.rewrite_plan import Reason, RewritePlan
from neve.report.html import bar, panel, size_cell, table
from neve.report.values import MaintenanceOutlook, Report

_STEPS = {  # title and command by verb
    "rewrite_data_files": ("Compact data files", "t.rewrite_data_files()"),
    "upgrade_spec": ("Move old files to the current spec", "t.rewrite_data_files().upgrade_spec()"),
    "rewrite_position_deletes": ("Rewrite delete files", "t.rewrite_position_deletes().equality_deletes()"),
    "remove_dangling_deletes": ("Remove dangling deletes", "t.remove_dangling_deletes()"),
    "rewrite_manifests": ("Rewrite manifests", "t.rewrite_manifests()"),
    "expire_snapshots": ("Expire snapshots", "t.expire_snapshots()"),
}


def maintenance_of(context: TableContext, compaction: RewritePlan, *, has_condition: bool) -> MaintenanceOutlook:
    """Return the steps of `maintain()` and the plan of a compaction; if the table is too damaged to plan, say why."""
    try:
        steps, failure = propose_steps(context, None if has_condition else compaction), ""
    except (NeveError, OSError) as e:
        steps, failure = (), str(e)
    codes, counts = np.unique(compaction.reason_codes, return_counts=True)
    reasons = [(Reason(int(code)), int(count)) for code, count in zip(codes, counts, strict=True)]
    return MaintenanceOutlook(
        steps,
        compaction.files,
        compaction.bytes,
        sum(g.output_files for g in compaction.groups),
        tuple((_REASON_TEXTS[reason], reason.is_chosen, count) for reason, count in reversed(reasons)),
        failure,
    )


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


def maintenance_section(report: Report) -> Markup:
    """Render the steps, and the table before and after a compaction."""
    outlook = report.maintenance
    if outlook.failure:
        failure = tag("p", tag("strong", "The steps could not be planned. "), outlook.failure, class_="failure")
        return panel("upkeep", "What to do", "maintain() looks at the table and proposes steps.", failure)
    lede, steps = "maintain() has nothing to do.", Markup()
    if taken := sum(not step.is_rejected for step in outlook.steps):
        lede = (
            f"maintain() would take {plural(taken, 'step')}, the most useful first. Each is planned "
            "independently: a step may make the next one smaller."
        )
    if outlook.steps:
        heads = ("#", "Step", "What", "Files saved", "Bytes to read", "In Python")
        rows = []
        for number, step in enumerate(outlook.steps, 1):
            read = size_cell(step.bytes_read) if step.bytes_read > 1 else None
            title, command = _STEPS.get(step.verb, (step.verb, "t.maintain()"))
            # Sizes in a unit that suits them instead of bytes.
            why = re.sub(r"\b([\d,]+) bytes\b", lambda match: format_size(int(match[1].replace(",", ""))), step.why)
            how = "rejected" if step.is_rejected else tag("code", f"{command}.execute()")
            rows.append((number, title, why, step.files_saved or None, read, how))
        steps = table("Steps of maintain()", heads, rows)
    reasons = [("rewritten" if is_taken else "left alone", why, count) for why, is_taken, count in outlook.reasons]
    title = "Why a compaction rewrites files or leaves them alone"
    why_files = table(title, ("Files are", "Because", "Files"), reasons) if reasons else ""
    return panel("upkeep", "What to do", lede, steps, _before_after(report), why_files)


def _before_after(report: Report) -> Markup:
    """Compare the number of data files and their mean size before and after a compaction."""
    if report.maintenance.output_files >= report.maintenance.files_to_rewrite:
        return Markup()
    total, after = report.total, report.files_after
    means = (total.mean_size, total.bytes / max(after, 1))
    rows = [
        _comparison("Data files", f"{total.files:,}", f"{after:,}", total.files, after),
        _comparison("Mean file size", format_size(means[0]), format_size(means[1]), *means),
    ]
    return tag("div", tag("h3", "Before and after a compaction"), *rows, class_="before-after")


def _comparison(what: str, before_text: str, after_text: str, before: float, after: float) -> Markup:
    most = max(before, after)
    lines = (
        tag("div", tag("span", when, class_="when"), bar([(colour, value)], most), tag("span", text, class_="value"))
        for when, text, value, colour in (("now", before_text, before, "before"), ("after", after_text, after, "after"))
    )
    return tag("div", tag("h4", what), join_markup(lines), class_="compared")
