"""Which way each data file of a scan is read: by Spark's own Parquet reader where that is exact, else through Arrow.

A file goes through Arrow when it is not Parquet, when Spark has no connector for its scheme, when Spark's listing would
hide it, when it carries no field ids, when a column asked for has a type Spark's reader lacks, or when the value of a
column is in the partition tuple only. A column that is absent and has an initial default is a literal in a pass of its
own.

Whether files carry ids, and which columns they have, is asked of the footers only where it matters:

* ids: of all files when the table has a name mapping, as tables with imported files do; else of the oldest file of each
  spec. A file without ids that this does not find makes Spark's reader fail, loudly.
* columns: for identity partition sources and columns with a default, and there only where the manifest has no count for
  the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, UnknownType
from pyspark.sql import SparkSession

from neve.io.paths import scheme_of, spark_path_all
from neve.run.arrow.columns import METADATA_IDS
from neve.run.facts import TableFacts
from neve.run.spark.columns import is_native
from neve.run.spark.footers import shapes
from neve.run.spark.native import is_hidden
from neve.run.spark.session import is_classic
from neve.tree.entries import EntryTable

__all__ = ["Routes", "route"]

_IGNORES_MISSING_IDS = "spark.sql.parquet.fieldId.read.ignoreMissing"

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Routes:
    """The rows of an entry table by the way they are read."""

    native: tuple[tuple[frozenset[int], Rows], ...]  # columns that some files lack, and these files
    arrow: Rows


def route(spark: SparkSession, files: EntryTable, fields: Sequence[NestedField], facts: TableFacts) -> Routes:
    """Decide the way of each file for a scan that asks for some columns."""
    rows = np.arange(len(files))
    asked = Schema(*(f for f in fields if f.field_id not in METADATA_IDS and not isinstance(f.field_type, UnknownType)))
    if not all(map(is_native, asked.fields)):
        return Routes((), rows)
    native = _kept(rows, _is_readable(spark, files, facts))
    native = _kept(native, _has_ids(spark, files.take(native), facts))
    missing = _missing(spark, files.take(native), asked, facts)
    literals = {f.field_id for f in asked.fields if f.initial_default is not None}
    passes = tuple((ids, native[some]) for ids, some in _grouped(missing) if ids <= literals)
    taken = [some for _, some in passes]
    return Routes(passes, np.setdiff1d(rows, np.concatenate(taken) if taken else []).astype(np.int64))


def _kept(rows: Rows, mask: Mask) -> Rows:
    return rows[mask]


def _is_readable(spark: SparkSession, files: EntryTable, facts: TableFacts) -> Mask:
    """Parquet files that Spark can open and does not hide."""
    paths = spark_path_all(files["file_path"], facts.schemes)
    is_parquet = pc.equal(files["file_format"].cast(pa.string()), "PARQUET").combine_chunks()
    shown = _mask(pc.and_not(is_parquet, is_hidden(paths)))
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
    certain = np.ones(len(files), bool)
    if facts.name_mapping is None and spark.conf.get(_IGNORES_MISSING_IDS, "false") != "true":
        oldest = files.take(_oldest_of_each_spec(files))
        if all(shapes(spark, oldest, facts)):
            return certain
    return np.array([bool(shape) for shape in shapes(spark, files, facts)], bool)


def _oldest_of_each_spec(files: EntryTable) -> Rows:
    sequence = pc.fill_null(files["sequence_number"], 0).to_numpy()
    order = np.lexsort((sequence, files.numpy("spec_id")))
    _, first = np.unique(files.numpy("spec_id")[order], return_index=True)
    return order[first]


def _missing(
    spark: SparkSession, files: EntryTable, asked: Schema, facts: TableFacts
) -> tuple[list[int], NDArray[Any]]:
    """Columns that may be missing, and for each file which of them are: where that makes a difference to the values."""
    ids = sorted(facts.columns_to_place(asked))
    unknown = np.zeros((len(files), len(ids)), bool)
    for at, field_id in enumerate(ids):
        unknown[:, at] = _matters(files, asked.find_field(field_id)) & ~_is_counted(files, field_id)
    doubtful = np.flatnonzero(unknown.any(axis=1))
    found = shapes(spark, files.take(doubtful), facts)
    absent = np.array([[i not in shape for i in ids] for shape in found], bool).reshape(len(doubtful), len(ids))
    missing = np.zeros_like(unknown)
    missing[doubtful] = unknown[doubtful] & absent
    return ids, missing


def _matters(files: EntryTable, field: NestedField) -> Mask:
    """Files in which the column, were it missing, would not be null."""
    if field.initial_default is not None:
        return np.ones(len(files), bool)
    matters = np.zeros(len(files), bool)
    specs = files.specs
    for spec_id in files.spec_ids():
        for part, column in zip(specs[spec_id].fields, specs.columns(spec_id), strict=True):
            if part.source_id == field.field_id and isinstance(part.transform, IdentityTransform):
                matters |= (files.numpy("spec_id") == spec_id) & _mask(files[column].is_valid())
    return matters


def _is_counted(files: EntryTable, field_id: int) -> Mask:
    """Files whose manifest entry counts the values of a column: they have it."""
    counted = np.zeros(len(files), bool)
    if files.has("value_counts"):
        counts = files["value_counts"].combine_chunks()
        keys = counts.flatten().field("key").to_numpy()
        counted[pc.list_parent_indices(counts).to_numpy()[keys == field_id]] = True
    return counted


def _grouped(missing: tuple[list[int], NDArray[Any]]) -> list[tuple[frozenset[int], Rows]]:
    ids, table = missing
    if not len(table):
        return []
    if not table.any():
        return [(frozenset(), np.arange(len(table)))]
    kinds, which = np.unique(table, axis=0, return_inverse=True)
    return [(frozenset(np.array(ids)[kind].tolist()), np.flatnonzero(which == n)) for n, kind in enumerate(kinds)]


def _mask(flags: pa.Array | pa.ChunkedArray) -> Mask:
    whole = flags.combine_chunks() if isinstance(flags, pa.ChunkedArray) else flags
    return np.array(whole.to_numpy(zero_copy_only=False), bool)
