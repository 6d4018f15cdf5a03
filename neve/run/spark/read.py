"""Read the files of a scan plan as a DataFrame: the live rows, with columns found by field id.

Files are read in a few passes (see `file_routing`). Spark's Parquet reader reads files without deleted positions in a
pass that costs nothing extra. For files with deleted positions, bitmaps are broadcast, which take up to 8 KiB per
65,536 rows; files beyond a budget are read through Arrow, where each task holds only the bitmaps of its own files.
Equality deletes are applied by joins. Then the passes are united, and the columns get their names.

Files that Spark cannot read exactly are read through Arrow by Python on the executors: ORC and Avro files, files
without field ids, columns that are only in the partition tuple, schemes for which Spark has no connector. That is
slower, but works for any format, any file schema and any storage that PyIceberg reaches, on a classic session and over
Spark Connect. Tasks are sent as data, one group per row. What opens the storage is sent inside the function, never in
the text of a plan, because it may hold credentials.

The plan's predicate has selected files; it is not applied to rows. A filter on the result reaches the Parquet reader,
which skips row groups by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from neve.errors import UnknownName, UserError
from neve.io.paths import refuse_unreadable
from neve.plan.scan import ScanPlan
from neve.run.read.file_reader import read_tasks
from neve.run.read.metadata_columns import metadata_columns as all_metadata_columns
from neve.run.read.tasks import (
    SPLIT_BYTES,
    FileTask,
    ReadTarget,
    build_task_table,
    file_tasks,
    group_tasks,
    split_large_files,
    with_ordinals,
)
from neve.run.read.types import ArrowFlavor
from neve.run.spark.arrow_exchange import from_ipc, map_in_arrow, to_ipc
from neve.run.spark.equality_deletes import plan_equality_joins
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

BROADCAST_BYTES = 64 << 20  # small enough for a driver with 1 GiB

Batches = Iterable[pa.RecordBatch]
FileReader = Callable[[FileIO, Sequence[FileTask], ReadTarget], Batches]


@dataclass(frozen=True)
class ScanFiles:
    """Files of a scan that are read in the same way, and the position deletes that apply to them."""

    files: EntryTable
    deletes: EntryTable
    pairs: DeletePairs
    fields: tuple[NestedField, ...]
    scopes: pa.Array | None = None

    def take(self, rows: RowIndices) -> ScanFiles:
        """Return a part of the files, with their deletes."""
        return replace(
            self, files=self.files.take(rows), pairs=self.pairs.of_files(rows), scopes=_take_scopes(self.scopes, rows)
        )


def plan_parquet_passes(
    spark: SparkSession, scan_files: ScanFiles, facts: TableFacts
) -> tuple[list[ParquetPass], RowIndices]:
    """Return the passes of Spark's Parquet reader, and the rows of the files that are left to Arrow."""
    if not len(scan_files.files):
        return [], np.array([], np.int64)
    routes = route_files(spark, scan_files.files, scan_files.fields, facts)
    has_deletes = scan_files.pairs.files_with_deletes(len(scan_files.files))
    over_budget = (
        np.flatnonzero(np.cumsum(_broadcast_bytes(scan_files)) > BROADCAST_BYTES)
        if has_deletes.any()
        else np.array([], np.int64)
    )
    passes: list[ParquetPass] = []
    for kind in routes.native:
        for names, chosen in former_names(scan_files.files.take(kind.rows), scan_files.fields, facts):
            rows = kind.rows[chosen]
            base = ParquetPass(
                scan_files.files,
                scan_files.fields,
                kind.missing_columns,
                kind.never_null,
                names,
                scopes=scan_files.scopes,
            )
            clean, with_deletes = rows[~has_deletes[rows]], np.setdiff1d(rows[has_deletes[rows]], over_budget)
            passes += [_take_files(base, clean)] if len(clean) else []
            passes += _passes_with_deletes(spark, base, scan_files, with_deletes, facts)
    return passes, np.union1d(routes.arrow, over_budget)


