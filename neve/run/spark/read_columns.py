"""How a column of a scan is made from what Spark reads: by field id, under a safe name, with defaults as literals.

Inside a scan every column is called `__f<id>`, whatever the table calls it; only the last step gives the names back.

The names columns are read from Parquet under, chosen so that Spark cannot confuse two of them.

Spark finds columns by field id but pushes filters, and picks types, by name. A filter on `a` then looks at whatever the
file calls `a`: after `a` was dropped and added again, or two columns swapped names, that is another column and rows are
lost. So a column keeps its name only if no other field ever bore it in any schema of the table; otherwise it is read as
`__f<id>`, a name no file has. It keeps it where it can because a filter on a name the file does not know skips no row
groups. For the same reason files from before a column was renamed are read under the name it had then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg import types as ice
from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, NestedField, StructType
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp

from neve.run.read.array_builders import constant_column
from neve.run.read.types import ArrowFlavor
from neve.run.spark.types import FIELD_ID, spark_field, spark_type
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable

_ROOT = -1
_RESERVED = ("_metadata",)  # the hidden column Spark adds to every file source


def synthetic_name(field: NestedField) -> str:
    """A name that no file has."""
    return f"__f{field.field_id}"


@dataclass(frozen=True)
class ReadNames:
    """Which names of a table's columns are safe, over all the schemas it ever had."""

    schemas: tuple[Schema, ...]
    names_in_files: Mapping[int, str] = field(
        default_factory=dict
    )  # what the files to be read call columns renamed since
    has_forgotten_columns: bool = False  # columns of which nobody knows what they were called

    def read_name(self, field: NestedField) -> str:
        """The name to read a column under."""
        name = self.names_in_files.get(field.field_id, field.name)
        return name if self._is_safe(_ROOT, field.field_id, name) else synthetic_name(field)

    def are_inner_names_safe(self, field: NestedField) -> bool:
        """Whether everything inside a column can keep its name; if not, all of it is read under synthetic ones."""
        return all(self._is_safe(parent, inner.field_id, inner.name) for parent, inner in _inner_fields(field))

    def is_widened(self, field: NestedField) -> bool:
        """Whether files may hold a column with fewer digits than it has now."""
        then = [s.find_type(field.field_id) for s in self.schemas if field.field_id in s.field_ids]
        return _holds_decimals(field.field_type) and (
            self.has_forgotten_columns or any(k != field.field_type for k in then)
        )

    def _is_safe(self, parent: int, field_id: int, name: str) -> bool:
        folded = name.lower()
        if self.has_forgotten_columns or folded.startswith("__") or folded in _RESERVED:
            return False
        return self._field_ids_by_name[parent, folded] <= {field_id}

    @cached_property
    def _field_ids_by_name(self) -> Mapping[tuple[int, str], set[int]]:
        """Who ever bore a name inside a parent; Spark may ignore case, and writers replace odd characters."""
        bearers: dict[tuple[int, str], set[int]] = defaultdict(set)
        for schema in self.schemas:
            for parent, bearer in _fields_with_parent(schema.fields, _ROOT):
                for name in (bearer.name, make_compatible_name(bearer.name)):
                    bearers[parent, name.lower()].add(bearer.field_id)
        return bearers


def _holds_decimals(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_decimals(f.field_type) for f in kind.fields)
    return isinstance(kind, DecimalType)


def former_names(
    files: EntryTable, fields: Sequence[NestedField], facts: TableFacts
) -> Iterator[tuple[dict[int, str], NDArray[np.int64]]]:
    """The rows of files that call the columns alike, with the names that differ from today's."""
    schemas = {s.schema_id: s for s in facts.schemas}
    snapshots, which = np.unique(pc.fill_null(files["snapshot_id"], -1).to_numpy(), return_inverse=True)
    groups: dict[tuple[tuple[int, str], ...], list[int]] = defaultdict(list)
    for place, snapshot in enumerate(snapshots.tolist()):
        schema = schemas.get(facts.schema_id_by_snapshot.get(snapshot, -1))
        groups[() if schema is None else _renamed(fields, schema)].append(place)
    for names, places in groups.items():
        yield dict(names), np.flatnonzero(np.isin(which, places))


def _renamed(fields: Sequence[NestedField], then: Schema) -> tuple[tuple[int, str], ...]:
    names = {f.field_id: f.name for f in then.fields}
    return tuple((f.field_id, names[f.field_id]) for f in fields if names.get(f.field_id, f.name) != f.name)


def _fields_with_parent(fields: Iterable[NestedField], parent: int) -> Iterator[tuple[int, NestedField]]:
    """Every struct field at any depth, with the id of the field or element that holds it."""
    for each in fields:
        yield parent, each
        yield from _inner_fields(each)


def _inner_fields(field: NestedField) -> Iterator[tuple[int, NestedField]]:
    yield from _fields_inside_type(field.field_type, field.field_id)


def _fields_inside_type(kind: IcebergType, holder: int) -> Iterator[tuple[int, NestedField]]:
    match kind:
        case StructType():
            yield from _fields_with_parent(kind.fields, holder)
        case ListType():
            yield from _fields_inside_type(kind.element_type, kind.element_id)
        case MapType():
            yield from _fields_inside_type(kind.key_type, kind.key_id)
            yield from _fields_inside_type(kind.value_type, kind.value_id)


_MICROS_PER_DAY = 86_400_000_000

