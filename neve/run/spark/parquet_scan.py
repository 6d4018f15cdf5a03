"""Read Parquet files with Spark's own reader, by field id: one pass, without deleted rows, with facts about files.

The columns of the result are called `__f<id>`. A fact that is the same for all files (their spec, their sequence
number) is a literal; only facts that differ are joined, by the key of the file.

Callers route elsewhere what this reader cannot do: files without field ids, files that Spark's listing hides, types
that Spark does not have. Two things would make it silently wrong, so they are fixed here: session options that skip
unreadable files, and names (see `read_columns`).

A `KeyFilter` keeps only rows whose key is in a small set, at read time. The keys are sent to every task, so the
lookups of files and the joins that follow process only the remaining rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField, StructType, UnknownType
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp

from neve.io.deletion_vectors import PositionSet
from neve.io.paths import spark_path_all
from neve.model.values import combine_chunks
from neve.run.read.conversions import conversion
from neve.run.read.metadata_columns import (
    DATA_SEQUENCE_NUMBER,
    FILE,
    LAST_UPDATED,
    METADATA_IDS,
    ORDINAL,
    PARTITION_ID,
    POSITION,
    ROW_ID,
    SPEC_ID,
    partition_column,
)
from neve.run.read.types import ArrowFlavor, arrow_type
from neve.run.spark.position_deletes import FileKeys, live_rows, stop_without_match
from neve.run.spark.read_columns import ReadNames, converted_column, literal, read_field, synthetic_name
from neve.run.spark.session import is_classic, temporary_options
from neve.run.spark.types import FIELD_ID, spark_type
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable

_FILTER_KEY = "__among"


@dataclass(frozen=True)
class KeyFilter:
    """The allowed values of a column; null is never one of them."""

    field_id: int
    keys: DataFrame  # with one column

    def filter_rows(self, rows: DataFrame, column: str) -> DataFrame:
        """Return the rows that have one of the keys."""
        return rows.join(F.broadcast(self.keys.toDF(_FILTER_KEY)), F.col(column) == F.col(_FILTER_KEY), "left_semi")


_DUMMY_COLUMN = sp.StructField("__nothing", sp.BooleanType(), True, {FIELD_ID: 2147483000})  # an id no file has
_HIDDEN_FILE_PATTERN = r"(?:^|/)[_.][^/]*$|\._COPYING_$"
_DISCOVERY = "spark.sql.sources.parallelPartitionDiscovery"
_READ_OPTIONS = {
    "__globPaths__": "false",  # a path may hold *, [ or {
    "recursiveFileLookup": "true",  # directories named a=b are not partitions
    "mergeSchema": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    # Parquet's dictionary filter distinguishes -0.0 from 0.0, and SQL does not: `x = 0` would lose rows with -0.0.
    "parquet.filter.dictionary.enabled": "false",
}


def is_hidden(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return which files Spark's listing silently leaves out because of their names."""
    return pc.match_substring_regex(paths, _HIDDEN_FILE_PATTERN)


def parquet_dataframe(spark: SparkSession, paths: Sequence[str], columns: Sequence[sp.StructField]) -> DataFrame:
    """Return a DataFrame over Parquet files; columns are found by field id, and a missing column is null."""
    reader = spark.read.schema(sp.StructType(list(columns) or [_DUMMY_COLUMN])).options(**_READ_OPTIONS)
    with temporary_options(spark, _listing_options(spark, paths)):
        if not is_classic(spark):
            return reader.parquet(*paths)
        # All paths in one call to the JVM: one call each takes longer than everything else. A path has no line breaks.
        strings = spark._jvm.org.apache.commons.lang3.StringUtils  # type: ignore[union-attr]
        return DataFrame(reader._jreader.parquet(strings.split("\n".join(paths), "\n")), spark)


def _listing_options(spark: SparkSession, paths: Sequence[str]) -> dict[str, str]:
    if all(path.startswith("file:") for path in paths):  # listed by the driver: one system call each, no job
        return {f"{_DISCOVERY}.threshold": str(len(paths))}
    # Spark starts one task per path by default; a few tasks list all of them for a tenth of the cost.
    tasks = 4 * spark.sparkContext.defaultParallelism if is_classic(spark) else 32
    return {f"{_DISCOVERY}.parallelism": str(tasks)}


SCOPE = "__scope"  # the partition of a row's file, as a number of this scan