def _broadcast_bytes(scan_files: ScanFiles) -> NDArray[np.int64]:
    """Return an upper bound of each file's bitmap bytes: a chunk is stored if a row in it is deleted."""
    chunks = (scan_files.files.numpy("record_count") >> CHUNK_BITS) + 1
    deleted = np.zeros(len(scan_files.files), np.int64)
    np.add.at(deleted, scan_files.pairs.file, scan_files.deletes.numpy("record_count")[scan_files.pairs.delete])
    return np.minimum(chunks, deleted) * CHUNK_BYTES


def _passes_with_deletes(
    spark: SparkSession, base: ParquetPass, scan_files: ScanFiles, rows: RowIndices, facts: TableFacts
) -> Iterator[ParquetPass]:
    """Yield passes over files with deleted positions, grouped by whether their sizes identify them.

    Files without a live row are left out.
    """
    if not len(rows):
        return
    paths = scan_files.files["file_path"].take(pa.array(rows)).to_pylist()
    positions = deleted_positions(spark, paths, scan_files.deletes, scan_files.pairs.of_files(rows), facts)
    counts = scan_files.files.numpy("record_count")[rows].tolist()
    is_live = np.array([not p.covers(count) for p, count in zip(positions, counts, strict=True)], bool)
    rows, positions = rows[is_live], [p for p, live in zip(positions, is_live, strict=True) if live]
    for chosen in split_by_unique_size(scan_files.files.take(rows)) if len(rows) else []:
        yield replace(_take_files(base, rows[chosen]), deleted_positions=tuple(positions[at] for at in chosen))


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
    """Read the live rows of a plan's files; the requested metadata columns follow the plan's own columns.

    `extra` are metadata columns with their reserved ids, under names that the caller chooses. Rows without a key of
    `key_filter` may be left out, and are left out wherever that saves work.
    """
    prepare_session(spark)
    for entries in (plan.files, plan.deletes):
        refuse_unreadable(entries["file_path"], facts.location)
    fields = (*plan.schema.fields, *_requested_metadata_columns(metadata_columns, plan.schema, facts), *extra)
    scan = _DataFrameScan(spark, replace(plan, files=with_ordinals(plan.files)), facts, fields, key_filter)
    parts = scan.dataframes()
    if not parts:
        return spark.createDataFrame([], spark_schema(Schema(*fields)))
    return reduce(DataFrame.union, parts).toDF(*(f.name for f in fields))


def _requested_metadata_columns(names: Iterable[str], schema: Schema, facts: TableFacts) -> list[NestedField]:
    available, table_columns = all_metadata_columns(facts.specs), {f.name for f in schema.fields}
    for name in names:
        if name not in available:
            raise UnknownName("metadata column", name, available)
        if name in table_columns:
            raise UserError(
                f"Metadata column {name!r} is also a column of the table. Leave the table's own out of the scan."
            )
    return [available[name] for name in names]


