"""Which way each data file of a scan is read: by Spark's own Parquet reader where that is exact, else through Arrow.

A file goes through Arrow when it is not Parquet, when Spark has no connector for its scheme, when Spark's listing would
hide it, when it carries no field ids, when a column asked for has a type Spark's reader lacks, or when the value of a
column is in the partition tuple only. A column that is absent and has an initial default is a literal in a pass of its
own (see `presence`).

Whether files carry ids is asked of all footers when the table has a name mapping, as tables with imported files do;
else of a sample. A file without ids that the sample misses makes Spark's reader fail, loudly.

Which files lack a column that is not null there: an identity partition source, or a column with an initial default.

Spark reads an absent column as null, so it must be known beforehand, and a manifest does not say it.

* A column with a default: a value count in the manifest proves that the file has it; without one the footer is read.
* An identity partition source: nearly all writers store it, and footers of a sample are read, a file of each commit.
  If all of these have the column the others are taken to have it too, under guard: a file whose tuple has a value holds
  no null in that column, so a null in it stops the query.

`spark.neve.read.footers` = `all` in the session reads every footer instead of a sample.

The shapes of data files, looked up in their footers: by the driver while they are few, else by a Spark job.

What a data file is made of, as far as a reader must know before it reads: the field ids it carries.

A manifest does not say whether a file carries field ids, nor which columns it has; the footer does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, UnknownType
from pyspark.sql import SparkSession

from neve.io.paths import scheme_of, spark_path_all
from neve.model.values import combine_chunks
from neve.run.read.field_ids import FileField
from neve.run.read.formats import open_file
from neve.run.read.metadata_columns import METADATA_IDS
from neve.run.spark.arrow_exchange import map_in_arrow
from neve.run.spark.parquet_scan import is_hidden
from neve.run.spark.read_columns import is_read_exactly_by_spark, synthetic_name
from neve.run.spark.session import is_classic
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable

FieldIds = frozenset[int]  # the field ids of a file at every depth; empty when it carries none

_THREADS = 16


def read_field_ids(io: FileIO, files: Sequence[tuple[str, int]]) -> list[FieldIds]:
    """The shapes of Parquet files given by path and size, several at a time."""
    if len(files) < 2:
        return [read_field_ids_of_file(io, *file) for file in files]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda file: read_field_ids_of_file(io, *file), files))


def read_field_ids_of_file(io: FileIO, path: str, size: int) -> FieldIds:
    """The field ids of a Parquet file."""
    with open_file(io, path, "PARQUET", size, None) as data:
        return _intern_field_ids(frozenset(_nested_field_ids(data.fields)))


@lru_cache(1024)
def _intern_field_ids(shape: FieldIds) -> FieldIds:
    return shape


def _nested_field_ids(fields: Iterable[FileField]) -> Iterator[int]:
    for field in fields:
        if field.field_id is not None:
            yield field.field_id
        yield from _nested_field_ids(field.children)


_MAX_FILES_ON_DRIVER = 64
_FILES_PER_TASK = 256
_FIELD_IDS_SCHEMA = "path string, size long, ids array<int>"

_MAX_CACHED_FILES = 1 << 18
_field_ids_cache: dict[
    tuple[str, int], FieldIds
] = {}  # a data file never changes: its footer is read once in a process


def cached_field_ids(spark: SparkSession, files: EntryTable, facts: TableFacts) -> list[FieldIds]:
    """The field ids each file carries; empty for a file without any."""
    wanted = list(zip(files["file_path"].to_pylist(), files["file_size_in_bytes"].to_pylist(), strict=True))
    new = [file for file in dict.fromkeys(wanted) if file not in _field_ids_cache]
    found = (
        read_field_ids(facts.io(), new)
        if len(new) <= _MAX_FILES_ON_DRIVER
        else _read_field_ids_on_executors(spark, new, facts)
    )
    _field_ids_cache.update(zip(new, found, strict=True))
    answer = [_field_ids_cache[file] for file in wanted]
    if len(_field_ids_cache) > _MAX_CACHED_FILES:
        _field_ids_cache.clear()
    return answer


def _read_field_ids_on_executors(
    spark: SparkSession, files: list[tuple[str, int]], facts: TableFacts
) -> list[FieldIds]:
    tasks = spark.createDataFrame(pa.table({"path": [p for p, _ in files], "size": [s for _, s in files]}))
    parts = tasks.repartition(-(-len(files) // _FILES_PER_TASK))
    found = map_in_arrow(parts, partial(_read_field_ids_in_task, facts), _FIELD_IDS_SCHEMA).toArrow()
    keys = zip(found["path"].to_pylist(), found["size"].to_pylist(), strict=True)
    by_file = dict(zip(keys, map(frozenset, found["ids"].to_pylist()), strict=True))
    return [by_file[file] for file in files]


def _read_field_ids_in_task(facts: TableFacts, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    io = facts.io()
    for batch in batches:
        files = list(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
        ids = pa.array([sorted(shape) for shape in read_field_ids(io, files)], pa.list_(pa.int32()))
        yield pa.record_batch([batch.column(0), batch.column(1), ids], ["path", "size", "ids"])


FOOTERS_OPTION = "spark.neve.read.footers"
_SAMPLE_FILES = 64

Mask = NDArray[np.bool_]
RowIndices = NDArray[np.int64]


@dataclass(frozen=True)
class MissingColumns:
    """For each file (down) and each column in question (across): what becomes of it."""

    field_ids: tuple[int, ...]
    takes_default: Mask  # absent: it takes its default
    takes_tuple_value: Mask  # absent: its value is in the partition tuple
    never_null: Mask  # held to be present, and then without nulls

    def group_files(self) -> list[tuple[frozenset[int], frozenset[int], RowIndices]]:
        """Files alike, those with values in the tuple left out: the columns by default, those under guard, the rows."""
        rows = np.flatnonzero(~self.takes_tuple_value.any(axis=1))
        both = np.hstack([self.takes_default, self.never_null])[rows]
        found, which = np.unique(both, axis=0, return_inverse=True)
        ids = np.array(self.field_ids, np.int64)
        split = [(kind[: len(ids)], kind[len(ids) :]) for kind in found]
        return [
            (frozenset(ids[defaulted].tolist()), frozenset(ids[guarded].tolist()), rows[which == n])
            for n, (defaulted, guarded) in enumerate(split)
        ]


def find_missing_columns(
    spark: SparkSession, files: EntryTable, projected_schema: Schema, facts: TableFacts
) -> MissingColumns:
    """What becomes of the columns of a projection in each file, as far as that is in question."""
    ids = tuple(sorted(facts.columns_that_may_be_missing(projected_schema)))
    by_tuple = _stack_columns([_is_in_tuple(files, i) for i in ids], len(files))
    in_tuple = _stack_columns([_is_in_tuple(files, i, with_value=True) for i in ids], len(files))
    has_default = np.array([projected_schema.find_field(i).initial_default is not None for i in ids], bool)
    # What the tuple says comes before the default, null too.
    doubtful = has_default & ~by_tuple & ~_stack_columns([_has_value_count(files, i) for i in ids], len(files))
    suspects = doubtful.any(axis=1) | _files_to_inspect(spark, files, in_tuple, ids, facts)
    absent = np.zeros_like(in_tuple)
    absent[suspects] = _missing_mask(spark, files.filter(pa.array(suspects)), ids, facts)
    return MissingColumns(ids, absent & doubtful, absent & in_tuple, in_tuple & ~absent)


def sample_files(spark: SparkSession, files: EntryTable) -> RowIndices:
    """Files that stand for the others: one of each commit and spec, spread over time; all of them if so configured."""
    if spark.conf.get(FOOTERS_OPTION, "sample") == "all":
        return np.arange(len(files))
    commits = pc.fill_null(files["snapshot_id"], -1).to_numpy()
    sequence = pc.fill_null(files["sequence_number"], 0).to_numpy()
    _, first = np.unique(np.stack([sequence, commits, files.numpy("spec_id")]), axis=1, return_index=True)
    return first[np.unique(np.linspace(0, len(first) - 1, min(len(first), _SAMPLE_FILES)).astype(int))]


def _files_to_inspect(
    spark: SparkSession, files: EntryTable, in_tuple: Mask, ids: tuple[int, ...], facts: TableFacts
) -> Mask:
    """Files to look into because a file of the sample takes a value from its tuple: then all of them."""
    suspects: Mask = np.any(in_tuple, axis=1)
    chosen = np.flatnonzero(suspects)
    if not len(chosen):
        return suspects
    chosen = chosen[sample_files(spark, files.take(chosen))]
    absent = _missing_mask(spark, files.take(chosen), ids, facts)
    return suspects if (absent & in_tuple[chosen]).any() else np.zeros_like(suspects)


def _missing_mask(spark: SparkSession, files: EntryTable, ids: tuple[int, ...], facts: TableFacts) -> Mask:
    found = cached_field_ids(spark, files, facts)
    return np.array([[i not in shape for i in ids] for shape in found], bool).reshape(len(files), len(ids))


def _is_in_tuple(files: EntryTable, field_id: int, with_value: bool = False) -> Mask:
    """Files whose own spec has the column as an identity field, with or without a value, or with one only."""
    found = np.zeros(len(files), bool)
    for spec_id in files.spec_ids():
        for part, column in zip(files.specs[spec_id].fields, files.specs.columns(spec_id), strict=True):
            if part.source_id == field_id and isinstance(part.transform, IdentityTransform):
                counts = as_mask(files[column].is_valid()) | (not with_value)
                found |= (files.numpy("spec_id") == spec_id) & counts
    return found


def _has_value_count(files: EntryTable, field_id: int) -> Mask:
    """Files whose manifest entry counts the values of a column."""
    counted = np.zeros(len(files), bool)
    if files.has("value_counts"):
        counts = files["value_counts"].combine_chunks()
        keys = counts.flatten().field("key").to_numpy()
        counted[pc.list_parent_indices(counts).to_numpy()[keys == field_id]] = True
    return counted


def _stack_columns(columns: list[Mask], files: int) -> Mask:
    return np.stack(columns, axis=1) if columns else np.zeros((files, 0), bool)


def as_mask(flags: pa.Array | pa.ChunkedArray) -> Mask:
    """A boolean column without nulls for NumPy."""
    return np.array(combine_chunks(flags).to_numpy(zero_copy_only=False), bool)


_IGNORES_MISSING_IDS = "spark.sql.parquet.fieldId.read.ignoreMissing"


@dataclass(frozen=True)
class NativeFiles:
    """Files of one kind for Spark's reader."""

    rows: RowIndices
    missing_columns: frozenset[int]  # columns none of them has: these take their default
    never_null: frozenset[int]  # columns in which a null means that the file lacks it after all


