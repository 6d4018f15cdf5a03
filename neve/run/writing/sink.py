"""The end of every write: Arrow batches in, data files out, one row per file back.

It runs in a Spark task or in the driver and knows neither. A sink that fails removes the files it made; what it
returns is the only trace of the files it finished, so files of an attempt whose answer is not used are never
referenced.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress

import pyarrow as pa

from neve.io.files import delete_all
from neve.run.writing.assignment import assigned
from neve.run.writing.batches import joined
from neve.run.writing.durable import make_durable
from neve.run.writing.layout import FileNames
from neve.run.writing.partitioning import Piece
from neve.run.writing.rolling import RollingWriter, WrittenFile
from neve.run.writing.target import WriteTarget
from neve.tree.entries import DETAIL, Content, EntryTable, Status

__all__ = ["Sink", "file_rows", "write_batches"]

_ROWS_AT_ONCE = 65536  # sorting rows out by partition costs per piece, so small batches are joined first


class Sink:
    """The writers of one task attempt."""

    def __init__(self, target: WriteTarget, names: FileNames, *, is_clustered: bool) -> None:
        self._target, self._names, self._is_clustered = target, iter(names), is_clustered
        self._io, self._partitioner = target.open_io(), target.partitioner
        self._buffered = target.options.buffered_bytes
        self._open: OrderedDict[tuple[object, ...], RollingWriter] = OrderedDict()
        self._files: list[WrittenFile] = []
        self._paths: list[str] = []  # every file ever begun

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch of rows as the caller has them."""
        rows = assigned(batch, self._target.file_schema, self._target.arrow_schema)
        for piece in self._partitioner.pieces(rows):
            self._writer(piece).write(piece.rows)
        self._make_room()

    def close(self) -> list[WrittenFile]:
        """Finish every file; they have reached the disk when this returns."""
        self._close_all()
        make_durable(self._io, [f.path for f in self._files], self._target.layout.data_path)
        return self._files

    def abandon(self) -> None:
        """Remove every file this sink made, as far as the storage lets it."""
        for writer in self._open.values():
            with suppress(Exception):
                writer.abandon()
        delete_all(self._io, self._paths)

    def _writer(self, piece: Piece) -> RollingWriter:
        if piece.key not in self._open:
            if self._is_clustered:
                self._close_all()
            folder = self._partitioner.path(piece.key)
            self._open[piece.key] = RollingWriter(
                self._io, self._target, piece.tuple_row, lambda: self._next_path(folder)
            )
        self._open.move_to_end(piece.key)
        return self._open[piece.key]

    def _next_path(self, folder: str) -> str:
        path = self._target.layout.path(next(self._names), folder)
        self._paths.append(path)
        return path

    def _make_room(self) -> None:
        """Empty the fullest buffers when memory is short, then close the files longest untouched when many are open."""
        waiting = sum(w.waiting_bytes for w in self._open.values())
        fullest = sorted(self._open.values(), key=lambda w: -w.waiting_bytes) if waiting > self._buffered else []
        for writer in fullest:
            if waiting <= self._buffered:
                break
            waiting -= writer.waiting_bytes
            writer.flush()
        has_file = [key for key, writer in self._open.items() if writer.has_file_open]
        for key in has_file[: max(len(has_file) - self._target.options.open_files, 0)]:
            self._close(key)

    def _close_all(self) -> None:
        for key in list(self._open):
            self._close(key)

    def _close(self, key: tuple[object, ...]) -> None:
        self._files += self._open[key].close()
        del self._open[key]  # only now: a writer that fails to close is still abandoned


def write_batches(
    batches: Iterable[pa.RecordBatch], target: WriteTarget, names: FileNames, *, is_clustered: bool
) -> list[WrittenFile]:
    """Write batches of rows; on failure no file of this attempt is left behind."""
    sink = Sink(target, names, is_clustered=is_clustered)
    try:
        for batch in joined(batches, _ROWS_AT_ONCE):
            sink.write(batch)
        return sink.close()
    except BaseException:
        sink.abandon()
        raise


def file_rows(files: Sequence[WrittenFile], target: WriteTarget) -> pa.Table:
    """The files as rows of an entry table: added, their sequence numbers and snapshot still to come."""
    columns: dict[str, object] = {
        "manifest": -1,
        "status": int(Status.ADDED),
        "content": int(Content.DATA),
        "file_path": [f.path for f in files],
        "file_format": "PARQUET",
        "spec_id": target.spec_id,
        "record_count": [f.record_count for f in files],
        "file_size_in_bytes": [f.file_size for f in files],
        "sort_order_id": target.order.order_id,
    }
    columns |= {name: [f.metrics[name] for f in files] for name in DETAIL.names if name != "key_metadata"}
    return EntryTable.from_columns(columns | _tuples(files), target.specs, len(files), DETAIL.names).columns


def _tuples(files: Sequence[WrittenFile]) -> dict[str, object]:
    rows = [f.partition for f in files if f.partition is not None]
    if not rows:
        return {}
    table = pa.Table.from_batches(rows)
    return dict(zip(table.column_names, table.columns, strict=True))
