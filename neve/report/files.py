"""The sections about file sizes and deletes: a histogram of data files, and how many deletes apply to them."""

from __future__ import annotations

from math import log2

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.display.format import format_percent, format_size, plural
from neve.display.html import Markup, tag
from neve.plan.rewrite_options import RewriteOptions
from neve.report.counting import FileMeasures
from neve.report.html import Bar, NumberCell, bar, column_chart, legend, panel, size_cell, table
from neve.report.values import DeleteFacts, DeleteKind, FileRow, FileSizes, Report, SizeBin
from neve.tree.entries import Content, EntryTable
from neve.tree.group_by_spec import deletion_vector_mask

_DELETE_COUNT_RANGES = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 9), (10, 19), (20, 49), (50, 99), (100, None))
_MAX_WORST_FILES = 50


def sizes_of(measures: FileMeasures, options: RewriteOptions) -> FileSizes:
    """Return the sizes of data files in powers of two, without gaps and up to the target size."""
    limits = (options.target_file_size, options.min_file_size, options.max_file_size)
    size = measures["bytes"]
    if not len(size):
        return FileSizes((), 0, 0, 0, *limits)
    power = np.floor(np.log2(np.maximum(size, 1))).astype(np.int64)
    lowest = int(power.min())
    count = max(int(power.max()), options.target_file_size.bit_length() - 1) - lowest + 1
    files, taken, stored_bytes = (
        np.bincount(power - lowest, weights=weights, minlength=count) for weights in (None, measures["taken"], size)
    )
    bins = tuple(SizeBin(1 << (lowest + i), int(files[i]), int(taken[i]), int(stored_bytes[i])) for i in range(count))
    return FileSizes(bins, int(np.median(size)), int(size.min()), int(size.max()), *limits)


def deletes_of(measures: FileMeasures, deletes: EntryTable, pairs: pa.Table) -> DeleteFacts:
    """Return delete files by kind, how many apply to how many data files, and the data files with the most deletes."""
    counts = measures["delete_files"]
    dangling = len(deletes) - len(np.unique(pairs["delete"].to_numpy()))
    bins = []
    for low, high in _DELETE_COUNT_RANGES:
        is_inside = counts >= low if high is None else (counts >= low) & (counts <= high)
        label = f"{low}" if low == high else f"{low} or more" if high is None else f"{low}–{high}"
        bins.append((label, int(is_inside.sum())))
    # The bins end with the last one that has files; without deletes there are none.
    end = 1 + max(index for index, (_, files) in enumerate(bins) if files) if counts.any() else 0
    sizes, rows, specs = measures["bytes"], measures["rows"], measures.files.numpy("spec_id")
    deleted = np.divide(measures["deleted_rows"], rows, out=np.zeros(len(rows)), where=rows > 0)
    share = np.minimum(deleted, 1.0)
    order = np.lexsort((-share, -counts))[:_MAX_WORST_FILES]
    worst = order[counts[order] > 0]
    worst_files = tuple(
        FileRow(path, int(specs[i]), int(sizes[i]), int(rows[i]), int(counts[i]), float(share[i]))
        for path, i in zip(measures.files.take(worst)["file_path"].to_pylist(), worst.tolist(), strict=True)
    )
    return DeleteFacts(_delete_kinds(deletes), tuple(bins[:end]), worst_files, int((counts > 0).sum()), dangling)


def _delete_kinds(deletes: EntryTable) -> tuple[DeleteKind, ...]:
    content, is_vector = deletes.numpy("content"), deletion_vector_mask(deletes)
    masks = {
        "deletion vectors": is_vector,
        "position delete files": (content == Content.POSITION_DELETES) & ~is_vector,
        "equality delete files": content == Content.EQUALITY_DELETES,
    }
    kinds = []
    for name, mask in masks.items():
        if mask.any():
            entries = deletes.filter(pa.array(mask))
            # Vectors share a Puffin file, so only their own part of it counts.
            size_column = "content_size_in_bytes" if name == "deletion vectors" else "file_size_in_bytes"
            rows, size = (int(pc.sum(entries[column]).as_py() or 0) for column in ("record_count", size_column))
            kinds.append(DeleteKind(name, len(entries), rows, size))
    return tuple(kinds)


