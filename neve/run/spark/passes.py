"""From files and their deletes to passes of Spark's Parquet reader, and the files left to Arrow.

Files without deleted positions share a pass that costs nothing extra. The others have their vectors broadcast, which
takes up to 8 KiB for 65,536 rows; files beyond a budget are read through Arrow, where each task holds its own vectors
only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import NestedField
from pyspark.sql import SparkSession

from neve.run.facts import TableFacts
from neve.run.spark.keys import CHUNK_BITS, split_by_size
from neve.run.spark.names import former_names
from neve.run.spark.pairs import Pairs, Rows
from neve.run.spark.positions import deleted_positions
from neve.run.spark.routes import route
from neve.run.spark.scan import Pass
from neve.run.spark.words import CHUNK_BYTES
from neve.tree.entries import EntryTable

__all__ = ["BROADCAST_BYTES", "Lane", "native_passes"]

BROADCAST_BYTES = 64 << 20  # of a driver that may have 1 GiB


@dataclass(frozen=True)
class Lane:
    """Files of a scan that are read alike, and the deletes by position that apply to them."""

    files: EntryTable
    deletes: EntryTable
    pairs: Pairs
    fields: tuple[NestedField, ...]
    scopes: pa.Array | None = None

    def of(self, rows: Rows) -> Lane:
        """The lane of some of the files."""
        return replace(
            self, files=self.files.take(rows), pairs=self.pairs.of_files(rows), scopes=_taken(self.scopes, rows)
        )


def native_passes(spark: SparkSession, lane: Lane, facts: TableFacts) -> tuple[list[Pass], Rows]:
    """The passes that read a lane's files, and the rows of the files they leave out."""
    if not len(lane.files):
        return [], np.array([], np.int64)
    routes = route(spark, lane.files, lane.fields, facts)
    touched = lane.pairs.touched(len(lane.files))
    heavy = (
        np.flatnonzero(np.cumsum(_broadcast_bytes(lane)) > BROADCAST_BYTES) if touched.any() else np.array([], np.int64)
    )
    passes: list[Pass] = []
    for kind in routes.native:
        for former, some in former_names(lane.files.take(kind.rows), lane.fields, facts):
            rows = kind.rows[some]
            base = Pass(lane.files, lane.fields, kind.absent, kind.never_null, former, scopes=lane.scopes)
            passes += _clean(base, rows[~touched[rows]])
            passes += _deleted(spark, base, lane, np.setdiff1d(rows[touched[rows]], heavy), facts)
    return passes, np.union1d(routes.arrow, heavy)


def _broadcast_bytes(lane: Lane) -> NDArray[np.int64]:
    """At most so many bytes of words each file takes: a chunk is stored if a row in it is deleted."""
    chunks = (lane.files.numpy("record_count") >> CHUNK_BITS) + 1
    deleted = np.zeros(len(lane.files), np.int64)
    np.add.at(deleted, lane.pairs.file, lane.deletes.numpy("record_count")[lane.pairs.delete])
    return np.minimum(chunks, deleted) * CHUNK_BYTES


def _clean(base: Pass, rows: Rows) -> Iterator[Pass]:
    if len(rows):
        yield _of(base, rows)


def _deleted(spark: SparkSession, base: Pass, lane: Lane, rows: Rows, facts: TableFacts) -> Iterator[Pass]:
    """Files with deleted positions, told apart by size where possible; files without a live row are dropped."""
    if not len(rows):
        return
    paths = lane.files["file_path"].take(pa.array(rows)).to_pylist()
    positions = deleted_positions(spark, paths, lane.deletes, lane.pairs.of_files(rows), facts)
    counts = lane.files.numpy("record_count")[rows].tolist()
    is_live = np.array([not p.covers(count) for p, count in zip(positions, counts, strict=True)], bool)
    rows, positions = rows[is_live], [p for p, live in zip(positions, is_live, strict=True) if live]
    for some in split_by_size(lane.files.take(rows)) if len(rows) else []:
        yield replace(_of(base, rows[some]), deleted=tuple(positions[at] for at in some))


def _of(base: Pass, rows: Rows) -> Pass:
    return replace(base, files=base.files.take(rows), scopes=_taken(base.scopes, rows))


def _taken(scopes: pa.Array | None, rows: Rows) -> pa.Array | None:
    return None if scopes is None else scopes.take(pa.array(rows))
