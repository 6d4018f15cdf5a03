"""Columns of a scan in Spark: read by field id, under a safe name, with defaults as literals.

Inside a scan every column is called `__f<id>`, whatever its name in the table; only the last step restores the names.

Spark finds columns by field id, but pushes filters down and picks types by name. A filter on `a` then uses the column
that the file calls `a`. After `a` was dropped and added again, or after two columns swapped names, that is another
column, and rows are lost. So a column is read under its own name only if no other field ever had that name in any
schema of the table; otherwise it is read as `__f<id>`, a name that no file has. The own name is better where it is
safe, because a filter on a name that the file lacks skips no row groups. For the same reason, files from before a
column was renamed are read under its former name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from types import UnionType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg import types as ice
from pyiceberg.schema import Schema, make_compatible_name
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp

from neve.model.v3_types import VariantType
from neve.run.read.array_builders import constant_column
from neve.run.read.types import ArrowFlavor, leaf_types
from neve.run.spark.types import FIELD_ID, spark_type
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable

_ROOT = -1
_RESERVED = ("_metadata",)  # the hidden column Spark adds to every file source


def synthetic_name(field: ice.NestedField) -> str:
    """Return a name that no file has."""
    return f"__f{field.field_id}"


@dataclass(frozen=True)
class ReadNames:
    """Decides which names of columns are safe, from all schemas that the table ever had."""

    schemas: tuple[Schema, ...]
    names_in_files: Mapping[int, str] = field(default_factory=dict)  # the files' names of columns renamed since
    has_forgotten_columns: bool = False  # the table had columns whose names are not known

    def read_name(self, field: ice.NestedField) -> str:
        """Return the name under which a column is read."""
        name = self.names_in_files.get(field.field_id, field.name)
        return name if self._is_safe(_ROOT, field.field_id, name) else synthetic_name(field)

    def are_inner_names_safe(self, field: ice.NestedField) -> bool:
        """Return whether all fields inside a column can keep their names; if not, all get synthetic ones."""
        inner_fields = _fields_inside_type(field.field_type, field.field_id)
        return all(self._is_safe(parent, inner.field_id, inner.name) for parent, inner in inner_fields)

    def is_widened(self, field: ice.NestedField) -> bool:
        """Return whether files may hold a decimal column with fewer digits than it has now."""
        if not _contains_type(field.field_type, ice.DecimalType):
            return False
        types = (s.find_type(field.field_id) for s in self.schemas if field.field_id in s.field_ids)
        return self.has_forgotten_columns or any(kind != field.field_type for kind in types)

    def _is_safe(self, parent: int, field_id: int, name: str) -> bool:
        folded = name.lower()
        if self.has_forgotten_columns or folded.startswith("__") or folded in _RESERVED:
            return False
        return self._field_ids_by_name[parent, folded] <= {field_id}

    @cached_property
    def _field_ids_by_name(self) -> Mapping[tuple[int, str], set[int]]:
        # Spark may ignore case, and writers replace odd characters.
        field_ids: dict[tuple[int, str], set[int]] = defaultdict(set)
        for schema in self.schemas:
            for parent, each in _fields_with_parent(schema.fields, _ROOT):
                for name in (each.name, make_compatible_name(each.name)):
                    field_ids[parent, name.lower()].add(each.field_id)
        return field_ids


def _contains_type(kind: ice.IcebergType, types: type[ice.IcebergType] | UnionType) -> bool:
    if isinstance(kind, ice.StructType):
        return any(_contains_type(f.field_type, types) for f in kind.fields)
    return isinstance(kind, types)


def former_names(
    files: EntryTable, fields: Sequence[ice.NestedField], facts: TableFacts
) -> Iterator[tuple[dict[int, str], NDArray[np.int64]]]:
    """Group files by the names they use; yield the names that differ from the current ones, and the rows."""
    schemas = {s.schema_id: s for s in facts.schemas}
    snapshots, snapshot_of_file = np.unique(pc.fill_null(files["snapshot_id"], -1).to_numpy(), return_inverse=True)
    groups: dict[tuple[tuple[int, str], ...], list[int]] = defaultdict(list)
    for index, snapshot in enumerate(snapshots.tolist()):
        schema = schemas.get(facts.schema_id_by_snapshot.get(snapshot, -1))
        names = {} if schema is None else {f.field_id: f.name for f in schema.fields}
        renamed = ((f.field_id, names[f.field_id]) for f in fields if names.get(f.field_id, f.name) != f.name)
        groups[tuple(renamed)].append(index)
    for renamed_columns, indices in groups.items():
        yield dict(renamed_columns), np.flatnonzero(np.isin(snapshot_of_file, indices))


def _fields_with_parent(fields: Iterable[ice.NestedField], parent: int) -> Iterator[tuple[int, ice.NestedField]]:
    """Yield every struct field at any depth, with the id of the field or element that contains it."""
    for each in fields:
        yield parent, each
        yield from _fields_inside_type(each.field_type, each.field_id)


def _fields_inside_type(kind: ice.IcebergType, parent: int) -> Iterator[tuple[int, ice.NestedField]]:
    match kind:
        case ice.StructType():
            yield from _fields_with_parent(kind.fields, parent)
        case ice.ListType():
            yield from _fields_inside_type(kind.element_type, kind.element_id)
        case ice.MapType():
            yield from _fields_inside_type(kind.key_type, kind.key_id)
            yield from _fields_inside_type(kind.value_type, kind.value_id)


_MICROS_PER_DAY = 86_400_000_000
_FLOATS = ice.FloatType | ice.DoubleType

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
        ice.GeometryType,
        ice.GeographyType,
        VariantType,
    }
)


def is_read_exactly_by_spark(field: ice.NestedField) -> bool:
    """Return whether Spark's own Parquet reader returns exactly the values of a column."""
    kind = field.field_type
    return isinstance(kind, ice.UUIDType | ice.UnknownType) or {*map(type, leaf_types(kind))} <= EXACT_IN_SPARK


