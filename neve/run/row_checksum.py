"""A checksum of rows that does not depend on their order, nor on how they are split into batches.

Each row is hashed to 64 bits, and the hashes are added. The hash depends on the position of each column, and nulls have
a hash of their own. Stored values count, so -0.0 differs from 0.0; all NaNs are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pandas.util import hash_array

from neve.run.write.conversions import map_pairs

Hashes = NDArray[np.uint64]
_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_MIX_FACTOR_1, _MIX_FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MASK_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Checksum:
    """The number of rows, and the sum of their hashes.

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
        """Return the checksum of a batch."""
        return cls(batch.num_rows, int(np.add.reduce(row_hashes(batch))))

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows + other.rows, (self.total + other.total) & _MASK_64)

    def __str__(self) -> str:
        return f"{self.rows} rows, checksum {self.total:016x}"

    @classmethod
    def of_batches(cls, batches: Iterable[pa.RecordBatch]) -> Checksum:
        """Return the checksum of many batches."""
        return sum(map(cls.of, batches), cls())


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """Return a hash for each row."""
    return _combine_hashes([_value_hashes(column) for column in batch.columns], batch.num_rows)


def _combine_hashes(columns: list[Hashes], rows: int) -> Hashes:
    total = np.zeros(rows, np.uint64)
    for number, hashes in enumerate(columns, 1):
        total = _mix_bits(total + hashes + np.uint64(number))
    return total


def _mix_bits(bits: Hashes) -> Hashes:
    """Mix the bits so that close numbers get unrelated hashes (the finalizer of SplitMix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_FACTOR_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_FACTOR_2
    return np.asarray(bits ^ (bits >> np.uint64(31)), np.uint64)


def _value_hashes(values: Any) -> Hashes:
    if isinstance(values.type, pa.BaseExtensionType):  # UUIDs
        values = values.storage
    kind = values.type
    if pa.types.is_struct(kind):
        hashes = _combine_hashes([_value_hashes(child) for child in values.flatten()], len(values))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        hashes = _hash_lists(values)
    elif pa.types.is_decimal(kind):
        hashes = _hash_text(values.cast(pa.string()))
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        hashes = _hash_text(values.cast(pa.large_binary()))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        hashes = _hash_text(values)
    else:
        hashes = _hash_fixed_width(values)
    return (
        np.where(values.is_valid().to_numpy(zero_copy_only=False), hashes, _NULL_HASH) if values.null_count else hashes
    )


def _hash_fixed_width(values: Any) -> Hashes:
    """Hash the bits of numbers, dates, times and booleans."""
    if pa.types.is_null(values.type):
        return np.full(len(values), _NULL_HASH, np.uint64)
    if pa.types.is_floating(values.type):
        numbers = values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False).copy()
        numbers[np.isnan(numbers)] = np.nan
        return _mix_bits(numbers.view(np.uint64))
    integers = values.cast(pa.int64()) if values.type.bit_width == 64 else values.cast(pa.int32()).cast(pa.int64())
    return _mix_bits(integers.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64))


def _hash_text(values: Any) -> Hashes:
    """Hash strings or bytes, each distinct value once."""
    binary = values if pa.types.is_large_binary(values.type) else values.cast(pa.binary())
    coded = binary.fill_null(b"").dictionary_encode()
    distinct = np.array(coded.dictionary.to_pylist() or [b""], dtype=object)
    return np.asarray(hash_array(distinct, categorize=False)[coded.indices.to_numpy()], np.uint64)


def _hash_lists(values: Any) -> Hashes:
    """Hash lists and maps: the sum of the hashes of their items, each mixed with its position."""
    if pa.types.is_map(values.type):
        values = map_pairs(values)
    parents = pc.list_parent_indices(values).to_numpy()
    hashes = _value_hashes(pc.list_flatten(values))
    starts = np.concatenate([[True], parents[1:] != parents[:-1]]) if len(parents) else np.array([], bool)
    first = np.maximum.accumulate(np.where(starts, np.arange(len(parents)), 0)) if len(parents) else parents
    total = np.zeros(len(values), np.uint64)
    np.add.at(total, parents, _mix_bits(hashes + (np.arange(len(parents)) - first).astype(np.uint64)))
    lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    return _mix_bits(total + lengths.astype(np.uint64))