@dataclass(frozen=True)
class _DataFrameScan:
    """One scan; each DataFrame has the columns `__f<id>` in the order of the fields."""

    spark: SparkSession
    plan: ScanPlan
    facts: TableFacts
    fields: tuple[NestedField, ...]
    key_filter: KeyFilter | None = None

    def dataframes(self) -> list[DataFrame]:
        """Return the parts of the scan: files without equality deletes, files with them, and files for Arrow."""
        pairs = DeletePairs.of(self.plan.attached)
        is_equality = self.plan.deletes.numpy("content") == Content.EQUALITY_DELETES
        needs_joins = pairs.of_deletes(is_equality).files_with_deletes(len(self.plan.files))
        rows = np.flatnonzero(~needs_joins)
        own_pairs = pairs.of_deletes(~is_equality).of_files(rows)
        files = ScanFiles(self.plan.files.take(rows), self.plan.deletes, own_pairs, self.fields)
        passes, left = plan_parquet_passes(self.spark, files, self.facts)
        plain = [self._scan_pass(each) for each in passes]
        joined, left_by_joins = self._with_joins(np.flatnonzero(needs_joins), pairs, is_equality)
        return [*plain, *joined, *self._scan_with_arrow(np.union1d(rows[left], left_by_joins), pairs)]

    def _with_joins(
        self, rows: RowIndices, pairs: DeletePairs, is_equality: NDArray[np.bool_]
    ) -> tuple[list[DataFrame], RowIndices]:
        """Read files with equality deletes; also return the rows of files that Spark cannot read or join."""
        if not len(rows):
            return [], rows
        files, own_pairs = self.plan.files.take(rows), pairs.of_files(rows)
        delete_rows = np.flatnonzero(is_equality)
        joins = plan_equality_joins(
            self.spark,
            files,
            self.plan.deletes.take(delete_rows),
            own_pairs.of_deletes(is_equality).renumber_deletes(delete_rows),
            self._projected_schema,
            self.facts,
        )
        fields = tuple({f.field_id: f for f in (*self.fields, *joins.needed_columns)}.values())
        joinable = np.flatnonzero(~joins.has_unjoinable_deletes)
        position_pairs = own_pairs.of_deletes(~is_equality)
        scan_files = ScanFiles(files, self.plan.deletes, position_pairs, fields, joins.scopes).take(joinable)
        passes, left = plan_parquet_passes(self.spark, scan_files, self.facts)
        parts = []
        for parquet_pass in passes:
            part = self._scan_pass(parquet_pass)
            for join in joins.joins:
                part = join.remove_deleted_rows(self.spark, part, self.facts, self._read_names)
            parts.append(part.select(*map(synthetic_name, self.fields)))
        return parts, rows[np.union1d(np.flatnonzero(joins.has_unjoinable_deletes), joinable[left])]

    def _scan_pass(self, parquet_pass: ParquetPass) -> DataFrame:
        return scan_parquet(self.spark, parquet_pass, self.facts, self._read_names, self.key_filter)

    def _scan_with_arrow(self, rows: RowIndices, pairs: DeletePairs) -> list[DataFrame]:
        if not len(rows):
            return []
        tasks = build_task_table(self.plan.files.take(rows), self.plan.deletes, pairs.of_files(rows).table())
        part = arrow_scan(self.spark, tasks, self._projected_schema, self.facts)
        return [part.toDF(*map(synthetic_name, self.fields))]

    @property
    def _projected_schema(self) -> Schema:
        return Schema(*self.fields)

    @property
    def _read_names(self) -> ReadNames:
        return ReadNames(self.facts.schemas, has_forgotten_columns=self.facts.has_forgotten_columns)


def arrow_scan(
    spark: SparkSession,
    tasks: pa.Table,
    schema: Schema,
    facts: TableFacts,
    *,
    predicate: BooleanExpression | None = None,
    split_bytes: int = SPLIT_BYTES,
) -> DataFrame:
    """Read the live rows of the data files in a task table (see `neve.run.read.tasks`), in the columns of a schema.

    Row groups whose statistics rule out the predicate (bound, in normal form) are skipped; other rows may fail it.
    """
    target = ReadTarget(schema, facts.name_mapping, facts.schemas, ArrowFlavor.SPARK, predicate)
    return read_in_spark_tasks(spark, tasks, target, facts, split_bytes=split_bytes)


def read_in_spark_tasks(
    spark: SparkSession,
    tasks: pa.Table,
    target: ReadTarget,
    facts: TableFacts,
    *,
    read: FileReader = read_tasks,
    split_bytes: int = SPLIT_BYTES,
) -> DataFrame:
    """Read the files in a task table with a function, each group of files in one Spark task."""
    result_schema = spark_schema(target.schema)
    if not tasks.num_rows:
        return spark.createDataFrame([], result_schema)
    groups = [to_ipc(group) for group in group_tasks(split_large_files(tasks, split_bytes), split_bytes)]
    columns = {"group": pa.array(range(len(groups)), pa.int32()), "tasks": pa.array(groups, pa.binary())}
    rows = spark.createDataFrame(pa.table(columns))
    # One task per group: round robin, or a hash, would put several groups into one task.
    spread = rows.repartitionById(len(groups), col("group")) if len(groups) > 1 else rows
    return map_in_arrow(spread.select("tasks"), _read_function(target, facts, read), result_schema)


def _read_function(target: ReadTarget, facts: TableFacts, read: FileReader) -> Callable[[Batches], Batches]:
    # A separate function, so that a plan shows only the name of the inner one.
    def read_data_files(batches: Batches) -> Iterator[pa.RecordBatch]:
        io = facts.io()
        for batch in batches:
            for group in batch.column(0).to_pylist():
                yield from read(io, file_tasks(from_ipc(group), facts.specs), target)

    return read_data_files
