"""How large the data files are, and what was deleted from them.

How large the data files are, and what was deleted from them.
"""

from __future__ import annotations

from math import log2

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from neve.display.format import several, share, size
from neve.display.html import Markup, tag
from neve.plan.rewrite_options import RewriteOptions
from neve.report.counting import Counted
from neve.report.html import Amount, Bar, amount, bar, columns, legend, panel, sized, table
from neve.report.values import Bin, DeleteKind, Deletes, FileRow, Report, SizeBin, Sizes
from neve.tree.entries import Content, EntryTable

_STEPS = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 9), (10, 19), (20, 49), (50, 99), (100, None))
_WORST = 50


def sizes_of(counted: Counted, options: RewriteOptions) -> Sizes:
    """The sizes of data files in powers of two, without gaps."""
    size, taken = counted["bytes"], counted["taken"]
    if not len(size):
        return Sizes((), 0, 0, 0, options.target_file_size, options.min_file_size, options.max_file_size)
    power = np.floor(np.log2(np.maximum(size, 1))).astype(np.int64)
    lowest = int(power.min())
    count = (
        max(int(power.max()), options.target_file_size.bit_length() - 1) - lowest + 1
    )  # the target is in the picture
    files, chosen, held = (
        np.bincount(power - lowest, weights=weights, minlength=count) for weights in (None, taken, size)
    )
    bins = tuple(SizeBin(1 << (lowest + at), int(files[at]), int(chosen[at]), int(held[at])) for at in range(count))
    return Sizes(
        bins,
        int(np.median(size)),
        int(size.min()),
        int(size.max()),
        options.target_file_size,
        options.min_file_size,
        options.max_file_size,
    )


def deletes_of(counted: Counted, deletes: EntryTable, pairs: pa.Table) -> Deletes:
    """The delete files by kind, and how many apply to how many data files."""
    applied = counted["delete_files"]
    touched = int((applied > 0).sum())
    dangling = len(deletes) - len(np.unique(pairs["delete"].to_numpy()))
    return Deletes(_kinds(deletes), _bins(applied), _worst(counted, applied), touched, dangling)


def _kinds(deletes: EntryTable) -> tuple[DeleteKind, ...]:
    content = deletes.numpy("content")
    is_vector = pc.equal(deletes["file_format"].cast(pa.string()), "PUFFIN").fill_null(False)
    in_puffin = np.asarray(is_vector.to_numpy(), bool) & (content == Content.POSITION_DELETES)
    masks = {
        "deletion vectors": in_puffin,
        "position delete files": (content == Content.POSITION_DELETES) & ~in_puffin,
        "equality delete files": content == Content.EQUALITY_DELETES,
    }
    return tuple(_kind(name, deletes.filter(pa.array(mask))) for name, mask in masks.items() if mask.any())


def _kind(name: str, deletes: EntryTable) -> DeleteKind:
    # vectors share a Puffin file, so it is their own share of it that counts
    own = deletes["content_size_in_bytes"] if name == "deletion vectors" else deletes["file_size_in_bytes"]
    rows, held = (int(pc.sum(column).as_py() or 0) for column in (deletes["record_count"], own))
    return DeleteKind(name, len(deletes), rows, held)


def _bins(applied: NDArray[np.int64]) -> tuple[Bin, ...]:
    if not applied.any():
        return ()
    found = []
    for low, high in _STEPS:
        inside = applied >= low if high is None else (applied >= low) & (applied <= high)
        label = f"{low}" if low == high else f"{low} or more" if high is None else f"{low}–{high}"
        found.append(Bin(label, int(inside.sum())))
    last = max(at for at, one in enumerate(found) if one.files)
    return tuple(found[: last + 1])


def _worst(counted: Counted, applied: NDArray[np.int64]) -> tuple[FileRow, ...]:
    """The files with most deleted."""
    rows, dead = counted["rows"], counted["deleted_rows"]
    share = np.minimum(np.divide(dead, rows, out=np.zeros(len(rows)), where=rows > 0), 1.0)
    order = np.lexsort((-share, -applied))[:_WORST]
    chosen = order[applied[order] > 0]
    paths = counted.files.take(chosen)["file_path"].to_pylist()
    specs = counted.files.numpy("spec_id")
    return tuple(
        FileRow(path, int(specs[at]), int(counted["bytes"][at]), int(rows[at]), int(applied[at]), float(share[at]))
        for path, at in zip(paths, chosen.tolist(), strict=True)
    )


def sizes_section(report: Report) -> Markup:
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


def deletes_section(report: Report) -> Markup:
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