_LINEAGE = frozenset({ROW_ID.field_id, LAST_UPDATED.field_id})
_FILE_KEY, _ROW_INDEX, _FIRST_ROW_ID = "__key", "__row", "__first_row_id"


@dataclass(frozen=True)
class ParquetPass:
    """Files to read together, and the columns of the result."""

    files: EntryTable
    fields: tuple[NestedField, ...]
    missing_columns: frozenset[int] = frozenset()  # columns that no file has: they take their initial default
    never_null: frozenset[int] = frozenset()  # columns in which a null stops the query
    names_in_files: Mapping[int, str] = field(default_factory=dict)  # the files' names of columns renamed since
    deleted_positions: Sequence[PositionSet] = ()  # one per file, or empty
    scopes: pa.Array | None = None  # one per file: adds the column SCOPE

    def is_read_from_file(self, column: NestedField) -> bool:
        """Return whether a column is read from files, not computed."""
        computed = METADATA_IDS - _LINEAGE | self.missing_columns
        return column.field_id not in computed and not isinstance(column.field_type, UnknownType)


def scan_parquet(
    spark: SparkSession,
    parquet_pass: ParquetPass,
    facts: TableFacts,
    names: ReadNames,
    key_filter: KeyFilter | None = None,
) -> DataFrame:
    """Read the live rows of Parquet files; rows without a key of `key_filter` may be left out."""
    file_facts = _facts_by_name(parquet_pass)
    same = {n for n, a in file_facts.items() if not pa.types.is_nested(a.type) and len(pc.unique(a)) == 1}
    literals = {n: F.lit(file_facts[n][0].as_py()) for n in same}
    joined = {n: a for n, a in file_facts.items() if n not in same}
    keys = FileKeys.of(parquet_pass.files, facts) if parquet_pass.deleted_positions or joined else None
    rows = _filter_by_keys(_read_parquet(spark, parquet_pass, keys, facts, names), parquet_pass, key_filter)
    if keys is not None and parquet_pass.deleted_positions:
        rows = live_rows(
            spark,
            rows,
            _FILE_KEY,
            _ROW_INDEX,
            keys,
            parquet_pass.deleted_positions,
            parquet_pass.files.numpy("record_count"),
        )
    if keys is not None and joined:
        table = pa.table({"__file": keys.values, **joined})
        rows = rows.join(F.broadcast(spark.createDataFrame(table)), F.col(_FILE_KEY) == F.col("__file"), "left")
        rows = rows.where(stop_without_match(F.col("__file"), F.lit(True), "entry in a manifest"))
    computed = {synthetic_name(f): _computed_column(f, parquet_pass, literals) for f in parquet_pass.fields}
    scope = {} if parquet_pass.scopes is None else {SCOPE: literals.get(SCOPE)}
    return _with_columns(rows, computed | scope).selectExpr(*computed, *scope)


def _read_parquet(
    spark: SparkSession, parquet_pass: ParquetPass, keys: FileKeys | None, facts: TableFacts, names: ReadNames
) -> DataFrame:
    # Columns are renamed all at once, and selected by name: a call to the JVM for each column takes longer than a plan.
    fields = parquet_pass.fields
    read = [f for f in fields if parquet_pass.is_read_from_file(f)]
    names = replace(names, names_in_files=parquet_pass.names_in_files)
    paths = spark_path_all(parquet_pass.files["file_path"], facts.schemes).to_pylist()
    rows = parquet_dataframe(spark, paths, [read_field(f, names) for f in read])
    about_rows = {} if keys is None else {_FILE_KEY: keys.column}
    if parquet_pass.deleted_positions or any(f.field_id in (POSITION.field_id, ROW_ID.field_id) for f in fields):
        about_rows[_ROW_INDEX] = F.col("_metadata.row_index")
    rows = _with_columns(rows, about_rows).toDF(*(map(synthetic_name, read) if read else rows.columns), *about_rows)
    return _with_columns(rows, {synthetic_name(f): converted_column(f, names) for f in read})


def _with_columns(rows: DataFrame, columns: Mapping[str, Column | None]) -> DataFrame:
    """Set columns; None leaves a column as it is."""
    changed = {name: column for name, column in columns.items() if column is not None}
    return rows.withColumns(changed) if changed else rows


