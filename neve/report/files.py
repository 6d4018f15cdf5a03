"""How large the data files are, and what was deleted from them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from neve.plan.rewrite_options import RewriteOptions
from neve.report.counting import Counted
from neve.report.values import Bin, DeleteKind, Deletes, FileRow, SizeBin, Sizes
from neve.tree.entries import Content, EntryTable

__all__ = ["deletes_of", "sizes_of"]

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