def sizes_section(report: Report) -> Markup:
    """Render the histogram of file sizes."""
    sizes = report.sizes
    if not sizes.bins:
        return panel("sizes", "File sizes", "There are no data files.")
    lede = (
        f"Half of the files are smaller than {format_size(sizes.median)}; the smallest has "
        f"{format_size(sizes.smallest)}, the largest {format_size(sizes.largest)}. A compaction rewrites files below "
        f"{format_size(sizes.min_size)} and above {format_size(sizes.max_size)} if there are enough of them in one "
        "partition."
    )
    bars = []
    for b in sizes.bins:
        size_range = f"{format_size(b.floor)} to {format_size(b.floor * 2)}"
        title = f"{size_range}: {plural(b.files, 'file')}, {format_size(b.bytes)}, {b.taken:,} to rewrite"
        bars.append(Bar(format_size(b.floor), (("left", b.files - b.taken), ("taken", b.taken)), title))
    # The target as a share of the width: every column is a power of two.
    target = (log2(sizes.target) - log2(sizes.bins[0].floor)) / len(sizes.bins)
    mark_text = f"target {format_size(sizes.target)}"
    chart = column_chart(bars, f"Files by size. {lede}", min(max(target, 0.0), 1.0), mark_text)
    keys = legend((("taken", "rewritten by a compaction"), ("left", "left alone")))
    rows = (
        (NumberCell(b.floor, f"from {format_size(b.floor)}"), b.files, b.taken, size_cell(b.bytes))
        for b in sizes.bins
        if b.files
    )
    numbers = table("Files by size", ("Size", "Files", "To rewrite", "Bytes"), rows)
    return panel("sizes", "File sizes", lede, keys, chart, tag("details", tag("summary", "As a table"), numbers))


def deletes_section(report: Report) -> Markup:
    """Render delete files by kind, how many apply to each data file, and the data files with the most deletes."""
    deletes = report.deletes
    if not deletes.files:
        return panel("deletes", "Deletes", "There are no delete files and no deletion vectors: readers skip nothing.")
    lede = (
        f"{plural(deletes.touched_files, 'data file')} of {report.total.files:,} cannot be read without delete files; "
        f"{format_percent(report.total.deleted_share)} of all rows are known to be deleted and are still read."
    )
    dangling = ""
    if deletes.dangling_files:
        text = f"Delete files that apply to no data file: {deletes.dangling_files:,}."
        dangling = tag("p", text, class_="note")
    kinds = table(
        "Delete files by kind",
        ("Kind", "Files", "Rows", "Bytes"),
        ((kind.name, kind.files, kind.rows, size_cell(kind.bytes)) for kind in deletes.kinds),
    )
    return panel("deletes", "Deletes", lede, kinds, dangling, *_delete_distribution(deletes))


def _delete_distribution(deletes: DeleteFacts) -> tuple[Markup, ...]:
    if not deletes.bins:
        return ()
    heading = tag("h3", "Delete files and vectors per data file")
    most = max(files for _, files in deletes.bins)
    lines = (
        tag(
            "div",
            tag("span", label, class_="when"),
            bar([("left" if label == "0" else "deleted", files)], most),
            tag("span", plural(files, "file"), class_="value"),
        )
        for label, files in deletes.bins
    )
    chart = tag("div", *lines, class_="compared spread")
    rows = (
        (
            f.path.rsplit("/", 1)[-1],
            f.spec_id,
            f.delete_files,
            NumberCell(f.deleted_share, format_percent(f.deleted_share)),
            f.rows,
            size_cell(f.bytes),
        )
        for f in deletes.worst_files
    )
    heads = ("Data file", "Spec", "Delete files", "Rows deleted", "Rows", "Size")
    shown, total = len(deletes.worst_files), deletes.touched_files
    note = f"The {shown:,} of {total:,} files with the most deletes." if shown < total else ""
    return heading, chart, table("Data files with the most deletes", heads, rows, note)