def _filter_by_keys(rows: DataFrame, parquet_pass: ParquetPass, key_filter: KeyFilter | None) -> DataFrame:
    """Apply the key filter if the files have its column, and its nulls are known to be nulls."""
    if key_filter is None or key_filter.field_id in parquet_pass.never_null:
        return rows
    for column in parquet_pass.fields:
        if column.field_id == key_filter.field_id and parquet_pass.is_read_from_file(column):
            return key_filter.filter_rows(rows, synthetic_name(column))
    return rows


def _computed_column(field: NestedField, parquet_pass: ParquetPass, literals: Mapping[str, Column]) -> Column | None:
    """Compute a column of the result; None if it is read as it is."""
    name = synthetic_name(field)
    match field.field_id:
        case i if i in parquet_pass.missing_columns:
            column = literal(field.initial_default, field)
        case POSITION.field_id:
            column = F.col(_ROW_INDEX)
        case ROW_ID.field_id:
            column = _inherited_lineage(name, literals, _fact_column(_FIRST_ROW_ID, literals) + F.col(_ROW_INDEX))
        case LAST_UPDATED.field_id:
            column = _inherited_lineage(name, literals, _fact_column(synthetic_name(DATA_SEQUENCE_NUMBER), literals))
        case i if i == PARTITION_ID and isinstance(field.field_type, StructType) and not field.field_type.fields:
            column = F.struct()
        case i if i in METADATA_IDS:
            column = _fact_column(name, literals)
        case _ if isinstance(field.field_type, UnknownType):
            column = F.lit(None)
        case i if i in parquet_pass.never_null:
            column = _never_null_column(field)
        case _:
            return None
    return column.cast(spark_type(field.field_type))


def _fact_column(name: str, literals: Mapping[str, Column]) -> Column:
    """Return a fact about the file of a row: a literal, or a joined column."""
    return literals[name] if name in literals else F.col(name)


def _inherited_lineage(name: str, literals: Mapping[str, Column], value: Column) -> Column:
    """Return a lineage column: the stored value, else the one inherited from the file; null if the file has no ids."""
    return F.when(_fact_column(_FIRST_ROW_ID, literals).isNotNull(), F.coalesce(F.col(name), value))


def _never_null_column(field: NestedField) -> Column:
    """Return a column that stops the query at a null, which means that the file lacks the column."""
    message = (
        f"Column {field.name!r} is null in a data file whose partition has a value for it: the file lacks the column, "
        "unlike the other files of its commit. Set spark.neve.read.footers=all in the session to look into every file."
    )
    column = F.col(synthetic_name(field))
    return F.coalesce(column, F.raise_error(F.lit(message)).cast(spark_type(field.field_type)))


def _facts_by_name(parquet_pass: ParquetPass) -> dict[str, pa.Array]:
    """Return the facts about each file that the columns need, by the name of the joined column."""
    ids, files = {f.field_id for f in parquet_pass.fields}, parquet_pass.files
    needed: dict[str, pa.ChunkedArray | pa.Array] = {}
    for column, source in ((FILE, "file_path"), (SPEC_ID, "spec_id"), (ORDINAL, "ordinal")):
        if column.field_id in ids:
            needed[synthetic_name(column)] = files[source]
    if ids & {DATA_SEQUENCE_NUMBER.field_id, LAST_UPDATED.field_id}:
        needed[synthetic_name(DATA_SEQUENCE_NUMBER)] = files["sequence_number"]
    if parquet_pass.scopes is not None:
        needed[SCOPE] = parquet_pass.scopes
    if ids & _LINEAGE:
        needed[_FIRST_ROW_ID] = files["first_row_id"]
    for f in parquet_pass.fields:
        if f.field_id == PARTITION_ID and files.specs.union:
            needed[synthetic_name(f)] = _partition_tuples(files)
    return {name: combine_chunks(column) for name, column in needed.items()}


def _partition_tuples(files: EntryTable) -> pa.Array:
    """Return the partition tuples of files, over the union of all specs, in types of Spark."""
    arrays = []
    for union_field in files.specs.union:
        array, kind = combine_chunks(files[union_field.column]), union_field.field.field_type
        convert = conversion(array.type, kind, ArrowFlavor.SPARK)
        arrays.append(array.cast(arrow_type(kind, ArrowFlavor.SPARK)) if convert is None else convert(array))
    columns = partition_column(files.specs).field_type.fields  # type: ignore[attr-defined]
    fields = [pa.field(f.name, a.type) for f, a in zip(columns, arrays, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields)
