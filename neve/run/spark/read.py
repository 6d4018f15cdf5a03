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
from neve.run.read.tasks import build_task_table, with_ordinals
from neve.run.spark.arrow_scan import arrow_scan
from neve.run.spark.equality_deletes import EqualityJoinSet, plan_equality_joins
from neve.run.spark.file_routing import route_files
from neve.run.spark.parquet_scan import KeyFilter, ParquetPass, scan_parquet
from neve.run.spark.position_deletes import (
    CHUNK_BITS,
    CHUNK_BYTES,
    DeletePairs,
    RowIndices,
    deleted_positions,
    split_by_unique_size,
)
from neve.run.spark.read_columns import ReadNames, former_names, synthetic_name
from neve.run.spark.session import prepare_session
from neve.run.spark.types import spark_schema
from neve.run.table_facts import TableFacts
from neve.tree.entries import Content, EntryTable

BROADCAST_BYTES = 64 << 20  # of a driver that may have 1 GiB


@dataclass(frozen=True)
class ScanFiles:
    """Files of a scan that are read alike, and the deletes by position that apply to them."""

    files: EntryTable
    deletes: EntryTable
    pairs: DeletePairs
    fields: tuple[NestedField, ...]
    scopes: pa.Array | None = None

    def take(self, rows: RowIndices) -> ScanFiles:
        """The lane of some of the files."""
        return replace(
            self, files=self.files.take(rows), pairs=self.pairs.of_files(rows), scopes=_take_scopes(self.scopes, rows)
        )


def plan_parquet_passes(
    spark: SparkSession, scan_files: ScanFiles, facts: TableFacts
) -> tuple[list[ParquetPass], RowIndices]:
    """The passes that read a lane's files, and the rows of the files they leave out."""
    if not len(scan_files.files):
        return [], np.array([], np.int64)
    routes = route_files(spark, scan_files.files, scan_files.fields, facts)
    touched = scan_files.pairs.files_with_deletes(len(scan_files.files))
    heavy = (
        np.flatnonzero(np.cumsum(_broadcast_bytes(scan_files)) > BROADCAST_BYTES)
        if touched.any()
        else np.array([], np.int64)
    )
    passes: list[ParquetPass] = []
    for kind in routes.native:
        for former, some in former_names(scan_files.files.take(kind.rows), scan_files.fields, facts):
            rows = kind.rows[some]
            base = ParquetPass(
                scan_files.files,
                scan_files.fields,
                kind.missing_columns,
                kind.never_null,
                former,
                scopes=scan_files.scopes,
            )
            passes += _clean(base, rows[~touched[rows]])
            passes += _passes_with_deletes(spark, base, scan_files, np.setdiff1d(rows[touched[rows]], heavy), facts)
    return passes, np.union1d(routes.arrow, heavy)


def _broadcast_bytes(scan_files: ScanFiles) -> NDArray[np.int64]:
    """At most so many bytes of words each file takes: a chunk is stored if a row in it is deleted."""
    chunks = (scan_files.files.numpy("record_count") >> CHUNK_BITS) + 1
    deleted = np.zeros(len(scan_files.files), np.int64)
    np.add.at(deleted, scan_files.pairs.file, scan_files.deletes.numpy("record_count")[scan_files.pairs.delete])
    return np.minimum(chunks, deleted) * CHUNK_BYTES


def _clean(base: ParquetPass, rows: RowIndices) -> Iterator[ParquetPass]:
    if len(rows):
        yield _take_files(base, rows)


def _passes_with_deletes(
    spark: SparkSession, base: ParquetPass, scan_files: ScanFiles, rows: RowIndices, facts: TableFacts
) -> Iterator[ParquetPass]:
    """Files with deleted positions, told apart by size where possible; files without a live row are dropped."""
    if not len(rows):
        return
    paths = scan_files.files["file_path"].take(pa.array(rows)).to_pylist()
    positions = deleted_positions(spark, paths, scan_files.deletes, scan_files.pairs.of_files(rows), facts)
    counts = scan_files.files.numpy("record_count")[rows].tolist()
    is_live = np.array([not p.covers(count) for p, count in zip(positions, counts, strict=True)], bool)
    rows, positions = rows[is_live], [p for p, live in zip(positions, is_live, strict=True) if live]
    for some in split_by_unique_size(scan_files.files.take(rows)) if len(rows) else []:
        yield replace(_take_files(base, rows[some]), deleted_positions=tuple(positions[at] for at in some))


def _take_files(base: ParquetPass, rows: RowIndices) -> ParquetPass:
    return replace(base, files=base.files.take(rows), scopes=_take_scopes(base.scopes, rows))


def _take_scopes(scopes: pa.Array | None, rows: RowIndices) -> pa.Array | None:
    return None if scopes is None else scopes.take(pa.array(rows))


