"""A scan plan as a DataFrame: the live rows of a table's files, by field id.

Files are read in a few passes (see `routes`): clean files by Spark's Parquet reader alone, files with deleted positions
by the same reader with their vectors broadcast, and what Spark cannot read exactly through Arrow. Equality deletes are
joined away, the passes are united, and the columns get their names.

The rows are those of the plan's files: the plan's predicate has chosen files and is not applied to rows. A filter on
the result reaches the Parquet reader, which skips row groups by it.

From files and their deletes to passes of Spark's Parquet reader, and the files left to Arrow.

Files without deleted positions share a pass that costs nothing extra. The others have their vectors broadcast, which
takes up to 8 KiB for 65,536 rows; files beyond a budget are read through Arrow, where each task holds its own vectors
only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql import DataFrame, SparkSession

from neve.errors import UnknownName, UserError
from neve.io.paths import refuse_unreadable
from neve.plan.scan import ScanPlan
from neve.run.read.metadata_columns import (
    DATA_SEQUENCE_NUMBER,
    FILE,
    LAST_UPDATED,
    POSITION,
    ROW_ID,
    SPEC_ID,
    partition_column,
)
from neve.run.read.tasks import numbered, tasks_of
from neve.run.spark.arrow_scan import arrow_scan
from neve.run.spark.equality_deletes import EqualityJoins, equality_joins
from neve.run.spark.file_routing import route
from neve.run.spark.parquet_scan import Among, Pass, scan
from neve.run.spark.position_deletes import CHUNK_BITS, CHUNK_BYTES, Pairs, Rows, deleted_positions, split_by_size
from neve.run.spark.read_columns import ReadNames, former_names, synthetic
from neve.run.spark.session import prepare
from neve.run.spark.types import spark_schema
from neve.run.table_facts import TableFacts
from neve.tree.entries import Content, EntryTable

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


def read(
    spark: SparkSession,
    plan: ScanPlan,
    facts: TableFacts,
    metadata_columns: Sequence[str] = (),
    extra: Sequence[NestedField] = (),
    among: Among | None = None,
) -> DataFrame:
    """The live rows of a plan's files, with the metadata columns asked for after the plan's own.

    `extra` are metadata columns by their reserved ids under names of the caller's choice. Rows that have none of the
    keys of `among` may be left out, and are wherever that saves work.
    """
    prepare(spark)
    for entries in (plan.files, plan.deletes):
        refuse_unreadable(entries["file_path"], facts.location)
    fields = (*plan.schema.fields, *_chosen(metadata_columns, plan.schema, facts), *extra)
    reading = _Reading(spark, replace(plan, files=numbered(plan.files)), facts, fields, among)
    parts = reading.parts()
    if not parts:
        return spark.createDataFrame([], spark_schema(Schema(*fields)))
    return reduce(DataFrame.union, parts).toDF(*(f.name for f in fields))


def metadata_columns_of(facts: TableFacts) -> dict[str, NestedField]:
    """The columns every table has without storing them, by name."""
    columns = (FILE, POSITION, SPEC_ID, partition_column(facts.specs), ROW_ID, LAST_UPDATED, DATA_SEQUENCE_NUMBER)
    return {f.name: f for f in columns}


def _chosen(names: Iterable[str], schema: Schema, facts: TableFacts) -> list[NestedField]:
    known, taken = metadata_columns_of(facts), {f.name for f in schema.fields}
    for name in names:
        if name not in known:
            raise UnknownName("metadata column", name, known)
        if name in taken:
            raise UserError(
                f"Metadata column {name!r} is also a column of the table. Leave the table's own out of the scan."
            )
    return [known[name] for name in names]


@dataclass(frozen=True)
class _Reading:
    """One scan on its way to a DataFrame; every part has the columns `__f<id>` in the order of the fields."""

    spark: SparkSession
    plan: ScanPlan
    facts: TableFacts
    fields: tuple[NestedField, ...]
    among: Among | None = None

    def parts(self) -> list[DataFrame]:
        pairs = Pairs.of(self.plan.attached)
        by_value = self.plan.deletes.numpy("content") == Content.EQUALITY_DELETES
        touched = pairs.of_deletes(by_value).touched(len(self.plan.files))
        plain, beyond = self._without_joins(np.flatnonzero(~touched), pairs.of_deletes(~by_value))
        joined, further = self._with_joins(np.flatnonzero(touched), pairs, by_value)
        return [*plain, *joined, *self._through_arrow(np.union1d(beyond, further), pairs)]

    def _without_joins(self, rows: Rows, pairs: Pairs) -> tuple[list[DataFrame], Rows]:
        """Files without equality deletes, and the rows of those Spark does not read."""
        lane = Lane(self.plan.files.take(rows), self.plan.deletes, pairs.of_files(rows), self.fields)
        passes, beyond = native_passes(self.spark, lane, self.facts)
        return [self._scanned(each) for each in passes], rows[beyond]

    def _with_joins(self, rows: Rows, pairs: Pairs, by_value: NDArray[np.bool_]) -> tuple[list[DataFrame], Rows]:
        """Files with equality deletes, and the rows of those Spark does not read or cannot join."""
        if not len(rows):
            return [], rows
        files, own = self.plan.files.take(rows), pairs.of_files(rows)
        places = np.flatnonzero(by_value)
        deletes = self.plan.deletes.take(places)
        joins = equality_joins(
            self.spark, files, deletes, own.of_deletes(by_value).to_deletes(places), self._asked, self.facts
        )
        fields = tuple({f.field_id: f for f in (*self.fields, *joins.needs)}.values())
        served = np.flatnonzero(~joins.beyond)
        lane = Lane(files, self.plan.deletes, own.of_deletes(~by_value), fields, joins.scopes).of(served)
        passes, beyond = native_passes(self.spark, lane, self.facts)
        parts = [self._joined(self._scanned(each), joins) for each in passes]
        return parts, rows[np.union1d(np.flatnonzero(joins.beyond), served[beyond])]

    def _scanned(self, wanted: Pass) -> DataFrame:
        return scan(self.spark, wanted, self.facts, self._names, self.among)

    def _joined(self, part: DataFrame, joins: EqualityJoins) -> DataFrame:
        for join in joins.joins:
            part = join.applied(self.spark, part, self.facts, self._names)
        return part.select(*map(synthetic, self.fields))

    def _through_arrow(self, rows: Rows, pairs: Pairs) -> list[DataFrame]:
        if not len(rows):
            return []
        tasks = tasks_of(self.plan.files.take(rows), self.plan.deletes, pairs.of_files(rows).table())
        return [arrow_scan(self.spark, tasks, self._asked, self.facts).toDF(*map(synthetic, self.fields))]

    @property
    def _asked(self) -> Schema:
        return Schema(*self.fields)

    @property
    def _names(self) -> ReadNames:
        return ReadNames(self.facts.schemas, has_forgotten=self.facts.has_forgotten)