@dataclass(frozen=True)
class FileRoutes:
    """The rows of an entry table by the way they are read."""

    native: tuple[NativeFiles, ...]
    arrow: RowIndices


def route_files(spark: SparkSession, files: EntryTable, fields: Sequence[NestedField], facts: TableFacts) -> FileRoutes:
    """Decide the way of each file for a scan that asks for some columns."""
    rows = np.arange(len(files))
    asked = _stored(fields)
    if not all(map(is_read_exactly_by_spark, asked.fields)):
        return FileRoutes((), rows)
    fit = rows[_is_readable_by_spark(spark, files, facts)]
    fit = fit[_has_ids(spark, files.take(fit), facts)]
    kinds = find_missing_columns(spark, files.take(fit), asked, facts).group_files() if len(fit) else []
    columns = {f.field_id for f in asked.fields}
    native = tuple(NativeFiles(fit[some], absent, guarded) for absent, guarded, some in kinds if absent <= columns)
    taken = np.concatenate([n.rows for n in native]) if native else rows[:0]
    return FileRoutes(native, np.setdiff1d(rows, taken))


def _stored(fields: Sequence[NestedField]) -> Schema:
    """The columns that come from files; a dropped one, read as a key of deletes, may share its name with another."""
    stored = [f for f in fields if f.field_id not in METADATA_IDS and not isinstance(f.field_type, UnknownType)]
    return Schema(*(f.model_copy(update={"name": synthetic_name(f)}) for f in stored))


