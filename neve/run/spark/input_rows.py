"""Accept rows as a Spark DataFrame, Arrow, pandas, or a list of dictionaries.

Rows that are already in this process are written here, in threads: handing them to Spark costs more than encoding
them. The same code converts and writes them, so the result is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as sp
from pyspark.sql.pandas.types import from_arrow_schema

from neve.errors import UserError
from neve.run.read.conversions import conversion
from neve.run.read.types import ArrowFlavor
from neve.run.spark.types import has_required_fields
from neve.run.spark.write import write_dataframe
from neve.run.write.conversions import unwrap_type, unwrap_values
from neve.run.write.data_files import write_arrow_table, write_stream
from neve.run.write.file_schema import arrow_file_schema
from neve.run.write.store_assignment import with_required_fields
from neve.run.write.target import WriteTarget

_SPARK_COMPATIBLE_TYPES: Mapping[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("ns"),
    pa.time32("ms"): pa.time64("ns"),
    pa.time64("us"): pa.time64("ns"),
}

InputRows = Any  # a DataFrame, pa.Table, pa.RecordBatch, pa.RecordBatchReader, pd.DataFrame or a list of dictionaries


def write_rows(rows: InputRows, target: WriteTarget) -> pa.Table:
    """Write rows of any kind to data files. A reader is written as its batches arrive, unless they must be sorted."""
    match rows:
        case DataFrame():
            return write_dataframe(rows, target)
        case pa.RecordBatchReader() if not target.write_order.fields:
            return write_stream(rows, target)
    return write_arrow_table(as_arrow(rows, target.schema), target)


def as_dataframe(spark: SparkSession, rows: InputRows, schema: Schema) -> DataFrame:
    """Convert rows of any kind to a Spark DataFrame."""
    return rows if isinstance(rows, DataFrame) else create_dataframe(spark, as_arrow(rows, schema))


def make_rereadable(rows: InputRows) -> InputRows:
    """Return rows that can be read several times; a `RecordBatchReader` gives its batches once."""
    return rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows


def as_arrow(rows: InputRows, schema: Schema) -> pa.Table:
    """Convert rows of this process to an Arrow table; dictionaries take their types from a table's schema."""
    match make_rereadable(rows):
        case pa.Table() as table:
            return table
        case pa.RecordBatch():
            return pa.Table.from_batches([rows])
        case pd.DataFrame() if rows.empty and not len(rows.columns):
            return _from_dictionaries([], schema)
        case pd.DataFrame():
            return _from_pandas(rows)
        case list() | tuple() if all(isinstance(r, Mapping) for r in rows):
            return _from_dictionaries(rows, schema)
    raise UserError(
        f"Cannot write rows given as {type(rows).__name__}. "
        "Give a Spark DataFrame, an Arrow table or reader, a pandas DataFrame, or a list of dictionaries."
    )


def with_spark_types(table: pa.Table, schema: Schema) -> pa.Table:
    """Convert rows to types that Spark accepts; bytes in a UUID column become text, as Spark sees the table's UUIDs."""
    uuids = {f.name.lower() for f in schema.fields if isinstance(f.field_type, UUIDType)}
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        chunks = column.chunks or [column.combine_chunks()]
        try:
            converted = [_array_with_spark_type(chunk, name.lower() in uuids) for chunk in chunks]
            columns.append(pa.chunked_array(converted))
        except (pa.ArrowException, ValueError) as e:
            raise _no_spark_type_error(name, column.type) from e
    return pa.table(columns, names=table.column_names)


def _array_with_spark_type(values: pa.Array, is_uuid: bool) -> pa.Array:
    if is_uuid or isinstance(values.type, pa.UuidType):
        convert = conversion(values.type, UUIDType(), ArrowFlavor.SPARK)
        if convert is not None:
            return convert(values)
    plain, kind = unwrap_values(values), _spark_compatible_type(values.type)
    return plain if plain.type == kind else plain.cast(kind)


def _spark_compatible_type(source: pa.DataType) -> pa.DataType:
    """Return the closest type that Spark has; unsigned integers become the next wider signed type."""
    kind = unwrap_type(source)
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_spark_compatible_type(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(*(f.with_type(_spark_compatible_type(f.type)) for f in (kind.key_field, kind.item_field)))
    if pa.types.is_nested(kind):
        list_type = pa.large_list if pa.types.is_large_list(kind) else pa.list_
        return list_type(kind.value_field.with_type(_spark_compatible_type(kind.value_type)))
    if pa.types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else _SPARK_COMPATIBLE_TYPES.get(kind, kind)


def create_dataframe(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Convert an Arrow table to a DataFrame. Timestamps without a time zone stay so, unlike by Spark's default."""
    fields = []
    for field in table.schema:
        try:
            fields += from_arrow_schema(pa.schema([field]), prefer_timestamp_ntz=True).fields
        except PySparkException as e:
            raise _no_spark_type_error(field.name, field.type) from e
    rows = table if table.num_rows else table.schema.empty_table()  # Spark fails on columns without any chunk
    for at, field in enumerate(fields):
        if has_required_fields(field.dataType):  # Spark casts the columns, which fails on null structs
            rows = rows.set_column(at, rows.field(at), with_required_fields(rows.column(at), field.name))
    try:
        return spark.createDataFrame(rows, sp.StructType(fields))
    except (PySparkException, pa.ArrowException) as e:
        raise UserError(f"Cannot hand the rows to Spark: {' '.join(map(str, e.args))}") from e


def _no_spark_type_error(name: str, kind: pa.DataType) -> UserError:
    return UserError(f"Cannot hand column {name!r} of type {kind} to Spark, which has no such type. Cast it first.")


def _from_pandas(rows: pd.DataFrame) -> pa.Table:
    try:
        return pa.Table.from_pandas(rows, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as e:
        raise UserError(f"Cannot read the pandas DataFrame: {' '.join(map(str, e.args))}.") from e


def _from_dictionaries(rows: Sequence[Mapping[str, Any]], schema: Schema) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    kinds = {f.name: f.type for f in arrow_file_schema(schema)}
    if not rows:
        names = [f.name for f in schema.fields]
    elif not names:  # empty dictionaries are rows of nulls: an Arrow table needs a column to count them
        names = [next((f.name for f in schema.fields if not f.required), schema.fields[0].name)]
    return pa.table([_infer_column([row.get(n) for row in rows], kinds.get(n), n) for n in names], names=names)


def _infer_column(values: list[Any], kind: pa.DataType | None, name: str) -> pa.Array:
    """Return values in their own type, which the writer checks; a conversion here would silently cut fractions.

    Only values without a type of their own take the type of the table: maps, empty lists, all nulls.
    """
    try:
        own = pa.array(values)
        return own if kind is None or not _has_undecided_type(own.type, kind) else pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
        raise UserError(f"Cannot read the values of column {name!r}: {e}.") from e


def _has_undecided_type(own: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether the values do not determine their type."""
    if pa.types.is_null(own) or pa.types.is_map(kind):
        return True
    if pa.types.is_list(own) and pa.types.is_list(kind):
        return _has_undecided_type(own.value_type, kind.value_type)
    if pa.types.is_struct(own) and pa.types.is_struct(kind):
        types = {f.name: f.type for f in kind}
        return all(f.name in types for f in own) and any(_has_undecided_type(f.type, types[f.name]) for f in own)
    return False
