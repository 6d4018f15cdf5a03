"""Decide how each data file of a scan is read: by Spark's own Parquet reader where that is exact, else through Arrow.

A file is read through Arrow if it is not Parquet, if Spark has no connector for its scheme, if Spark's listing would
hide it, if it carries no field ids, if Spark's reader lacks the type of a requested column, or if the value of a column
is only in the partition tuple. A missing column with an initial default is a literal in a pass of its own.

Only the footer of a file says whether it carries field ids and which columns it has; a manifest does not. The driver
reads footers while they are few, else a Spark job reads them.

* Field ids: all footers are read if the table has a name mapping, as tables with imported files do, else those of a
  sample. If the sample misses a file without ids, Spark's reader fails with an error.
* Missing columns: Spark reads a missing column as null. That is wrong for a column with an initial default, and for an
  identity partition source, so such columns must be known beforehand.
    * A column with a default: a value count in the manifest proves that the file has it, else its footer is read.
    * An identity partition source: nearly all writers store it, so the footers of a sample are read, one file of each
      commit. If all of these have the column, the other files are assumed to have it too, with a guard: a file whose
      tuple has a value holds no null in that column, so a null stops the query. Guarded files are read in a pass of
      their own; if others need no guard, and the guarded ones are few, all their footers are read instead.

`spark.neve.read.footers` = `all` in the session reads every footer instead of a sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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

from neve.io.parallel import map_in_threads, reader_count
from neve.io.paths import scheme_of, spark_path_all
from neve.model.values import combine_chunks
from neve.run.read.field_ids import nested_field_ids
from neve.run.read.formats import open_file
from neve.run.read.metadata_columns import METADATA_IDS
from neve.run.spark.arrow_exchange import map_in_arrow
from neve.run.spark.parquet_scan import is_hidden
from neve.run.spark.read_columns import is_read_exactly_by_spark, synthetic_name
from neve.run.spark.session import is_classic
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable

FieldIds = frozenset[int]  # the field ids of a file at every depth; empty if it carries none
Mask = NDArray[np.bool_]
RowIndices = NDArray[np.int64]


def read_field_ids(io: FileIO, files: Sequence[tuple[str, int]]) -> list[FieldIds]:
    """Read the field ids of Parquet files, given by path and size, in parallel."""
    threads = reader_count(io, (path for path, _ in files), 0)
    return map_in_threads(lambda file: read_field_ids_of_file(io, *file), files, threads)


def read_field_ids_of_file(io: FileIO, path: str, size: int) -> FieldIds:
    """Read the field ids of a Parquet file."""
    with open_file(io, path, "PARQUET", size, None) as data:
        return _intern_field_ids(frozenset(nested_field_ids(data.fields)))


@lru_cache(1024)  # most files of a table have the same ids: keep one copy of each set
def _intern_field_ids(ids: FieldIds) -> FieldIds:
    return ids


_MAX_FILES_ON_DRIVER = 64
_FILES_PER_TASK = 256
_FIELD_IDS_SCHEMA = "path string, size long, ids array<int>"

_MAX_CACHED_FILES = 1 << 18
_field_ids_cache: dict[tuple[str, int], FieldIds] = {}  # by path and size: a data file never changes


def cached_field_ids(spark: SparkSession, files: EntryTable, facts: TableFacts) -> list[FieldIds]:
    """Return the field ids that each file carries; each footer is read once per process."""
    keys = list(zip(files["file_path"].to_pylist(), files["file_size_in_bytes"].to_pylist(), strict=True))
    new = [key for key in dict.fromkeys(keys) if key not in _field_ids_cache]
    if len(new) <= _MAX_FILES_ON_DRIVER:
        new_ids = read_field_ids(facts.io(), new)
    else:
        new_ids = _read_field_ids_on_executors(spark, new, facts)
    _field_ids_cache.update(zip(new, new_ids, strict=True))
    field_ids = [_field_ids_cache[key] for key in keys]
    if len(_field_ids_cache) > _MAX_CACHED_FILES:
        _field_ids_cache.clear()
    return field_ids


def _read_field_ids_on_executors(
    spark: SparkSession, files: list[tuple[str, int]], facts: TableFacts
) -> list[FieldIds]:
    tasks = spark.createDataFrame(pa.table({"path": [p for p, _ in files], "size": [s for _, s in files]}))
    parts = tasks.repartition(-(-len(files) // _FILES_PER_TASK))
    rows = map_in_arrow(parts, partial(_read_field_ids_in_task, facts), _FIELD_IDS_SCHEMA).toArrow()
    keys = zip(rows["path"].to_pylist(), rows["size"].to_pylist(), strict=True)
    by_file = dict(zip(keys, map(frozenset, rows["ids"].to_pylist()), strict=True))
    return [by_file[file] for file in files]


def _read_field_ids_in_task(facts: TableFacts, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    io = facts.io()
    for batch in batches:
        files = list(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
        ids = pa.array(list(map(sorted, read_field_ids(io, files))), pa.list_(pa.int32()))
        yield pa.record_batch([batch.column(0), batch.column(1), ids], ["path", "size", "ids"])


FOOTERS_OPTION = "spark.neve.read.footers"
_SAMPLE_FILES = 64


@dataclass(frozen=True)
class MissingColumns:
    """What is known of columns that may be missing, one row per file and one column per field id."""

    field_ids: tuple[int, ...]
    takes_default: Mask  # missing: it takes its default
    takes_tuple_value: Mask  # missing: its value is in the partition tuple
    never_null: Mask  # assumed to be present, and then without nulls

    def group_files(self) -> list[tuple[frozenset[int], frozenset[int], RowIndices]]:
        """Group the files without values from the tuple: columns with defaults, guarded columns, rows."""
        rows = np.flatnonzero(~self.takes_tuple_value.any(axis=1))
        flags = np.hstack([self.takes_default, self.never_null])[rows]
        kinds, kind_of_file = np.unique(flags, axis=0, return_inverse=True)
        ids = np.array(self.field_ids, np.int64)
        split = [(kind[: len(ids)], kind[len(ids) :]) for kind in kinds]
        return [
            (frozenset(ids[defaulted].tolist()), frozenset(ids[guarded].tolist()), rows[kind_of_file == n])
            for n, (defaulted, guarded) in enumerate(split)
        ]


def find_missing_columns(
    spark: SparkSession, files: EntryTable, projected_schema: Schema, facts: TableFacts
) -> MissingColumns:
    """Find out which columns of a projection are missing in which files, where that matters."""
    ids = tuple(sorted(facts.columns_that_may_be_missing(projected_schema)))
    in_spec = _stack_columns([_is_in_tuple(files, i) for i in ids], len(files))
    has_tuple_value = _stack_columns([_is_in_tuple(files, i, with_value=True) for i in ids], len(files))
    has_default = np.array([projected_schema.find_field(i).initial_default is not None for i in ids], bool)
    # The value of the tuple takes precedence over the default, even if it is null.
    doubtful = has_default & ~in_spec & ~_stack_columns([_has_value_count(files, i) for i in ids], len(files))
    inspected = doubtful.any(axis=1) | _files_to_inspect(spark, files, has_tuple_value, ids, facts)
    missing = np.zeros_like(has_tuple_value)
    missing[inspected] = _missing_mask(spark, files.filter(pa.array(inspected)), ids, facts)
    never_null = has_tuple_value & ~inspected[:, np.newaxis]
    return MissingColumns(ids, missing & doubtful, missing & has_tuple_value, never_null)


def sample_files(spark: SparkSession, files: EntryTable) -> RowIndices:
    """Choose one file of each commit and spec, spread over time, up to a limit; or all files if so configured."""
    if spark.conf.get(FOOTERS_OPTION, "sample") == "all":
        return np.arange(len(files))
    commits = pc.fill_null(files["snapshot_id"], -1).to_numpy()
    sequence = pc.fill_null(files["sequence_number"], 0).to_numpy()
    _, first = np.unique(np.stack([sequence, commits, files.numpy("spec_id")]), axis=1, return_index=True)
    return first[np.unique(np.linspace(0, len(first) - 1, min(len(first), _SAMPLE_FILES)).astype(int))]


def _files_to_inspect(
    spark: SparkSession, files: EntryTable, has_tuple_value: Mask, ids: tuple[int, ...], facts: TableFacts
) -> Mask:
    """Select all files with values in the tuple if a file of a sample lacks such a column, or if they are few."""
    suspects: Mask = np.any(has_tuple_value, axis=1)
    sample = np.flatnonzero(suspects)
    needs_own_pass = len(sample) < len(files)
    if not len(sample) or (needs_own_pass and len(sample) <= _SAMPLE_FILES):
        return suspects
    sample = sample[sample_files(spark, files.take(sample))]
    missing = _missing_mask(spark, files.take(sample), ids, facts)
    return suspects if (missing & has_tuple_value[sample]).any() else np.zeros_like(suspects)


def _missing_mask(spark: SparkSession, files: EntryTable, ids: tuple[int, ...], facts: TableFacts) -> Mask:
    ids_of_files = cached_field_ids(spark, files, facts)
    return np.array([[i not in own for i in ids] for own in ids_of_files], bool).reshape(len(files), len(ids))


def _is_in_tuple(files: EntryTable, field_id: int, with_value: bool = False) -> Mask:
    """Select files whose own spec has the column as an identity field; on request only those with a value."""
    mask = np.zeros(len(files), bool)
    for spec_id in files.spec_ids():
        for part, column in zip(files.specs[spec_id].fields, files.specs.columns(spec_id), strict=True):
            if part.source_id == field_id and isinstance(part.transform, IdentityTransform):
                counts = as_mask(files[column].is_valid()) | (not with_value)
                mask |= (files.numpy("spec_id") == spec_id) & counts
    return mask


def _has_value_count(files: EntryTable, field_id: int) -> Mask:
    """Select files whose manifest entry counts the values of a column."""
    mask = np.zeros(len(files), bool)
    if files.has("value_counts"):
        counts = files["value_counts"].combine_chunks()
        keys = counts.flatten().field("key").to_numpy()
        mask[pc.list_parent_indices(counts).to_numpy()[keys == field_id]] = True
    return mask


def _stack_columns(columns: list[Mask], files: int) -> Mask:
    return np.stack(columns, axis=1) if columns else np.zeros((files, 0), bool)


def as_mask(flags: pa.Array | pa.ChunkedArray) -> Mask:
    """Convert a boolean column without nulls to NumPy."""
    return np.array(combine_chunks(flags).to_numpy(zero_copy_only=False), bool)


_IGNORES_MISSING_IDS = "spark.sql.parquet.fieldId.read.ignoreMissing"


@dataclass(frozen=True)
class NativeFiles:
    """Files that Spark's reader reads in one pass."""

    rows: RowIndices
    missing_columns: frozenset[int]  # columns that none of the files has: they take their default
    never_null: frozenset[int]  # columns in which a null means that the file lacks the column after all


