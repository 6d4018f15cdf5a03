"""How large the data files are, and what was deleted from them.

How large the data files are, and what was deleted from them.
"""

from __future__ import annotations

from math import log2

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from neve.display.format import format_percent, format_size, plural
from neve.display.html import Markup, tag
from neve.plan.rewrite_options import RewriteOptions
from neve.report.counting import FileMeasures
from neve.report.html import Bar, NumberCell, bar, column_chart, legend, number_cell, panel, size_cell, table
from neve.report.values import DeleteCountBin, DeleteFacts, DeleteKind, FileRow, FileSizes, Report, SizeBin
from neve.tree.entries import Content, EntryTable

_DELETE_COUNT_RANGES = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 9), (10, 19), (20, 49), (50, 99), (100, None))
_MAX_WORST_FILES = 50


def sizes_of(measures: FileMeasures, options: RewriteOptions) -> FileSizes:
    """The sizes of data files in powers of two, without gaps."""
    size, taken = measures["bytes"], measures["taken"]
    if not len(size):
        return FileSizes((), 0, 0, 0, options.target_file_size, options.min_file_size, options.max_file_size)
    power = np.floor(np.log2(np.maximum(size, 1))).astype(np.int64)
    lowest = int(power.min())
    count = (
        max(int(power.max()), options.target_file_size.bit_length() - 1) - lowest + 1
    )  # the target is in the picture
    files, chosen, held = (
        np.bincount(power - lowest, weights=weights, minlength=count) for weights in (None, taken, size)
    )
    bins = tuple(SizeBin(1 << (lowest + at), int(files[at]), int(chosen[at]), int(held[at])) for at in range(count))
    return FileSizes(
        bins,
        int(np.median(size)),
        int(size.min()),
        int(size.max()),
        options.target_file_size,
        options.min_file_size,
        options.max_file_size,
    )


def deletes_of(measures: FileMeasures, deletes: EntryTable, pairs: pa.Table) -> DeleteFacts:
    """The delete files by kind, and how many apply to how many data files."""
    applied = measures["delete_files"]
    touched = int((applied > 0).sum())
    dangling = len(deletes) - len(np.unique(pairs["delete"].to_numpy()))
    return DeleteFacts(
        _delete_kinds(deletes), _delete_count_bins(applied), _worst_files(measures, applied), touched, dangling
    )


def _delete_kinds(deletes: EntryTable) -> tuple[DeleteKind, ...]:
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


def _delete_count_bins(delete_counts: NDArray[np.int64]) -> tuple[DeleteCountBin, ...]:
    if not delete_counts.any():
        return ()
    found = []
    for low, high in _DELETE_COUNT_RANGES:
        inside = delete_counts >= low if high is None else (delete_counts >= low) & (delete_counts <= high)
        label = f"{low}" if low == high else f"{low} or more" if high is None else f"{low}–{high}"
        found.append(DeleteCountBin(label, int(inside.sum())))
    last = max(at for at, one in enumerate(found) if one.files)
    return tuple(found[: last + 1])


def _worst_files(measures: FileMeasures, delete_counts: NDArray[np.int64]) -> tuple[FileRow, ...]:
    """The files with most deleted."""
    rows, dead = measures["rows"], measures["deleted_rows"]
    share = np.minimum(np.divide(dead, rows, out=np.zeros(len(rows)), where=rows > 0), 1.0)
    order = np.lexsort((-share, -delete_counts))[:_MAX_WORST_FILES]
    chosen = order[delete_counts[order] > 0]
    paths = measures.files.take(chosen)["file_path"].to_pylist()
    specs = measures.files.numpy("spec_id")
    return tuple(
        FileRow(
            path, int(specs[at]), int(measures["bytes"][at]), int(rows[at]), int(delete_counts[at]), float(share[at])
        )
        for path, at in zip(paths, chosen.tolist(), strict=True)
    )


