"""Create a table from a schema in any common form.

Isolation: fails if the name is taken.
Writes: the first metadata file.

>>> lake = LakeContext(t.context.catalog, t.context.spark, lambda: None)
>>> create_table(lake, "db.events", "id BIGINT, day DATE", ["day"]).metadata.spec().fields[0].name
'day'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField
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
    keeps_ids: bool = False,
) -> TableContext:
    """Create a table; `Lake.create_table` explains the arguments, and `catalog.create_table` explains `keeps_ids`."""
    table_properties = dict(properties or {})
    columns = schema_of(schema, format_version or properties_of(table_properties).format_version)
    if isinstance(partition_by, str):
        raise UserError(f"Give partition_by as a list, such as [{partition_by!r}].")
    spec = partition_by if isinstance(partition_by, PartitionSpec) else spec_of_terms(list(partition_by), columns)
    table = tables.create_table(
        lake.catalog,
        name,
        columns,
        spec,
        sort_order,
        location,
        table_properties,
        format_version,
        keeps_ids=keeps_ids,
    )
    return lake.of_table(table)


def schema_of(schema: SchemaLike, format_version: int) -> Schema:
    """Return the Iceberg schema of any common form of one."""
    if isinstance(schema, str):
        return schema_of_ddl(schema)
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, SparkStruct):
        return iceberg_schema(schema)
    if not isinstance(schema, pa.Schema):
        raise UserError(
            f"Cannot make a schema from a {type(schema).__name__}. "
            "Give a PyIceberg or Arrow schema, a Spark StructType, or text."
        )
    try:
        return with_fresh_ids(schema_without_ids(schema, format_version))
    except (TypeError, ValueError, UnsupportedPyArrowTypeException) as e:
        raise UserError(f"Cannot make a table of format version {format_version} from an Arrow schema: {e}") from e


def columns_of(rows: DataFrame, *, with_comments: bool = False) -> SparkStruct:
    """Return the columns of a DataFrame; a table made of it takes nulls in all of them."""
    fields = [StructField(f.name, f.dataType, True) for f in rows.schema.fields]
    for field, source in zip(fields, rows.schema.fields, strict=True):
        if with_comments and "comment" in source.metadata:
            field.metadata = {"comment": source.metadata["comment"]}
    return SparkStruct(fields)
