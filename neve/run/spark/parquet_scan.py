"""One pass of Spark's Parquet reader over some files: deleted rows left out, facts about files joined on.

The columns of the result are called `__f<id>`. A fact that is the same for all files (their spec, their sequence
number) is a literal; only facts that differ are joined, by the key of the file.

Parquet files read by Spark's own reader, by field id.

What it does not do, its callers route elsewhere: files without field ids, files Spark's listing hides, types Spark does
not have. Two things make it wrong silently, and are therefore pinned here: options of the session that skip unreadable
files, and names (see `names`).

Rows of a read cut down, right where they are read, to those whose column has one of some keys.

The keys go to every task. What happens to rows afterwards, finding their files and joining them, then happens to the
few that remain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField, StructType, UnknownType
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # noqa: N812
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
from neve.run.spark.read_columns import ReadNames, literal, read_field, scanned_column, synthetic_name
from neve.run.spark.session import is_classic, temporary_options
from neve.run.spark.types import FIELD_ID, spark_type
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable

_FILTER_KEY = "__among"


@dataclass(frozen=True)
class KeyFilter:
    """The keys a column must have one of; null is none of them."""

    field_id: int
    keys: DataFrame  # of one column

    def filter_rows(self, rows: DataFrame, column: str) -> DataFrame:
        """The rows that have one of the keys."""
        return rows.join(F.broadcast(self.keys.toDF(_FILTER_KEY)), F.col(column) == F.col(_FILTER_KEY), "left_semi")


_DUMMY_COLUMN = sp.StructField("__nothing", sp.BooleanType(), True, {FIELD_ID: 2147483000})  # an id no file has
_HIDDEN_FILE_PATTERN = r"(?:^|/)[_.][^/]*$|\._COPYING_$"
_DISCOVERY = "spark.sql.sources.parallelPartitionDiscovery"
_READ_OPTIONS = {
    "__globPaths__": "false",  # a path may hold *, [ or {
    "recursiveFileLookup": "true",  # directories named a=b are no partitions
    "mergeSchema": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    # Parquet's dictionary filter tells -0.0 from 0.0, and SQL does not: `x = 0` would lose rows that hold -0.0.
    "parquet.filter.dictionary.enabled": "false",
}


def is_hidden(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Which files Spark's listing leaves out without a word: by their name alone."""
    return pc.match_substring_regex(paths, _HIDDEN_FILE_PATTERN)


def parquet_dataframe(spark: SparkSession, paths: Sequence[str], columns: Sequence[sp.StructField]) -> DataFrame:
    """A DataFrame over Parquet files with the columns given, found by field id; a column a file lacks is null."""
    reader = spark.read.schema(sp.StructType(list(columns) or [_DUMMY_COLUMN])).options(**_READ_OPTIONS)
    with temporary_options(spark, _listing_options(spark, paths)):
        if not is_classic(spark):
            return reader.parquet(*paths)
        return DataFrame(reader._jreader.parquet(_java_strings(spark, paths)), spark)


def _listing_options(spark: SparkSession, paths: Sequence[str]) -> dict[str, str]:
    """Spark starts a task for every path by default; a few tasks look up all of them for a tenth of the cost.

    Local files are looked up by the driver: a system call each, no job.
    """
    if all(path.startswith("file:") for path in paths):
        return {f"{_DISCOVERY}.threshold": str(len(paths))}
    tasks = 4 * spark.sparkContext.defaultParallelism if is_classic(spark) else 32
    return {f"{_DISCOVERY}.parallelism": str(tasks)}


def _java_strings(spark: SparkSession, paths: Sequence[str]) -> object:
    """Many strings in one call to the JVM; one call each takes longer than all the rest. A path has no line breaks."""
    return spark._jvm.org.apache.commons.lang3.StringUtils.split("\n".join(paths), "\n")  # type: ignore[union-attr]


SCOPE = "__scope"  # the partition of a row's file, as a number of this scan

