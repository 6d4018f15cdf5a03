"""Equality deletes as joins: a row goes when a delete that is newer than its file agrees with it in the key columns.

Null agrees with null and NaN with NaN; 0.0 and -0.0 differ, as in the reference. A delete of a partitioned spec reaches
the files of its own partition only, one of an unpartitioned spec reaches all. Deletes are joined in groups of the same
key columns and reach.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from neve.errors import CorruptFile, TableError
from neve.model.pyiceberg_private import fields_by_id
from neve.run.read.metadata_columns import DATA_SEQUENCE_NUMBER
from neve.run.spark.file_routing import cached_field_ids, route_files
from neve.run.spark.parquet_scan import SCOPE, ParquetPass, scan_parquet
from neve.run.spark.position_deletes import DeletePairs, RowIndices
from neve.run.spark.read_columns import ReadNames, synthetic_name
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class EqualityJoin:
    """Delete files that are joined with the rows of data files at once."""

    deletes: EntryTable
    keys: tuple[NestedField, ...]
    scopes: pa.Array | None  # the partition of each delete file, where that decides
    checks_sequence_numbers: bool  # whether some of the data files are newer than some of the deletes

    @property
    def needed_columns(self) -> tuple[NestedField, ...]:
        """The columns the rows must have."""
        return (*self.keys, DATA_SEQUENCE_NUMBER) if self.checks_sequence_numbers else self.keys

    def remove_deleted_rows(
        self, spark: SparkSession, rows: DataFrame, facts: TableFacts, names: ReadNames
    ) -> DataFrame:
        """The rows that none of the deletes agrees with."""
        gone = scan_parquet(spark, ParquetPass(self.deletes, self.needed_columns, scopes=self.scopes), facts, names)
        gone = gone.select(
            *(_comparable_key(f).alias(f"__d{f.field_id}") for f in self.needed_columns), *self._scope("__d_scope")
        )
        agrees = [_comparable_key(f).eqNullSafe(F.col(f"__d{f.field_id}")) for f in self.keys]
        agrees += [F.col(SCOPE) == F.col("__d_scope")] if self.scopes is not None else []
        if self.checks_sequence_numbers:
            sequence = f"__d{DATA_SEQUENCE_NUMBER.field_id}"
            # Of the deletes that agree with a row only the newest matters, and there may be many.
            gone = gone.groupBy(*(c for c in gone.columns if c != sequence)).agg(F.max(sequence).alias(sequence))
            agrees += [F.col(sequence) > F.col(synthetic_name(DATA_SEQUENCE_NUMBER))]
        return rows.join(gone, agrees, "left_anti")

    def _scope(self, name: str) -> list[Column]:
        return [] if self.scopes is None else [F.col(SCOPE).alias(name)]


@dataclass(frozen=True)
class EqualityJoinSet:
    """The joins for the files of one lane."""

    joins: tuple[EqualityJoin, ...]
    scopes: pa.Array | None  # the partition of each file, where a join asks for it
    has_unjoinable_deletes: Mask  # the files that have deletes no join can apply

    @property
    def needed_columns(self) -> tuple[NestedField, ...]:
        """The columns the rows must have."""
        return tuple({f.field_id: f for join in self.joins for f in join.needed_columns}.values())


def plan_equality_joins(
    spark: SparkSession,
    files: EntryTable,
    deletes: EntryTable,
    pairs: DeletePairs,
    projected_schema: Schema,
    facts: TableFacts,
) -> EqualityJoinSet:
    """How equality deletes are applied to the rows of files.

    A join needs key columns at the top level, in Parquet files Spark reads exactly. Other deletes are left to the way
    through Arrow, and with them the files they apply to.
    """
    scopes = _PartitionScopes.of(files, deletes)
    joins, joined = [], np.zeros(len(deletes), bool)
    for rows in _group_by_keys(deletes):
        some = deletes.take(rows)
        keys = _key_columns(some, projected_schema, facts)
        if keys and _is_joinable(spark, some, keys, facts):
            joins.append(EqualityJoin(some, keys, scopes.of_deletes(rows), _ages_overlap(files, some)))
            joined[rows] = True
    beyond = pairs.of_deletes(~joined).files_with_deletes(len(files))
    decides = any(join.scopes is not None for join in joins)
    return EqualityJoinSet(tuple(joins), scopes.files if decides else None, beyond)


@dataclass(frozen=True)
class _PartitionScopes:
    """A number per partition, equal for the data files and delete files of one partition."""

    files: pa.Array
    deletes: RowIndices
    is_global: Mask

    @classmethod
    def of(cls, files: EntryTable, deletes: EntryTable) -> _PartitionScopes:
        codes = EntryTable.concat([files, deletes], files.specs).partition_codes()[0]
        unpartitioned = [s for s in deletes.spec_ids() if deletes.specs.is_unpartitioned(s)]
        is_global = np.isin(deletes.numpy("spec_id"), unpartitioned)
        return cls(pa.array(codes[: len(files)]), codes[len(files) :], is_global)

    def of_deletes(self, rows: RowIndices) -> pa.Array | None:
        """The partitions of delete files of one reach, or None when they reach every file there is."""
        if self.is_global[rows].all() or len(np.union1d(self.files, self.deletes[rows])) == 1:
            return None
        return pa.array(self.deletes[rows])


def _group_by_keys(deletes: EntryTable) -> list[RowIndices]:
    """The rows of delete files with the same key columns and the same kind of reach."""
    groups: dict[tuple[bool, tuple[int, ...]], list[int]] = defaultdict(list)
    keys, specs = deletes["equality_ids"].to_pylist(), deletes["spec_id"].to_pylist()
    for row, (ids, spec_id) in enumerate(zip(keys, specs, strict=True)):
        groups[deletes.specs.is_unpartitioned(spec_id), tuple(sorted(ids or ()))].append(row)
    return [np.array(rows) for rows in groups.values()]


def _key_columns(deletes: EntryTable, asked: Schema, facts: TableFacts) -> tuple[NestedField, ...]:
    """The key columns, dropped ones too, in the types the scan gives them; none when one is inside another column."""
    path = deletes["file_path"][0].as_py()
    keys = []
    for field_id in deletes["equality_ids"][0].as_py() or ():
        schemas = [s for s in (asked, *facts.schemas) if field_id in fields_by_id(s)]
        if not schemas:
            raise TableError(f"Unknown equality column {field_id} in {path}: no schema of the table has it.")
        if all(f.field_id != field_id for f in schemas[0].fields):
            return ()
        keys.append(schemas[0].find_field(field_id))
    if not keys:
        raise CorruptFile(path, "the ids of its equality columns in the manifest", "none")
    return tuple(keys)


def _is_joinable(spark: SparkSession, deletes: EntryTable, keys: tuple[NestedField, ...], facts: TableFacts) -> bool:
    """Whether Spark reads the delete files exactly; one that lacks a key column is corrupt."""
    plain = tuple(f.model_copy(update={"initial_default": None}) for f in keys)
    if len(route_files(spark, deletes, plain, facts).arrow):
        return False
    wanted = {f.field_id for f in keys}
    for path, shape in zip(deletes["file_path"].to_pylist(), cached_field_ids(spark, deletes, facts), strict=True):
        if missing := wanted - shape:  # it would delete every row in which that column is null
            raise CorruptFile(path, f"the equality columns {sorted(wanted)}", f"no column {sorted(missing)}")
    return True


def _ages_overlap(files: EntryTable, deletes: EntryTable) -> bool:
    """Whether some of the files are as new as some of the deletes."""
    newest = pc.max(files["sequence_number"]).as_py() or 0
    return (pc.min(deletes["sequence_number"]).as_py() or 0) <= newest


def _comparable_key(field: NestedField) -> Column:
    """A key column in a form in which equal means equal: as text, NaN is itself and the two zeros differ."""
    column = F.col(synthetic_name(field))
    return column.cast("string") if isinstance(field.field_type, FloatType | DoubleType) else column