def read_field(field: ice.NestedField, names: ReadNames) -> sp.StructField:
    """Return the field for Spark's read schema."""
    if isinstance(field.field_type, ice.UUIDType):
        kind: sp.DataType = sp.BinaryType()
    elif names.are_inner_names_safe(field):
        kind = spark_type(field.field_type)
    else:
        kind = spark_type(field.field_type, synthetic_name)
    return sp.StructField(names.read_name(field), kind, True, {FIELD_ID: field.field_id})


def converted_column(field: ice.NestedField, names: ReadNames) -> Column | None:
    """Return a column that was read as `__f<id>` with its final type; None if it is final as it is.

    Some columns are wrapped such that no filter on them reaches the Parquet reader:

    * Decimals that were widened. Spark cuts a decimal to the width in the file, and compares what remains.
    * Floating-point numbers. The bounds of a row group ignore NaN, while in Spark NaN is greater than all numbers and
      equal to itself, so a row group with NaN would be skipped. The statistics of the table, which count NaNs, still
      exclude files.
    """
    is_uuid, is_float = (isinstance(field.field_type, kind) for kind in (ice.UUIDType, _FLOATS))
    is_wrapped = names.is_widened(field) or _contains_type(field.field_type, _FLOATS)
    is_safe = names.are_inner_names_safe(field)
    if is_safe and not (is_uuid or is_float or is_wrapped):
        return None
    column = F.col(synthetic_name(field))
    if is_uuid:
        column = _uuid_text(column)
    elif not is_safe:
        column = column.cast(spark_type(field.field_type))
    if is_float:
        return F.nanvl(column, column)
    return F.when(column.isNotNull(), column) if is_wrapped else column


def column_by_name(name: str, qualifier: str | None = None) -> Column:
    """Return a column by its exact name, which may contain dots and backticks; `qualifier` is the alias of a frame."""
    parts = [name] if qualifier is None else [qualifier, name]
    return F.col(".".join(f"`{part.replace('`', '``')}`" for part in parts))


def prune_nested_fields(value: Column, kind: ice.IcebergType, target_type: ice.IcebergType) -> Column:
    """Remove the nested fields that the target type, which is a part of the column's type, lacks."""
    if kind == target_type:
        return value
    match kind, target_type:
        case ice.StructType(), ice.StructType():
            types = {f.field_id: f.field_type for f in kind.fields}
            parts = [
                prune_nested_fields(value.getField(f.name), types[f.field_id], f.field_type).alias(f.name)
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
    """Return a constant with the type of a column."""
    scalar = constant_column(value, field.field_type, ArrowFlavor.SPARK).value[0]
    return _literal_column(scalar).cast(spark_type(field.field_type))


def _literal_column(scalar: pa.Scalar) -> Column:
    if not scalar.is_valid:
        return F.lit(None)
    if pa.types.is_date(scalar.type):
        return F.expr(f"date_from_unix_date({scalar.value})")
    if pa.types.is_timestamp(scalar.type):
        return F.timestamp_micros(F.lit(scalar.value)) if scalar.type.tz else _local_timestamp(scalar.value)
    return F.lit(scalar.as_py())


def _local_timestamp(micros: int) -> Column:
    """Return a local timestamp that does not depend on the time zone of the session."""
    days, micros_of_day = divmod(micros, _MICROS_PER_DAY)
    seconds = Decimal(micros_of_day).scaleb(-6)
    return F.expr(
        f"TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval({days}, 0, 0, CAST({seconds} AS DECIMAL(18, 6)))"
    )


def _uuid_text(column: Column) -> Column:
    digits = F.lower(F.hex(column))
    parts = [F.substring(digits, start, length) for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))]
    return F.concat(parts[0], *(piece for part in parts[1:] for piece in (F.lit("-"), part)))
