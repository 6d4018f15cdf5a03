"""Row groups of a Parquet file that hold no matching row, known by the statistics in its footer.

The rules are those that judge whole files (`neve.plan.ranges`); only where the bounds come from differs. What a footer
does not say, or says in a type that cannot be the column's, is not known, and the group is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.types import DoubleType, FloatType, IcebergType, NestedField, UUIDType

from neve.model.single_value import ordered, ordered_type
from neve.plan import ranges
from neve.plan.ranges import FieldRange, Mask, safe_uuid_bounds
from neve.run.arrow.convert import conversion
from neve.run.arrow.ids import FileField
from neve.run.arrow.types import Carrier

__all__ = ["may_match"]


def may_match(metadata: Any, fields: Iterable[FileField], predicate: BooleanExpression) -> Mask:
    """Which row groups may hold a row that meets a bound predicate without NOT, by the metadata of the file."""
    return ranges.may_match(_RowGroups(metadata, tuple(fields)), predicate)


@dataclass(frozen=True)
class _RowGroups:
    metadata: Any
    fields: tuple[FileField, ...]

    def __len__(self) -> int:
        return int(self.metadata.num_row_groups)

    def of(self, field: NestedField) -> FieldRange:
        """The range of a column in each row group."""
        found = _leaf(self.fields, field.field_id)
        if found is None:
            return _unknown(len(self), field.field_type)
        columns = [self.metadata.row_group(i).column(found.leaves.start) for i in range(len(self))]
        stats = [c.statistics for c in columns]
        nulls = np.array([s.null_count if s is not None and s.has_null_count else -1 for s in stats], np.int64)
        rows = np.array([c.num_values for c in columns], np.int64)
        lower, upper = _bounds(stats, found.type, field.field_type)
        filled = nulls != rows
        nan = filled & isinstance(field.field_type, FloatType | DoubleType)  # footers do not count them
        return FieldRange(lower, upper, nulls != 0, nan, filled)


def _leaf(fields: Iterable[FileField], field_id: int) -> FileField | None:
    """A primitive column, at the top or inside structs: one value to a row."""
    for field in fields:
        if field.field_id == field_id and not field.children:
            return field
        if pa.types.is_struct(field.type) and (inner := _leaf(field.children, field_id)) is not None:
            return inner
    return None


def _unknown(count: int, kind: IcebergType) -> FieldRange:
    nothing, always = pa.nulls(count, ordered_type(kind)), np.ones(count, np.bool_)
    return FieldRange(nothing, nothing, always, always, always)


def _bounds(stats: list[Any], found: pa.DataType, kind: IcebergType) -> tuple[pa.Array, pa.Array]:
    convert = conversion(found, kind, Carrier.EXACT)
    known = [s if s is not None and s.has_min_max else None for s in stats]
    nothing = pa.nulls(len(stats), ordered_type(kind))
    if convert is None:
        return nothing, nothing
    try:
        lower, upper = (
            ordered(convert(pa.array([None if s is None else getattr(s, end) for s in known], found)), kind)
            for end in ("min", "max")
        )
    except (ValueError, TypeError, OverflowError, NotImplementedError):  # years Python lacks, text cut inside a letter
        return nothing, nothing
    return safe_uuid_bounds(lower, upper) if isinstance(kind, UUIDType) else (lower, upper)