def sizes_section(report: Report) -> Markup:
    """The histogram of file sizes."""
    found = report.sizes
    if not found.bins:
        return panel("sizes", "File sizes", "There are no data files.")
    lede = (
        f"Half of the files are smaller than {format_size(found.median)}; the smallest has {format_size(found.smallest)}, the "
        f"largest {format_size(found.largest)}. A compaction takes files below {format_size(found.min_size)} and above "
        f"{format_size(found.max_size)}, where enough of them are in one partition."
    )
    bars = [
        Bar(format_size(b.floor), (("left", b.files - b.taken), ("taken", b.taken)), _bin_title(b)) for b in found.bins
    ]
    chart = column_chart(bars, f"Files by size. {lede}", marks=[(_place(found), f"target {format_size(found.target)}")])
    keys = legend((("taken", "taken by a compaction"), ("left", "left alone")))
    rows = (
        (
            NumberCell(b.floor, f"from {format_size(b.floor)}"),
            number_cell(b.files),
            number_cell(b.taken),
            size_cell(b.bytes),
        )
        for b in found.bins
        if b.files
    )
    numbers = table("Files by size", ("Size", "Files", "Taken", "Bytes"), rows)
    return panel("sizes", "File sizes", lede, keys, chart, _aside("The same in numbers", numbers))


def _place(found: FileSizes) -> float:
    """Where the target is among the columns, as a share of the width."""
    place = (log2(found.target) - log2(found.bins[0].floor)) / len(found.bins)
    return min(max(place, 0.0), 1.0)


def _bin_title(one: SizeBin) -> str:
    return (
        f"{format_size(one.floor)} to {format_size(one.floor * 2)}: {plural(one.files, 'file')}, {format_size(one.bytes)}, "
        f"{one.taken:,} taken"
    )


def deletes_section(report: Report) -> Markup:
    """Delete files by kind, how they are spread, and the files they are worst for."""
    found = report.deletes
    if not found.files:
        return panel("deletes", "Deletes", "There are no delete files and no deletion vectors: readers skip nothing.")
    lede = (
        f"{plural(found.touched_files, 'data file')} of {report.total.files:,} cannot be read without delete files; "
        f"{format_percent(report.total.deleted_share)} of all rows are known to be deleted and are still read."
    )
    dangling = [tag("p", f"{plural(found.dangling_files, 'delete file')} apply to nothing.", class_="note")]
    kinds = table(
        "Delete files by kind",
        ("Kind", "Files", "Rows", "Bytes"),
        ((kind.name, number_cell(kind.files), number_cell(kind.rows), size_cell(kind.bytes)) for kind in found.kinds),
    )
    return panel(
        "deletes", "Deletes", lede, kinds, *(dangling if found.dangling_files else []), *_delete_distribution(report)
    )


def _delete_distribution(report: Report) -> tuple[Markup, ...]:
    found = report.deletes
    if not found.bins:
        return ()
    heading = tag("h3", "Delete files and vectors for each data file")
    most = max(b.files for b in found.bins)
    chart = tag("div", *(_spread_line(b, most) for b in found.bins), class_="compared spread")
    rows = (
        (
            f.path.rsplit("/", 1)[-1],
            number_cell(f.spec_id),
            number_cell(f.delete_files),
            NumberCell(f.deleted_share, format_percent(f.deleted_share)),
            number_cell(f.rows),
            size_cell(f.bytes),
        )
        for f in found.worst_files
    )
    heads = ("Data file", "Spec", "Delete files", "Rows deleted", "Rows", "Size")
    shown = len(found.worst_files)
    note = f"The {shown:,} of {found.touched_files:,} with most." if shown < found.touched_files else ""
    return heading, chart, table("Data files with most deletes", heads, rows, note)


def _spread_line(one: DeleteCountBin, most: int) -> Markup:
    label, colour = tag("span", one.label, class_="when"), "left" if one.label == "0" else "deleted"
    value = tag("span", plural(one.files, "file"), class_="value")
    return tag("div", label, bar([(colour, one.files)], most), value)


def _aside(title: str, body: Markup) -> Markup:
    return tag("details", tag("summary", title), body)