@dataclass(frozen=True)
class FileRoutes:
    """The rows of an entry table by how they are read."""

    native: tuple[NativeFiles, ...]
    arrow: RowIndices


def route_files(spark: SparkSession, files: EntryTable, fields: Sequence[NestedField], facts: TableFacts) -> FileRoutes:
    """Decide how each file is read by a scan of some columns."""
    rows = np.arange(len(files))
    stored = [f for f in fields if f.field_id not in METADATA_IDS and not isinstance(f.field_type, UnknownType)]
    if not all(map(is_read_exactly_by_spark, stored)):
        return FileRoutes((), rows)
    # Under synthetic names: a dropped column, read as a key of deletes, may share its name with another one.
    schema = Schema(*(f.model_copy(update={"name": synthetic_name(f)}) for f in stored))
    readable = rows[_is_readable_by_spark(spark, files, facts)]
    readable = readable[_has_ids(spark, files.take(readable), facts)]
    kinds = find_missing_columns(spark, files.take(readable), schema, facts).group_files() if len(readable) else []
    ids = {f.field_id for f in stored}
    native = tuple(NativeFiles(readable[own], missing, guarded) for missing, guarded, own in kinds if missing <= ids)
    native_rows = np.concatenate([n.rows for n in native]) if native else rows[:0]
    return FileRoutes(native, np.setdiff1d(rows, native_rows))


