"""Streams of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

__all__ = ["joined"]


def joined(batches: Iterable[pa.RecordBatch], at_least: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are not small."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= at_least:
            yield pa.concat_batches(waiting) if len(waiting) > 1 else batch
            waiting, rows = [], 0
    if rows:
        yield pa.concat_batches(waiting)