_LINEAGE = frozenset({ROW_ID.field_id, LAST_UPDATED.field_id})
_FILE_KEY, _ROW_INDEX, _FIRST_ROW_ID = "__key", "__row", "__first_row_id"


@dataclass(frozen=True)
class ParquetPass:
    """Files to read together, and the columns to make of them."""

    files: EntryTable
    fields: tuple[NestedField, ...]
    missing_columns: frozenset[int] = frozenset()  # columns no file of the pass has: they take their initial default
    never_null: frozenset[int] = frozenset()  # columns in which a null stops the query
    names_in_files: Mapping[int, str] = field(
        default_factory=dict
    )  # what the files call columns that were renamed since
    deleted_positions: Sequence[PositionSet] = ()  # of each file, or nothing at all
    scopes: pa.Array | None = None  # of each file: adds the column SCOPE

    def is_read_from_file(self, wanted: NestedField) -> bool:
        """Whether a column is read, not made."""
        made = METADATA_IDS - _LINEAGE | self.missing_columns
        return wanted.field_id not in made and not isinstance(wanted.field_type, UnknownType)

    @property
    def needs_row_index(self) -> bool:
        """Whether the position of each row matters."""
        return bool(self.deleted_positions) or any(
            f.field_id in (POSITION.field_id, ROW_ID.field_id) for f in self.fields
        )


def scan_parquet(
    spark: SparkSession,
    parquet_pass: ParquetPass,
    facts: TableFacts,
    names: ReadNames,
    key_filter: KeyFilter | None = None,
) -> DataFrame:
    """The live rows of some Parquet files; `among` may leave out rows that have none of its keys."""
    literals, joined = _told_apart(_facts_by_name(parquet_pass))
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
        rows = _with_facts(spark, rows, keys, joined)
    scope = [] if parquet_pass.scopes is None else [_fact_column(SCOPE, literals).alias(SCOPE)]
    return rows.select(*(_result_column(f, parquet_pass, literals) for f in parquet_pass.fields), *scope)


def _read_parquet(
    spark: SparkSession, parquet_pass: ParquetPass, keys: FileKeys | None, facts: TableFacts, names: ReadNames
) -> DataFrame:
    read = [f for f in parquet_pass.fields if parquet_pass.is_read_from_file(f)]
    names = replace(names, names_in_files=parquet_pass.names_in_files)
    paths = spark_path_all(parquet_pass.files["file_path"], facts.schemes).to_pylist()
    rows = parquet_dataframe(spark, paths, [read_field(f, names) for f in read])
    columns = [scanned_column(f, names) for f in read]
    columns += [] if keys is None else [keys.column.alias(_FILE_KEY)]
    columns += [F.col("_metadata.row_index").alias(_ROW_INDEX)] if parquet_pass.needs_row_index else []
    return rows.select(*columns)


def _filter_by_keys(rows: DataFrame, parquet_pass: ParquetPass, key_filter: KeyFilter | None) -> DataFrame:
    """The rows cut down where the files have the column of the keys, and it says what it seems to say."""
    found = [
        f
        for f in parquet_pass.fields
        if key_filter is not None and f.field_id == key_filter.field_id and parquet_pass.is_read_from_file(f)
    ]
    if key_filter is None or not found or key_filter.field_id in parquet_pass.never_null:
        return rows
    return key_filter.filter_rows(rows, synthetic_name(found[0]))


