"""Apply equality deletes by anti joins.

A row is deleted if a delete that is newer than its file has the same values in the key columns. Null equals null and
NaN equals NaN; 0.0 and -0.0 differ, as in the reference implementation. A delete of a partitioned spec applies only to
files of its own partition, a delete of an unpartitioned spec applies to all files. Deletes with the same key columns
and the same kind of scope are joined together.
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
    """Delete files that are joined together with the rows of data files."""

    deletes: EntryTable
    keys: tuple[NestedField, ...]
    scopes: pa.Array | None  # the partition of each delete file; None: they apply to all files
    checks_sequence_numbers: bool  # some data files are as new as some deletes

    @property
    def needed_columns(self) -> tuple[NestedField, ...]:
        """The columns that the rows must have."""
        return (*self.keys, DATA_SEQUENCE_NUMBER) if self.checks_sequence_numbers else self.keys

    def remove_deleted_rows(
        self, spark: SparkSession, rows: DataFrame, facts: TableFacts, names: ReadNames
    ) -> DataFrame:
        """Return the rows that no delete matches."""
        deletes = scan_parquet(spark, ParquetPass(self.deletes, self.needed_columns, scopes=self.scopes), facts, names)
        columns = [_comparable_key(f).alias(f"__d{f.field_id}") for f in self.needed_columns]
        conditions = [_comparable_key(f).eqNullSafe(F.col(f"__d{f.field_id}")) for f in self.keys]
        if self.scopes is not None:
            columns.append(F.col(SCOPE).alias("__d_scope"))
            conditions.append(F.col(SCOPE) == F.col("__d_scope"))
        deletes = deletes.select(*columns)
        if self.checks_sequence_numbers:
            sequence = f"__d{DATA_SEQUENCE_NUMBER.field_id}"
            # Of the deletes that match a row only the newest matters, and there may be many.
            key_names = [c for c in deletes.columns if c != sequence]
            deletes = deletes.groupBy(*key_names).agg(F.max(sequence).alias(sequence))
            conditions.append(F.col(sequence) > F.col(synthetic_name(DATA_SEQUENCE_NUMBER)))
        return rows.join(deletes, conditions, "left_anti")


@dataclass(frozen=True)
class EqualityJoinSet:
    """The joins for a set of data files."""

    joins: tuple[EqualityJoin, ...]
    scopes: pa.Array | None  # the partition of each file, if a join needs it
    has_unjoinable_deletes: Mask  # the files with deletes that no join can apply

    @property
    def needed_columns(self) -> tuple[NestedField, ...]:
        """The columns that the rows must have."""
        return tuple({f.field_id: f for join in self.joins for f in join.needed_columns}.values())


def plan_equality_joins(
    spark: SparkSession,
    files: EntryTable,
    deletes: EntryTable,
    pairs: DeletePairs,
    projected_schema: Schema,
    facts: TableFacts,
) -> EqualityJoinSet:
    """Decide how equality deletes are applied to the rows of files.

    A join needs key columns at the top level, in Parquet files that Spark reads exactly. Other deletes, and the files
    to which they apply, are read through Arrow.
    """
    scopes = _PartitionScopes.of(files, deletes)
    newest_file = pc.max(files["sequence_number"]).as_py() or 0
    joins, joined = [], np.zeros(len(deletes), bool)
    for rows in _group_by_keys(deletes):
        group = deletes.take(rows)
        keys = _key_columns(group, projected_schema, facts)
        if keys and _is_joinable(spark, group, keys, facts):
            checks_sequence_numbers = (pc.min(group["sequence_number"]).as_py() or 0) <= newest_file
            joins.append(EqualityJoin(group, keys, scopes.of_deletes(rows), checks_sequence_numbers))
            joined[rows] = True
    has_unjoinable_deletes = pairs.of_deletes(~joined).files_with_deletes(len(files))
    needs_scopes = any(join.scopes is not None for join in joins)
    return EqualityJoinSet(tuple(joins), scopes.files if needs_scopes else None, has_unjoinable_deletes)


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
        """Return the partitions of delete files of one group, or None if they apply to every file of the scan."""
        if self.is_global[rows].all() or len(np.union1d(self.files, self.deletes[rows])) == 1:
            return None
        return pa.array(self.deletes[rows])


def _group_by_keys(deletes: EntryTable) -> list[RowIndices]:
    """Group the rows of delete files by their key columns and by whether they apply to all partitions."""
    groups: dict[tuple[bool, tuple[int, ...]], list[int]] = defaultdict(list)
    keys, specs = deletes["equality_ids"].to_pylist(), deletes["spec_id"].to_pylist()
    for row, (ids, spec_id) in enumerate(zip(keys, specs, strict=True)):
        groups[deletes.specs.is_unpartitioned(spec_id), tuple(sorted(ids or ()))].append(row)
    return [np.array(rows) for rows in groups.values()]


def _key_columns(deletes: EntryTable, projected: Schema, facts: TableFacts) -> tuple[NestedField, ...]:
    """Return the key columns, also dropped ones, in the types of the scan; none if one is inside another column."""
    path = deletes["file_path"][0].as_py()
    keys = []
    for field_id in deletes["equality_ids"][0].as_py() or ():
        schemas = [s for s in (projected, *facts.schemas) if field_id in fields_by_id(s)]
        if not schemas:
            raise TableError(f"Unknown equality column {field_id} in {path}: no schema of the table has it.")
        if all(f.field_id != field_id for f in schemas[0].fields):
            return ()
        keys.append(schemas[0].find_field(field_id))
    if not keys:
        raise CorruptFile(path, "the ids of its equality columns in the manifest", "none")
    return tuple(keys)


def _is_joinable(spark: SparkSession, deletes: EntryTable, keys: tuple[NestedField, ...], facts: TableFacts) -> bool:
    """Check whether Spark reads the delete files exactly; a file without a key column is corrupt."""
    without_defaults = tuple(f.model_copy(update={"initial_default": None}) for f in keys)
    if len(route_files(spark, deletes, without_defaults, facts).arrow):
        return False
    key_ids = {f.field_id for f in keys}
    for path, ids in zip(deletes["file_path"].to_pylist(), cached_field_ids(spark, deletes, facts), strict=True):
        if missing := key_ids - ids:  # it would delete every row in which that column is null
            raise CorruptFile(path, f"the equality columns {sorted(key_ids)}", f"no column {sorted(missing)}")
    return True


def _comparable_key(field: NestedField) -> Column:
    """Return a key column in a comparable form: as text, NaN equals itself and the two zeros differ."""
    column = F.col(synthetic_name(field))
    return column.cast("string") if isinstance(field.field_type, FloatType | DoubleType) else column
