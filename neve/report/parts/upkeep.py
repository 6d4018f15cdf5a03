"""What `maintain()` would do, before and after."""

from __future__ import annotations

from neve.display.format import several, size
from neve.display.html import Markup, joined, tag
from neve.report.parts.pieces import Amount, amount, bar, panel, sized, table
from neve.report.values import Report, Step

__all__ = ["section"]

_NAMES = {
    "rewrite_data_files": "Compact data files",
    "upgrade_spec": "Move old files to the current spec",
    "rewrite_position_deletes": "Rewrite delete files",
    "remove_dangling_deletes": "Remove deletes of nothing",
    "rewrite_manifests": "Rewrite manifests",
    "expire_snapshots": "Expire snapshots",
}


def section(report: Report) -> Markup:
    """The steps, and what the table would look like."""
    upkeep = report.upkeep
    if upkeep.failure:
        failed = tag("p", tag("strong", "The steps could not be planned. "), upkeep.failure, class_="failure")
        return panel("upkeep", "What to do", "maintain() looks at the table and proposes steps.", failed)
    lede = _lede(report)
    return panel("upkeep", "What to do", lede, _steps(report), _before_after(report), _reasons(report))


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
    rows = (_step(number, step) for number, step in enumerate(report.upkeep.steps, 1))
    return table("Steps of maintain()", heads, rows)


def _step(number: int, step: Step) -> tuple[Amount | str, ...]:
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


def _reasons(report: Report) -> Markup:
    if not report.upkeep.reasons:
        return Markup()
    rows = (
        ("taken" if is_taken else "left alone", why, amount(count)) for why, is_taken, count in report.upkeep.reasons
    )
    return table("Why a compaction takes files or leaves them", ("A compaction", "Because", "Files"), rows)
