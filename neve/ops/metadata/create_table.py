"""Create a table from a schema in any of the forms that callers have.

Isolation: fails when the name is taken.
Writes: the first metadata file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyspark.sql.types import StructType as SparkStruct

import neve.catalog as tables
from neve.errors import UserError
from neve.model.ddl import schema_of_ddl, spec_of_terms
from neve.model.new_table import with_fresh_ids
from neve.model.properties import properties_of
from neve.model.pyiceberg_private import schema_without_ids
from neve.ops.context import LakeContext, TableContext
from neve.run.spark.types import iceberg_schema

SchemaLike: TypeAlias = Any
"""A PyIceberg Schema, an Arrow schema, a Spark StructType, or DDL text."""


def create_table(
    lake: LakeContext,
    name: str | tuple[str, ...],
    schema: SchemaLike,
    partition_by: Iterable[str] | PartitionSpec = (),
    *,
    sort_order: SortOrder = UNSORTED_SORT_ORDER,
    location: str | None = None,
    format_version: int | None = None,
    properties: Mapping[str, str] | None = None,
) -> TableContext:
    """Create a table; `Lake.create_table` explains the arguments."""
    given = dict(properties or {})
    columns = _schema(schema, format_version or properties_of(given).format_version)
    spec = partition_by if isinstance(partition_by, PartitionSpec) else spec_of_terms(_terms(partition_by), columns)
    return lake.of_table(
        tables.create_table(lake.catalog, name, columns, spec, sort_order, location, given, format_version)
    )


def _schema(given: SchemaLike, format_version: int) -> Schema:
    if isinstance(given, str):
        return schema_of_ddl(given)
    if isinstance(given, Schema):
        return given
    if isinstance(given, pa.Schema):
        return _of_arrow(given, format_version)
    if isinstance(given, SparkStruct):
        return iceberg_schema(given)
    raise UserError(
        f"Cannot make a schema of a {type(given).__name__}. "
        "Give a PyIceberg or Arrow schema, a Spark StructType, or text."
    )


def _of_arrow(given: pa.Schema, format_version: int) -> Schema:
    try:
        return with_fresh_ids(schema_without_ids(given, format_version))
    except (TypeError, ValueError, UnsupportedPyArrowTypeException) as e:
        raise UserError(f"Cannot make a table of format version {format_version} of an Arrow schema: {e}") from e


def _terms(partition_by: Iterable[str]) -> list[str]:
    if isinstance(partition_by, str):
        raise UserError(f"Give partition_by as a list, such as [{partition_by!r}].")
    return list(partition_by)
