"""One pass of Spark's Parquet reader over some files: deleted rows left out, facts about files joined on.

The columns of the result are called `__f<id>`. A fact that is the same for all files (their spec, their sequence
number) is a literal; only facts that differ are joined, by the key of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField, StructType, UnknownType
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from neve.io.deletion_vectors import PositionSet
from neve.io.paths import spark_path_all
from neve.model.values import whole
from neve.run.arrow.columns import (
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
from neve.run.arrow.convert import conversion
from neve.run.arrow.types import Carrier, arrow_type
from neve.run.facts import TableFacts
from neve.run.spark.among import Among
from neve.run.spark.columns import literal, placed, read_field
from neve.run.spark.keys import FileKeys, stop_without_match
from neve.run.spark.names import ReadNames, synthetic
from neve.run.spark.native import open_parquet
from neve.run.spark.types import spark_type
from neve.run.spark.words import live_rows
from neve.tree.entries import EntryTable

__all__ = ["SCOPE", "Pass", "scan"]

SCOPE = "__scope"  # the partition of a row's file, as a number of this scan

_LINEAGE = frozenset({ROW_ID.field_id, LAST_UPDATED.field_id})
_KEY, _ROW, _FIRST = "__key", "__row", "__first_row_id"


@dataclass(frozen=True)
class Pass:
    """Files to read together, and the columns to make of them."""

    files: EntryTable
    fields: tuple[NestedField, ...]
    absent: frozenset[int] = frozenset()  # columns no file of the pass has: they take their initial default
    never_null: frozenset[int] = frozenset()  # columns in which a null stops the query
    former: Mapping[int, str] = field(default_factory=dict)  # what the files call columns that were renamed since
    deleted: Sequence[PositionSet] = ()  # of each file, or nothing at all
    scopes: pa.Array | None = None  # of each file: adds the column SCOPE

    def from_file(self, wanted: NestedField) -> bool:
        """Whether a column is read, not made."""
        made = METADATA_IDS - _LINEAGE | self.absent
        return wanted.field_id not in made and not isinstance(wanted.field_type, UnknownType)

    @property
    def needs_rows(self) -> bool:
        """Whether the position of each row matters."""
        return bool(self.deleted) or any(f.field_id in (POSITION.field_id, ROW_ID.field_id) for f in self.fields)


def scan(
    spark: SparkSession, wanted: Pass, facts: TableFacts, names: ReadNames, among: Among | None = None
) -> DataFrame:
    """The live rows of some Parquet files; `among` may leave out rows that have none of its keys."""
    literals, joined = _told_apart(_facts_of_files(wanted))
    keys = FileKeys.of(wanted.files, facts) if wanted.deleted or joined else None
    rows = _among(_read(spark, wanted, keys, facts, names), wanted, among)
    if keys is not None and wanted.deleted:
        rows = live_rows(spark, rows, _KEY, _ROW, keys, wanted.deleted, wanted.files.numpy("record_count"))
    if keys is not None and joined:
        rows = _with_facts(spark, rows, keys, joined)
    scope = [] if wanted.scopes is None else [_fact(SCOPE, literals).alias(SCOPE)]
    return rows.select(*(_made(f, wanted, literals) for f in wanted.fields), *scope)


def _read(spark: SparkSession, wanted: Pass, keys: FileKeys | None, facts: TableFacts, names: ReadNames) -> DataFrame:
    read = [f for f in wanted.fields if wanted.from_file(f)]
    names = replace(names, former=wanted.former)
    paths = spark_path_all(wanted.files["file_path"], facts.schemes).to_pylist()
    rows = open_parquet(spark, paths, [read_field(f, names) for f in read])
    columns = [placed(f, names) for f in read]
    columns += [] if keys is None else [keys.column.alias(_KEY)]
    columns += [F.col("_metadata.row_index").alias(_ROW)] if wanted.needs_rows else []
    return rows.select(*columns)


def _among(rows: DataFrame, wanted: Pass, among: Among | None) -> DataFrame:
    """The rows cut down where the files have the column of the keys, and it says what it seems to say."""
    found = [f for f in wanted.fields if among is not None and f.field_id == among.field_id and wanted.from_file(f)]
    if among is None or not found or among.field_id in wanted.never_null:
        return rows
    return among.applied(rows, synthetic(found[0]))


def _made(wanted: NestedField, of: Pass, literals: Mapping[str, Column]) -> Column:
    """A column of the result from the columns at hand."""
    name = synthetic(wanted)
    match wanted.field_id:
        case i if i in of.absent:
            made = literal(wanted.initial_default, wanted)
        case POSITION.field_id:
            made = F.col(_ROW)
        case ROW_ID.field_id:
            made = _inherited(name, literals, _fact(_FIRST, literals) + F.col(_ROW))
        case LAST_UPDATED.field_id:
            made = _inherited(name, literals, _fact(synthetic(DATA_SEQUENCE_NUMBER), literals))
        case i if i == PARTITION_ID and isinstance(wanted.field_type, StructType) and not wanted.field_type.fields:
            made = F.struct()
        case i if i in METADATA_IDS:
            made = _fact(name, literals)
        case _ if isinstance(wanted.field_type, UnknownType):
            made = F.lit(None)
        case i if i in of.never_null:
            made = _guarded(wanted)
        case _:
            return F.col(name)
    return made.cast(spark_type(wanted.field_type)).alias(name)


def _fact(name: str, literals: Mapping[str, Column]) -> Column:
    """A fact about the file of a row: the same for all files, or joined on."""
    return literals[name] if name in literals else F.col(name)


def _inherited(name: str, literals: Mapping[str, Column], value: Column) -> Column:
    """A column of lineage: as the row has it, else as its file gives it; nothing where the file gives no ids."""
    return F.when(_fact(_FIRST, literals).isNotNull(), F.coalesce(F.col(name), value))


def _guarded(wanted: NestedField) -> Column:
    """A column that has a value in every row, if the file has the column at all."""
    message = (
        f"Column {wanted.name!r} is null in a data file whose partition has a value for it: the file lacks the column, "
        "unlike the other files of its commit. Set spark.neve.read.footers=all in the session to look into every file."
    )
    column = F.col(synthetic(wanted))
    return F.coalesce(column, F.raise_error(F.lit(message)).cast(spark_type(wanted.field_type)))


def _facts_of_files(wanted: Pass) -> dict[str, pa.Array]:
    """What the columns asked for need to know about each file, by the name it is joined under."""
    ids, files = {f.field_id for f in wanted.fields}, wanted.files
    needed: dict[str, pa.ChunkedArray | pa.Array] = {}
    if FILE.field_id in ids:
        needed[synthetic(FILE)] = files["file_path"]
    if SPEC_ID.field_id in ids:
        needed[synthetic(SPEC_ID)] = files["spec_id"]
    if ORDINAL.field_id in ids:
        needed[synthetic(ORDINAL)] = files["ordinal"]
    if ids & {DATA_SEQUENCE_NUMBER.field_id, LAST_UPDATED.field_id}:
        needed[synthetic(DATA_SEQUENCE_NUMBER)] = files["sequence_number"]
    if wanted.scopes is not None:
        needed[SCOPE] = wanted.scopes
    if ids & _LINEAGE:
        needed[_FIRST] = files["first_row_id"]
    for f in wanted.fields:
        if f.field_id == PARTITION_ID and files.specs.union:
            needed[synthetic(f)] = _tuples(files)
    return {name: whole(column) for name, column in needed.items()}


def _tuples(files: EntryTable) -> pa.Array:
    """The union tuples of files as Spark takes them."""
    arrays = [_for_spark(whole(files[u.column]), u.field) for u in files.specs.union]
    shown = partition_column(files.specs).field_type.fields  # type: ignore[attr-defined]
    fields = [pa.field(f.name, a.type) for f, a in zip(shown, arrays, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _for_spark(array: pa.Array, of: NestedField) -> pa.Array:
    convert = conversion(array.type, of.field_type, Carrier.SPARK)
    return array.cast(arrow_type(of.field_type, Carrier.SPARK)) if convert is None else convert(array)


def _told_apart(needed: Mapping[str, pa.Array]) -> tuple[dict[str, Column], dict[str, pa.Array]]:
    """Facts that are one for all files as literals, and the others."""
    same = {n for n, a in needed.items() if not pa.types.is_nested(a.type) and len(pc.unique(a)) == 1}
    literals = {n: F.lit(needed[n][0].as_py()) for n in same}
    return literals, {n: a for n, a in needed.items() if n not in same}


def _with_facts(spark: SparkSession, rows: DataFrame, keys: FileKeys, joined: Mapping[str, pa.Array]) -> DataFrame:
    table = pa.table({"__file": keys.values, **joined})
    both = rows.join(F.broadcast(spark.createDataFrame(table)), F.col(_KEY) == F.col("__file"), "left")
    return both.where(stop_without_match(F.col("__file"), F.lit(True), "entry in a manifest"))
