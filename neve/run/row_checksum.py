"""A sum of rows that does not depend on their order: the same rows give the same sum, whoever counted them.

Each row becomes a number of 64 bits, and the numbers are added. Columns are told apart by their place, nulls by a
number of their own. Values count as what is stored, so -0.0 is not 0.0; all NaNs are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pandas.util import hash_array

Hashes = NDArray[np.uint64]
_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_MIX_FACTOR_1, _MIX_FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MASK_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Checksum:
    """So many rows, and the sum of what they are.

    >>> one = Checksum.of(pa.record_batch({"a": [1, 2], "b": ["x", None]}))
    >>> one == Checksum.of(pa.record_batch({"a": [2, 1], "b": [None, "x"]}))
    True
    >>> one == Checksum.of(pa.record_batch({"a": [1, 2], "b": [None, "x"]}))
    False
    """

    rows: int = 0
    total: int = 0

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Checksum:
        """The sum of a batch."""
        return cls(batch.num_rows, int(np.add.reduce(row_hashes(batch))))

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows + other.rows, (self.total + other.total) & _MASK_64)

    def __str__(self) -> str:
        return f"{self.rows} rows, checksum {self.total:016x}"

    @classmethod
    def of_batches(cls, batches: Iterable[pa.RecordBatch]) -> Checksum:
        """The sum of many batches."""
        return sum(map(cls.of, batches), cls())


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """A number for each row."""
    return _combine_hashes([_value_hashes(column) for column in batch.columns], batch.num_rows)


def _combine_hashes(columns: list[Hashes], rows: int) -> Hashes:
    total = np.zeros(rows, np.uint64)
    for place, hashes in enumerate(columns):
        total = _mix_bits(total + hashes + np.uint64(place + 1))
    return total


def _mix_bits(bits: Hashes) -> Hashes:
    """Bits spread so that neighbours have nothing in common."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_FACTOR_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_FACTOR_2
    return np.asarray(bits ^ (bits >> np.uint64(31)), np.uint64)


def _value_hashes(values: Any) -> Hashes:
    """A number for each value, nulls among them."""
    if isinstance(values.type, pa.BaseExtensionType):  # UUIDs
        values = values.storage
    found = _hash_function(values.type)(values)
    if not values.null_count:
        return found
    return np.where(values.is_valid().to_numpy(zero_copy_only=False), found, _NULL_HASH)


def _hash_function(kind: pa.DataType) -> Callable[[Any], Hashes]:
    if pa.types.is_struct(kind):
        return _of_struct
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _hash_lists
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return lambda values: _hash_text(_as_bytes(values))
    if any(is_kind(kind) for is_kind in _TEXT_TYPE_CHECKS):
        return _hash_text
    return _hash_fixed_width


_TEXT_TYPE_CHECKS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def _hash_fixed_width(values: Any) -> Hashes:
    """Numbers, dates, times and flags by their bits."""
    if pa.types.is_null(values.type):
        return np.full(len(values), _NULL_HASH, np.uint64)
    if pa.types.is_floating(values.type):
        numbers = values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False).copy()
        numbers[np.isnan(numbers)] = np.nan
        return _mix_bits(numbers.view(np.uint64))
    whole = values.cast(pa.int64()) if values.type.bit_width == 64 else values.cast(pa.int32()).cast(pa.int64())
    return _mix_bits(whole.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64))


def _as_bytes(values: Any) -> Any:
    """Decimals and bytes of a fixed length as bytes of any length."""
    return values.cast(pa.string()) if pa.types.is_decimal(values.type) else values.cast(pa.binary())


def _hash_text(values: Any) -> Hashes:
    """Texts and bytes, each distinct one once."""
    coded = values.cast(_binary(values.type)).fill_null(b"").dictionary_encode()
    distinct = np.array(coded.dictionary.to_pylist() or [b""], dtype=object)
    return np.asarray(hash_array(distinct, categorize=False)[coded.indices.to_numpy()], np.uint64)


def _binary(kind: pa.DataType) -> pa.DataType:
    return pa.large_binary() if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else pa.binary()


def _of_struct(values: Any) -> Hashes:
    return _combine_hashes([_value_hashes(child) for child in values.flatten()], len(values))


def _hash_lists(values: Any) -> Hashes:
    """Lists and maps: their values with their places, added up."""
    parts = pc.list_parent_indices(_map_as_list(values)).to_numpy()
    inner = _value_hashes(pc.list_flatten(_map_as_list(values)))
    starts = np.concatenate([[True], parts[1:] != parts[:-1]]) if len(parts) else np.array([], bool)
    first = np.maximum.accumulate(np.where(starts, np.arange(len(parts)), 0)) if len(parts) else parts
    placed = _mix_bits(inner + (np.arange(len(parts)) - first).astype(np.uint64))
    total = np.zeros(len(values), np.uint64)
    np.add.at(total, parts, placed)
    lengths = pc.list_value_length(_map_as_list(values)).fill_null(0).to_numpy(zero_copy_only=False)
    return _mix_bits(total + lengths.astype(np.uint64))


def _map_as_list(values: Any) -> Any:
    if not pa.types.is_map(values.type):
        return values
    entries = pa.struct([values.type.key_field, values.type.item_field])
    return values.cast(pa.list_(pa.field("entries", entries, nullable=False)))
