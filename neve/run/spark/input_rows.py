"""Rows as callers have them: a Spark DataFrame, Arrow, pandas, or plain dictionaries.

Rows that are already in this process and small are written from here: starting a Spark job costs more than encoding
them. The same code writes and converts them, so the result is the same. Larger ones are handed to Spark, unless they
have types Spark would round, such as nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from neve.run.spark.write import write_dataframe
from neve.run.write.conversions import unwrap_type, unwrap_values
from neve.run.write.data_files import write_arrow_table
from neve.run.write.file_schema import arrow_file_schema
from neve.run.write.target import WriteTarget

LOCAL_BYTES = 64 << 20

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


def write_rows(rows: InputRows, target: WriteTarget, spark: Callable[[], SparkSession]) -> pa.Table:
    """Write rows of any kind to data files; Spark is asked for only when it is needed."""
    if _is_dataframe(rows):
        return write_dataframe(rows, target)
    table = as_arrow(rows, target.schema)
    if table.nbytes <= LOCAL_BYTES or not all(_is_exact_in_spark(f.type) for f in table.schema):
        return write_arrow_table(table, target)
    return write_dataframe(_create_dataframe(spark(), table), target)


def as_dataframe(spark: SparkSession, rows: InputRows, schema: Schema) -> DataFrame:
    """Rows of any kind as a Spark DataFrame."""
    return rows if _is_dataframe(rows) else _create_dataframe(spark, as_arrow(rows, schema))


def make_rereadable(rows: InputRows) -> InputRows:
    """Rows that can be looked at again: a reader gives its batches once."""
    return rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows


def as_arrow(rows: InputRows, schema: Schema) -> pa.Table:
    """Rows that are in this process as an Arrow table; dictionaries take their types from a table's schema."""
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
    """Rows in types that Spark takes; bytes in a column of UUIDs become text, as Spark is shown the table's."""
    uuids = {f.name.lower() for f in schema.fields if isinstance(f.field_type, UUIDType)}
    columns = [
        _column_with_spark_type(c, n, n.lower() in uuids)
        for n, c in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _column_with_spark_type(column: pa.ChunkedArray, name: str, is_uuid: bool) -> pa.ChunkedArray:
    chunks = column.chunks or [column.combine_chunks()]
    try:
        return pa.chunked_array([_array_with_spark_type(chunk, is_uuid) for chunk in chunks])
    except (pa.ArrowException, ValueError) as e:
        raise _no_spark_type_error(name, column.type) from e


def _array_with_spark_type(values: pa.Array, is_uuid: bool) -> pa.Array:
    told = conversion(values.type, UUIDType(), ArrowFlavor.SPARK) if is_uuid or _is_uuid(values.type) else None
    if told is not None:
        return told(values)
    plain, kind = unwrap_values(values), _spark_compatible_type(values.type)
    return plain if plain.type == kind else plain.cast(kind)


def _is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.UuidType)


def _spark_compatible_type(given: pa.DataType) -> pa.DataType:
    """The type of Spark's for values of another: unsigned integers take the next wider one."""
    kind = unwrap_type(given)
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_spark_compatible_type(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(*(f.with_type(_spark_compatible_type(f.type)) for f in (kind.key_field, kind.item_field)))
    if pa.types.is_nested(kind):
        made = pa.large_list if pa.types.is_large_list(kind) else pa.list_
        return made(kind.value_field.with_type(_spark_compatible_type(kind.value_type)))
    if pa.types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else _SPARK_COMPATIBLE_TYPES.get(kind, kind)


def _create_dataframe(spark: SparkSession, table: pa.Table) -> DataFrame:
    """An Arrow table in Spark. Timestamps without a time zone stay so; Spark would read them in that of the session."""
    fields = [_spark_field(f) for f in table.schema]
    try:
        return spark.createDataFrame(table, sp.StructType(fields))
    except (PySparkException, pa.ArrowException) as e:
        raise UserError(f"Cannot hand the rows to Spark: {' '.join(map(str, e.args))}") from e


def _spark_field(field: pa.Field) -> sp.StructField:
    try:
        return from_arrow_schema(pa.schema([field]), prefer_timestamp_ntz=True).fields[0]
    except PySparkException as e:
        raise _no_spark_type_error(field.name, field.type) from e


def _no_spark_type_error(name: str, kind: pa.DataType) -> UserError:
    return UserError(
        f"Cannot hand column {name!r} of type {kind} to Spark: it has no place for its values. Cast it first."
    )


def _is_dataframe(rows: Any) -> bool:
    return isinstance(rows, DataFrame)


def _from_pandas(rows: pd.DataFrame) -> pa.Table:
    try:
        return pa.Table.from_pandas(rows, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as e:
        raise UserError(f"Cannot read the pandas DataFrame: {' '.join(map(str, e.args))}.") from e


def _from_dictionaries(rows: Sequence[Mapping[str, Any]], schema: Schema) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    kinds = {f.name: f.type for f in arrow_file_schema(schema)}
    if not rows:  # of which nothing is known but the table they are for
        names = [f.name for f in schema.fields]
    elif not names:  # rows of nothing but nulls: a table must have a column to count them
        names = [next((f.name for f in schema.fields if not f.required), schema.fields[0].name)]
    return pa.table([_infer_column([row.get(n) for row in rows], kinds.get(n), n) for n in names], names=names)


def _infer_column(values: list[Any], kind: pa.DataType | None, name: str) -> pa.Array:
    """Values in their own type, for the writer to judge: converting them here would cut fractions without a word.

    Only where Python has no type of its own for it do they take that of the table: maps, empty lists, all nulls.
    """
    try:
        own = pa.array(values)
        return own if kind is None or not _has_undecided_type(own.type, kind) else pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
        raise UserError(f"Cannot read the values of column {name!r}: {e}.") from e


def _has_undecided_type(own: pa.DataType, kind: pa.DataType) -> bool:
    """Whether the values leave open what type they are."""
    if pa.types.is_null(own) or pa.types.is_map(kind):
        return True
    if pa.types.is_list(own) and pa.types.is_list(kind):
        return _has_undecided_type(own.value_type, kind.value_type)
    if pa.types.is_struct(own) and pa.types.is_struct(kind):
        known = {f.name: f.type for f in kind}
        return all(f.name in known for f in own) and any(_has_undecided_type(f.type, known[f.name]) for f in own)
    return False


def _is_exact_in_spark(kind: pa.DataType) -> bool:
    """Whether Spark holds values of a type without changing them."""
    if pa.types.is_nested(kind):
        return all(_is_exact_in_spark(kind.field(at).type) for at in range(kind.num_fields))
    if pa.types.is_timestamp(kind):
        return bool(kind.unit in ("s", "ms", "us"))
    plain = (pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.date32())
    return kind in plain or bool(pa.types.is_signed_integer(kind) or pa.types.is_decimal128(kind) or _is_float(kind))


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float32(kind) or pa.types.is_float64(kind))