def _result_column(wanted: NestedField, of: ParquetPass, literals: Mapping[str, Column]) -> Column:
    """A column of the result from the columns at hand."""
    name = synthetic_name(wanted)
    match wanted.field_id:
        case i if i in of.missing_columns:
            made = literal(wanted.initial_default, wanted)
        case POSITION.field_id:
            made = F.col(_ROW_INDEX)
        case ROW_ID.field_id:
            made = _inherited_lineage(name, literals, _fact_column(_FIRST_ROW_ID, literals) + F.col(_ROW_INDEX))
        case LAST_UPDATED.field_id:
            made = _inherited_lineage(name, literals, _fact_column(synthetic_name(DATA_SEQUENCE_NUMBER), literals))
        case i if i == PARTITION_ID and isinstance(wanted.field_type, StructType) and not wanted.field_type.fields:
            made = F.struct()
        case i if i in METADATA_IDS:
            made = _fact_column(name, literals)
        case _ if isinstance(wanted.field_type, UnknownType):
            made = F.lit(None)
        case i if i in of.never_null:
            made = _never_null_column(wanted)
        case _:
            return F.col(name)
    return made.cast(spark_type(wanted.field_type)).alias(name)


def _fact_column(name: str, literals: Mapping[str, Column]) -> Column:
    """A fact about the file of a row: the same for all files, or joined on."""
    return literals[name] if name in literals else F.col(name)


def _inherited_lineage(name: str, literals: Mapping[str, Column], value: Column) -> Column:
    """A column of lineage: as the row has it, else as its file gives it; nothing where the file gives no ids."""
    return F.when(_fact_column(_FIRST_ROW_ID, literals).isNotNull(), F.coalesce(F.col(name), value))


def _never_null_column(wanted: NestedField) -> Column:
    """A column that has a value in every row, if the file has the column at all."""
    message = (
        f"Column {wanted.name!r} is null in a data file whose partition has a value for it: the file lacks the column, "
        "unlike the other files of its commit. Set spark.neve.read.footers=all in the session to look into every file."
    )
    column = F.col(synthetic_name(wanted))
    return F.coalesce(column, F.raise_error(F.lit(message)).cast(spark_type(wanted.field_type)))


def _facts_by_name(parquet_pass: ParquetPass) -> dict[str, pa.Array]:
    """What the columns asked for need to know about each file, by the name it is joined under."""
    ids, files = {f.field_id for f in parquet_pass.fields}, parquet_pass.files
    needed: dict[str, pa.ChunkedArray | pa.Array] = {}
    if FILE.field_id in ids:
        needed[synthetic_name(FILE)] = files["file_path"]
    if SPEC_ID.field_id in ids:
        needed[synthetic_name(SPEC_ID)] = files["spec_id"]
    if ORDINAL.field_id in ids:
        needed[synthetic_name(ORDINAL)] = files["ordinal"]
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
    """The union tuples of files as Spark takes them."""
    arrays = [_for_spark(combine_chunks(files[u.column]), u.field) for u in files.specs.union]
    shown = partition_column(files.specs).field_type.fields  # type: ignore[attr-defined]
    fields = [pa.field(f.name, a.type) for f, a in zip(shown, arrays, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _for_spark(array: pa.Array, of: NestedField) -> pa.Array:
    convert = conversion(array.type, of.field_type, ArrowFlavor.SPARK)
    return array.cast(arrow_type(of.field_type, ArrowFlavor.SPARK)) if convert is None else convert(array)


def _told_apart(needed: Mapping[str, pa.Array]) -> tuple[dict[str, Column], dict[str, pa.Array]]:
    """Facts that are one for all files as literals, and the others."""
    same = {n for n, a in needed.items() if not pa.types.is_nested(a.type) and len(pc.unique(a)) == 1}
    literals = {n: F.lit(needed[n][0].as_py()) for n in same}
    return literals, {n: a for n, a in needed.items() if n not in same}


def _with_facts(spark: SparkSession, rows: DataFrame, keys: FileKeys, joined: Mapping[str, pa.Array]) -> DataFrame:
    table = pa.table({"__file": keys.values, **joined})
    both = rows.join(F.broadcast(spark.createDataFrame(table)), F.col(_FILE_KEY) == F.col("__file"), "left")
    return both.where(stop_without_match(F.col("__file"), F.lit(True), "entry in a manifest"))
