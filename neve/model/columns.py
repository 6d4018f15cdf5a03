"""Columns of Arrow, in however many pieces they come."""

from __future__ import annotations

import pyarrow as pa


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece; nothing is copied where it is in one already."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column