def _is_readable_by_spark(spark: SparkSession, files: EntryTable, facts: TableFacts) -> Mask:
    """Parquet files that Spark can open and does not hide."""
    paths = spark_path_all(files["file_path"], facts.schemes)
    is_parquet = pc.equal(files["file_format"].cast(pa.string()), "PARQUET").combine_chunks()
    shown = as_mask(pc.and_not(is_parquet, is_hidden(paths)))
    heads = pc.utf8_slice_codeunits(paths, 0, 32).dictionary_encode()  # schemes are few: ask for each once
    schemes = [scheme_of(head) for head in heads.dictionary.to_pylist()]
    connected = {scheme: scheme is not None and has_connector(spark, scheme, facts) for scheme in set(schemes)}
    return shown & np.array([connected[s] for s in schemes], bool)[heads.indices.to_numpy()]


def has_connector(spark: SparkSession, scheme: str, facts: TableFacts) -> bool:
    """Whether Spark can open files of a scheme; over Spark Connect only what the caller named is known."""
    if scheme == "file" or scheme in facts.schemes.values():
        return True
    if not is_classic(spark):
        return False
    files = spark._jvm.org.apache.hadoop.fs.FileSystem  # type: ignore[union-attr]
    try:
        files.getFileSystemClass(scheme, spark._jsc.hadoopConfiguration())
    except Exception:  # the JVM has no class for it; the bridge has its own error types
        return False
    return True


def _has_ids(spark: SparkSession, files: EntryTable, facts: TableFacts) -> Mask:
    """Files that carry field ids."""
    if not len(files):
        return np.zeros(0, bool)
    is_loud = spark.conf.get(_IGNORES_MISSING_IDS, "false") != "true"
    if (
        facts.name_mapping is None
        and is_loud
        and all(cached_field_ids(spark, files.take(sample_files(spark, files)), facts))
    ):
        return np.ones(len(files), bool)
    return np.array([bool(shape) for shape in cached_field_ids(spark, files, facts)], bool)
