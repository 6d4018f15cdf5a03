"""Which way each data file of a scan is read: by Spark's own Parquet reader where that is exact, else through Arrow.

A file goes through Arrow when it is not Parquet, when Spark has no connector for its scheme, when Spark's listing would
hide it, when it carries no field ids, when a column asked for has a type Spark's reader lacks, or when the value of a
column is in the partition tuple only. A column that is absent and has an initial default is a literal in a pass of its
own (see `presence`).

Whether files carry ids is asked of all footers when the table has a name mapping, as tables with imported files do;
else of a sample. A file without ids that the sample misses makes Spark's reader fail, loudly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, UnknownType
from pyspark.sql import SparkSession

from neve.io.paths import scheme_of, spark_path_all
from neve.run.arrow.columns import METADATA_IDS
from neve.run.facts import TableFacts
from neve.run.spark.columns import is_native
from neve.run.spark.footers import shapes
from neve.run.spark.names import synthetic
from neve.run.spark.native import is_hidden
from neve.run.spark.presence import as_mask, presence, sample
from neve.run.spark.session import is_classic
from neve.tree.entries import EntryTable

__all__ = ["Native", "Routes", "has_connector", "route"]

_IGNORES_MISSING_IDS = "spark.sql.parquet.fieldId.read.ignoreMissing"

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Native:
    """Files of one kind for Spark's reader."""

    rows: Rows
    absent: frozenset[int]  # columns none of them has: these take their default
    never_null: frozenset[int]  # columns in which a null means that the file lacks it after all


@dataclass(frozen=True)
class Routes:
    """The rows of an entry table by the way they are read."""

    native: tuple[Native, ...]
    arrow: Rows


def route(spark: SparkSession, files: EntryTable, fields: Sequence[NestedField], facts: TableFacts) -> Routes:
    """Decide the way of each file for a scan that asks for some columns."""
    rows = np.arange(len(files))
    asked = _stored(fields)
    if not all(map(is_native, asked.fields)):
        return Routes((), rows)
    fit = rows[_is_readable(spark, files, facts)]
    fit = fit[_has_ids(spark, files.take(fit), facts)]
    kinds = presence(spark, files.take(fit), asked, facts).kinds() if len(fit) else []
    columns = {f.field_id for f in asked.fields}
    native = tuple(Native(fit[some], absent, guarded) for absent, guarded, some in kinds if absent <= columns)
    taken = np.concatenate([n.rows for n in native]) if native else rows[:0]
    return Routes(native, np.setdiff1d(rows, taken))


def _stored(fields: Sequence[NestedField]) -> Schema:
    """The columns that come from files; a dropped one, read as a key of deletes, may share its name with another."""
    stored = [f for f in fields if f.field_id not in METADATA_IDS and not isinstance(f.field_type, UnknownType)]
    return Schema(*(f.model_copy(update={"name": synthetic(f)}) for f in stored))


def _is_readable(spark: SparkSession, files: EntryTable, facts: TableFacts) -> Mask:
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
    if facts.name_mapping is None and is_loud and all(shapes(spark, files.take(sample(spark, files)), facts)):
        return np.ones(len(files), bool)
    return np.array([bool(shape) for shape in shapes(spark, files, facts)], bool)
