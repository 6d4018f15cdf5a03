"""A set of rows to look other rows up in, a column at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as at

__all__ = ["KeySet"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class KeySet:
    """Distinct rows. Null equals null, NaN equals NaN, and 0.0 differs from -0.0.

    Each level numbers the distinct beginnings of rows: `values` are the distinct values of its column, `pairs` the
    sorted combinations (number of the beginning before it, place of the value) that occur.
    """

    levels: tuple[tuple[pa.Array, Ints], ...]

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> KeySet:
        """The set of the rows of these columns."""
        number = np.zeros(len(columns[0]), np.int64)
        levels = []
        for column in map(_comparable, columns):
            values = column.unique()
            pairs, number = np.unique(number * len(values) + _places(column, values), return_inverse=True)
            levels.append((values, pairs))
        return cls(tuple(levels))

    def contains(self, columns: Sequence[pa.Array]) -> NDArray[np.bool_]:
        """For each row of these columns, whether it is in the set."""
        number = np.zeros(len(columns[0]), np.int64)
        found = np.full(len(number), len(self.levels[0][1]) > 0)
        for column, (values, pairs) in zip(map(_comparable, columns), self.levels, strict=True):
            if not found.any():
                break
            places = _places(column, values)
            wanted = number * len(values) + places
            number = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
            found &= (places >= 0) & (pairs[number] == wanted)
        return found


def _places(column: pa.Array, values: pa.Array) -> Ints:
    places = pc.index_in(column, value_set=values)
    return np.asarray(places.fill_null(-1).to_numpy(), np.int64)


def _comparable(column: pa.Array) -> pa.Array:
    """Floats as their bits, with one NaN: as numbers, zero would equal minus zero."""
    if not at.is_floating(column.type):
        return column
    plain = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    return plain.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