def _is_readable_by_spark(spark: SparkSession, files: EntryTable, facts: TableFacts) -> Mask:
    """Select Parquet files that Spark can open and does not hide."""
    paths = spark_path_all(files["file_path"], facts.schemes)
    is_parquet = pc.equal(files["file_format"].cast(pa.string()), "PARQUET").combine_chunks()
    is_visible = as_mask(pc.and_not(is_parquet, is_hidden(paths)))
    prefixes = pc.utf8_slice_codeunits(paths, 0, 32).dictionary_encode()  # schemes are few: look each up once
    schemes = [scheme_of(prefix) for prefix in prefixes.dictionary.to_pylist()]
    connected = {scheme: scheme is not None and has_connector(spark, scheme, facts) for scheme in set(schemes)}
    return is_visible & np.array([connected[s] for s in schemes], bool)[prefixes.indices.to_numpy()]


def has_connector(spark: SparkSession, scheme: str, facts: TableFacts) -> bool:
    """Check whether Spark can open files of a scheme; over Spark Connect only the schemes of the caller are known."""
    if scheme == "file" or scheme in facts.schemes.values():
        return True
    if not is_classic(spark):
        return False
    files = spark._jvm.org.apache.hadoop.fs.FileSystem  # type: ignore[union-attr]
    try:
        files.getFileSystemClass(scheme, spark._jsc.hadoopConfiguration())
    except Exception:  # the JVM has no class for it; Py4J has its own error types
        return False
    return True


def _has_ids(spark: SparkSession, files: EntryTable, facts: TableFacts) -> Mask:
    """Select files that carry field ids."""
    if not len(files):
        return np.zeros(0, bool)
    # A sample is enough only if Spark fails at files without ids.
    may_sample = facts.name_mapping is None and spark.conf.get(_IGNORES_MISSING_IDS, "false") != "true"
    if may_sample and all(cached_field_ids(spark, files.take(sample_files(spark, files)), facts)):
        return np.ones(len(files), bool)
    return np.array([bool(ids) for ids in cached_field_ids(spark, files, facts)], bool)
