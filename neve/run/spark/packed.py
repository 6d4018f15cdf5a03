"""Arrow tables as bytes, for types that Spark does not have: they travel between driver and tasks in one cell."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["packed", "unpacked"]


def packed(rows: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())


def unpacked(data: bytes) -> pa.Table:
    """The table in an Arrow stream."""
    return pa.ipc.open_stream(data).read_all()
