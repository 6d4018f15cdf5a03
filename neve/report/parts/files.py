"""How large the data files are, and what was deleted from them."""

from __future__ import annotations

from math import log2

from neve.display.format import several, share, size
from neve.display.html import Markup, tag
from neve.report.parts.pieces import Amount, Bar, amount, bar, columns, legend, panel, sized, table
from neve.report.values import Bin, Report, SizeBin, Sizes

__all__ = ["deletes", "sizes"]


def sizes(report: Report) -> Markup:
    """The histogram of file sizes."""
    found = report.sizes
    if not found.bins:
        return panel("sizes", "File sizes", "There are no data files.")
    lede = (
        f"Half of the files are smaller than {size(found.median)}; the smallest has {size(found.smallest)}, the "
        f"largest {size(found.largest)}. A compaction takes files below {size(found.least)} and above "
        f"{size(found.most)}, where enough of them are in one partition."
    )
    bars = [Bar(size(b.floor), (("left", b.files - b.taken), ("taken", b.taken)), _said(b)) for b in found.bins]
    chart = columns(bars, f"Files by size. {lede}", marks=[(_place(found), f"target {size(found.target)}")])
    keys = legend((("taken", "taken by a compaction"), ("left", "left alone")))
    rows = (
        (Amount(b.floor, f"from {size(b.floor)}"), amount(b.files), amount(b.taken), sized(b.bytes))
        for b in found.bins
        if b.files
    )
    numbers = table("Files by size", ("Size", "Files", "Taken", "Bytes"), rows)
    return panel("sizes", "File sizes", lede, keys, chart, _aside("The same in numbers", numbers))


def _place(found: Sizes) -> float:
    """Where the target is among the columns, as a share of the width."""
    place = (log2(found.target) - log2(found.bins[0].floor)) / len(found.bins)
    return min(max(place, 0.0), 1.0)


def _said(one: SizeBin) -> str:
    return (
        f"{size(one.floor)} to {size(one.floor * 2)}: {several(one.files, 'file')}, {size(one.bytes)}, "
        f"{one.taken:,} taken"
    )


def deletes(report: Report) -> Markup:
    """Delete files by kind, how they are spread, and the files they are worst for."""
    found = report.deletes
    if not found.files:
        return panel("deletes", "Deletes", "There are no delete files and no deletion vectors: readers skip nothing.")
    lede = (
        f"{several(found.touched_files, 'data file')} of {report.total.files:,} cannot be read without delete files; "
        f"{share(report.total.deleted_share)} of all rows are known to be deleted and are still read."
    )
    dangling = [tag("p", f"{several(found.dangling, 'delete file')} apply to nothing.", class_="note")]
    kinds = table(
        "Delete files by kind",
        ("Kind", "Files", "Rows", "Bytes"),
        ((kind.name, amount(kind.files), amount(kind.rows), sized(kind.bytes)) for kind in found.kinds),
    )
    return panel("deletes", "Deletes", lede, kinds, *(dangling if found.dangling else []), *_spread(report))


def _spread(report: Report) -> tuple[Markup, ...]:
    found = report.deletes
    if not found.bins:
        return ()
    heading = tag("h3", "Delete files and vectors for each data file")
    most = max(b.files for b in found.bins)
    chart = tag("div", *(_spread_line(b, most) for b in found.bins), class_="compared spread")
    rows = (
        (
            f.path.rsplit("/", 1)[-1],
            amount(f.spec_id),
            amount(f.delete_files),
            Amount(f.deleted_share, share(f.deleted_share)),
            amount(f.rows),
            sized(f.bytes),
        )
        for f in found.worst
    )
    heads = ("Data file", "Spec", "Delete files", "Rows deleted", "Rows", "Size")
    shown = len(found.worst)
    note = f"The {shown:,} of {found.touched_files:,} with most." if shown < found.touched_files else ""
    return heading, chart, table("Data files with most deletes", heads, rows, note)


def _spread_line(one: Bin, most: int) -> Markup:
    label, colour = tag("span", one.label, class_="when"), "left" if one.label == "0" else "deleted"
    value = tag("span", several(one.files, "file"), class_="value")
    return tag("div", label, bar([(colour, one.files)], most), value)


def _aside(title: str, body: Markup) -> Markup:
    return tag("details", tag("summary", title), body)