def read_dataframe(
    spark: SparkSession,
    plan: ScanPlan,
    facts: TableFacts,
    metadata_columns: Sequence[str] = (),
    extra: Sequence[NestedField] = (),
    key_filter: KeyFilter | None = None,
) -> DataFrame:
    """The live rows of a plan's files, with the metadata columns asked for after the plan's own.

    `extra` are metadata columns by their reserved ids under names of the caller's choice. Rows that have none of the
    keys of `among` may be left out, and are wherever that saves work.
    """
    prepare_session(spark)
    for entries in (plan.files, plan.deletes):
        refuse_unreadable(entries["file_path"], facts.location)
    fields = (*plan.schema.fields, *_requested_metadata_columns(metadata_columns, plan.schema, facts), *extra)
    reading = _DataFrameScan(spark, replace(plan, files=with_ordinals(plan.files)), facts, fields, key_filter)
    parts = reading.dataframes()
    if not parts:
        return spark.createDataFrame([], spark_schema(Schema(*fields)))
    return reduce(DataFrame.union, parts).toDF(*(f.name for f in fields))


def metadata_columns_of(facts: TableFacts) -> dict[str, NestedField]:
    """The columns every table has without storing them, by name."""
    columns = (FILE, POSITION, SPEC_ID, partition_column(facts.specs), ROW_ID, LAST_UPDATED, DATA_SEQUENCE_NUMBER)
    return {f.name: f for f in columns}


def _requested_metadata_columns(names: Iterable[str], schema: Schema, facts: TableFacts) -> list[NestedField]:
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
class _DataFrameScan:
    """One scan on its way to a DataFrame; every part has the columns `__f<id>` in the order of the fields."""

    spark: SparkSession
    plan: ScanPlan
    facts: TableFacts
    fields: tuple[NestedField, ...]
    key_filter: KeyFilter | None = None

    def dataframes(self) -> list[DataFrame]:
        pairs = DeletePairs.of(self.plan.attached)
        by_value = self.plan.deletes.numpy("content") == Content.EQUALITY_DELETES
        touched = pairs.of_deletes(by_value).files_with_deletes(len(self.plan.files))
        plain, beyond = self._without_joins(np.flatnonzero(~touched), pairs.of_deletes(~by_value))
        joined, further = self._with_joins(np.flatnonzero(touched), pairs, by_value)
        return [*plain, *joined, *self._scan_with_arrow(np.union1d(beyond, further), pairs)]

    def _without_joins(self, rows: RowIndices, pairs: DeletePairs) -> tuple[list[DataFrame], RowIndices]:
        """Files without equality deletes, and the rows of those Spark does not read."""
        lane = ScanFiles(self.plan.files.take(rows), self.plan.deletes, pairs.of_files(rows), self.fields)
        passes, beyond = plan_parquet_passes(self.spark, lane, self.facts)
        return [self._scan_pass(each) for each in passes], rows[beyond]

    def _with_joins(
        self, rows: RowIndices, pairs: DeletePairs, by_value: NDArray[np.bool_]
    ) -> tuple[list[DataFrame], RowIndices]:
        """Files with equality deletes, and the rows of those Spark does not read or cannot join."""
        if not len(rows):
            return [], rows
        files, own = self.plan.files.take(rows), pairs.of_files(rows)
        places = np.flatnonzero(by_value)
        deletes = self.plan.deletes.take(places)
        joins = plan_equality_joins(
            self.spark,
            files,
            deletes,
            own.of_deletes(by_value).renumber_deletes(places),
            self._projected_schema,
            self.facts,
        )
        fields = tuple({f.field_id: f for f in (*self.fields, *joins.needed_columns)}.values())
        served = np.flatnonzero(~joins.has_unjoinable_deletes)
        lane = ScanFiles(files, self.plan.deletes, own.of_deletes(~by_value), fields, joins.scopes).take(served)
        passes, beyond = plan_parquet_passes(self.spark, lane, self.facts)
        parts = [self._joined(self._scan_pass(each), joins) for each in passes]
        return parts, rows[np.union1d(np.flatnonzero(joins.has_unjoinable_deletes), served[beyond])]

    def _scan_pass(self, wanted: ParquetPass) -> DataFrame:
        return scan_parquet(self.spark, wanted, self.facts, self._read_names, self.key_filter)

    def _joined(self, part: DataFrame, joins: EqualityJoinSet) -> DataFrame:
        for join in joins.joins:
            part = join.remove_deleted_rows(self.spark, part, self.facts, self._read_names)
        return part.select(*map(synthetic_name, self.fields))

    def _scan_with_arrow(self, rows: RowIndices, pairs: DeletePairs) -> list[DataFrame]:
        if not len(rows):
            return []
        tasks = build_task_table(self.plan.files.take(rows), self.plan.deletes, pairs.of_files(rows).table())
        return [
            arrow_scan(self.spark, tasks, self._projected_schema, self.facts).toDF(*map(synthetic_name, self.fields))
        ]

    @property
    def _projected_schema(self) -> Schema:
        return Schema(*self.fields)

    @property
    def _read_names(self) -> ReadNames:
        return ReadNames(self.facts.schemas, has_forgotten_columns=self.facts.has_forgotten_columns)