EXACT_IN_SPARK: frozenset[type[ice.IcebergType]] = frozenset(
    {
        ice.BooleanType,
        ice.IntegerType,
        ice.LongType,
        ice.FloatType,
        ice.DoubleType,
        ice.DateType,
        ice.TimestampType,
        ice.TimestamptzType,
        ice.StringType,
        ice.BinaryType,
        ice.FixedType,
        ice.DecimalType,
    }
)


def is_read_exactly_by_spark(field: ice.NestedField) -> bool:
    """Whether Spark's own Parquet reader gives exactly the values of a column."""
    return isinstance(field.field_type, ice.UUIDType | ice.UnknownType) or _is_exact(field.field_type)


def _is_exact(kind: ice.IcebergType) -> bool:
    match kind:
        case ice.StructType():
            return all(_is_exact(f.field_type) for f in kind.fields)
        case ice.ListType():
            return _is_exact(kind.element_type)
        case ice.MapType():
            return _is_exact(kind.key_type) and _is_exact(kind.value_type)
        case _:
            return type(kind) in EXACT_IN_SPARK


def read_field(field: ice.NestedField, names: ReadNames) -> sp.StructField:
    """A column as Spark is asked to read it."""
    if isinstance(field.field_type, ice.UUIDType):
        return sp.StructField(names.read_name(field), sp.BinaryType(), True, {FIELD_ID: field.field_id})
    if names.are_inner_names_safe(field):
        inner = spark_type(field.field_type)
    else:
        inner = spark_type(field.field_type, synthetic_name)
    return sp.StructField(names.read_name(field), inner, True, {FIELD_ID: field.field_id})


def scanned_column(field: ice.NestedField, names: ReadNames) -> Column:
    """A column that was read, with its final type, as `__f<id>`."""
    column = column_by_name(names.read_name(field))
    if isinstance(field.field_type, ice.UUIDType):
        column = _uuid_text(column)
    elif not names.are_inner_names_safe(field):
        column = column.cast(spark_type(field.field_type))
    if names.is_widened(field):  # Spark cuts a decimal to the width a file has, and compares what is left of it
        return F.when(column.isNotNull(), column).alias(synthetic_name(field))
    return _without_push_down(column, field.field_type).alias(synthetic_name(field))


def _without_push_down(column: Column, kind: ice.IcebergType) -> Column:
    """A column with floating-point numbers such that no filter on it reaches the Parquet reader.

    The bounds of a row group leave NaN out, while to Spark NaN is greater than all numbers and equal to itself: a row
    group would be skipped that holds it. Files are still left out by the statistics of the table, which count NaNs.
    """
    if isinstance(kind, ice.FloatType | ice.DoubleType):
        return F.nanvl(column, column)
    return F.when(column.isNotNull(), column) if _holds_floats(kind) else column


def _holds_floats(kind: ice.IcebergType) -> bool:
    match kind:
        case ice.StructType():
            return any(_holds_floats(f.field_type) for f in kind.fields)
        case _:
            return isinstance(kind, ice.FloatType | ice.DoubleType)


def column_by_name(name: str, qualifier: str | None = None) -> Column:
    """A column by its exact name, dots and backticks included; of the frame with an alias, when that is told."""
    parts = [name] if qualifier is None else [qualifier, name]
    return F.col(".".join(f"`{part.replace('`', '``')}`" for part in parts))


def prune_nested_fields(value: Column, kind: ice.IcebergType, target_type: ice.IcebergType) -> Column:
    """A column of a type without the nested fields that another, which is part of it, lacks."""
    if kind == target_type:
        return value
    match kind, target_type:
        case ice.StructType(), ice.StructType():
            given = {f.field_id: f.field_type for f in kind.fields}
            parts = [
                prune_nested_fields(value.getField(f.name), given[f.field_id], f.field_type).alias(f.name)
                for f in target_type.fields
            ]
            return F.when(value.isNotNull(), F.struct(*parts))
        case ice.ListType(), ice.ListType():
            return F.transform(
                value, lambda each: prune_nested_fields(each, kind.element_type, target_type.element_type)
            )
        case ice.MapType(), ice.MapType():
            return F.transform_values(
                value, lambda _, each: prune_nested_fields(each, kind.value_type, target_type.value_type)
            )
    raise TypeError(f"{target_type} is no part of {kind}")


def literal(value: Any, field: ice.NestedField) -> Column:
    """A constant of the type a column has."""
    kind = spark_field(field).dataType
    scalar = constant_column(value, field.field_type, ArrowFlavor.SPARK).value[0]
    return _literal_column(scalar).cast(kind)


def _literal_column(scalar: pa.Scalar) -> Column:
    if not scalar.is_valid:
        return F.lit(None)
    if pa.types.is_date(scalar.type):
        return F.expr(f"date_from_unix_date({scalar.value})")
    if pa.types.is_timestamp(scalar.type):
        return F.timestamp_micros(F.lit(scalar.value)) if scalar.type.tz else _local_timestamp(scalar.value)
    return F.lit(scalar.as_py())


def _local_timestamp(micros: int) -> Column:
    """A local timestamp, whatever the time zone of the session."""
    days, rest = divmod(micros, _MICROS_PER_DAY)
    seconds = Decimal(rest).scaleb(-6)
    return F.expr(
        f"TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval({days}, 0, 0, CAST({seconds} AS DECIMAL(18, 6)))"
    )


def _uuid_text(column: Column) -> Column:
    digits = F.lower(F.hex(column))
    starts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    parts = [F.substring(digits, start, length) for start, length in starts]
    return F.concat(parts[0], *(piece for part in parts[1:] for piece in (F.lit("-"), part)))
