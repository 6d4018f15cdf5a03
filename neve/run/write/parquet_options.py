"""Options of pyarrow's Parquet writer: the table's properties, and the columns that get a dictionary.

A dictionary stores each distinct value once, and a short number for every row. It makes a column of few values smaller
and faster to read. A column of many values pays for hashing on every write, and readers pay for two encodings, because
the writer gives up only when the dictionary is full.

The choice is made when a file is begun, from its first row group, and holds for the whole file. A sample of rows at
equal distances tells how many distinct values the row group has, if values repeat at random. Rows sorted by a key that
repeats in neighbours look distinct in such a sample, and the column is stored plainly: it compresses well that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from math import ceil, exp, inf, log, log2
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.types import BooleanType, DecimalType

from neve.errors import UserError
from neve.model.properties import BloomFilterSettings, TableProperties
from neve.model.v3_types import VariantType
from neve.run.write.metrics import LeafColumn, leaf_values

_CODECS_WITHOUT_LEVEL = ("snappy", "uncompressed", "lz4", "lz4_raw")
_ARROW_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}  # Arrow's lz4 is the raw one in Parquet files
_DEFAULT_LEVELS = {"zstd": 2}  # files about as small as at level 3, Iceberg's default, for less CPU (bench.compression)
_WRITER_OPTIONS = signature(pq.ParquetWriter.__init__).parameters
_LIMITS_ROWS_OF_PAGES = "max_rows_per_page" in _WRITER_OPTIONS  # Arrow 23 and later
_WRITES_BLOOM_FILTERS = "bloom_filter_options" in _WRITER_OPTIONS  # Arrow 26 and later
_MIN_FILTER_BYTES = 32
_SAMPLE_ROWS, _SAMPLE_BYTES = 8192, 8 << 20
_MAX_SHARE = 0.6  # of the plain size: a dictionary that saves less costs more than it saves
_ALL_DISTINCT = 0.995  # of the sample; beyond it, the number of distinct values cannot be estimated


def parquet_options(properties: TableProperties) -> dict[str, Any]:
    """Return the options of a Parquet writer."""
    codec = properties.parquet_codec
    page_rows = {"max_rows_per_page": properties.parquet_page_rows} if _LIMITS_ROWS_OF_PAGES else {}
    return page_rows | {
        "compression": _ARROW_CODECS.get(codec, codec),
        "compression_level": _compression_level(properties),
        "data_page_size": properties.parquet_page_size,
        "dictionary_pagesize_limit": properties.parquet_dict_size,
        "write_page_index": True,
        "store_schema": False,  # the Iceberg schema is the only one
        "store_decimal_as_integer": True,
    }


def check_compression(properties: TableProperties) -> None:
    """Reject a codec or level that is not available."""
    codec, level = properties.parquet_codec, _compression_level(properties)
    if codec == "uncompressed":
        return
    try:
        pa.Codec(_ARROW_CODECS.get(codec, codec), compression_level=level)
    except (ValueError, OSError, NotImplementedError) as e:
        raise UserError(
            f"Cannot compress data files with {codec} at level {level}: {e}. "
            "Change write.parquet.compression-codec or write.parquet.compression-level."
        ) from e


def _compression_level(properties: TableProperties) -> int | None:
    if properties.parquet_codec in _CODECS_WITHOUT_LEVEL:
        return None
    level = properties.parquet_level
    return _DEFAULT_LEVELS.get(properties.parquet_codec) if level is None else level


def dictionary_columns(rows: pa.Table, leaves: Sequence[LeafColumn], dictionary_limit: int) -> list[str]:
    """Return the Parquet paths of the columns that get a dictionary of at most `dictionary_limit` bytes."""
    count = min(_SAMPLE_ROWS, _SAMPLE_BYTES * rows.num_rows // max(rows.nbytes, 1) + 1)
    sample = rows.take(pa.array(np.arange(0, rows.num_rows, max(rows.num_rows // count, 1))))
    scale = rows.num_rows / max(sample.num_rows, 1)
    return [
        leaf.parquet_path
        for leaf in leaves
        if not isinstance(leaf.kind, BooleanType) and _saves_space(sample, leaf, scale, dictionary_limit)
    ]


def bloom_filter_options(rows: pa.Table, leaves: Sequence[LeafColumn], properties: TableProperties) -> dict[str, Any]:
    """Return the options of a Parquet writer for the bloom filters of columns that the table wants."""
    chosen = (
        (leaf, properties.bloom_filter_of(leaf.name))
        for leaf in leaves
        if not isinstance(leaf.kind, BooleanType | VariantType)
    )
    filters = {
        leaf.parquet_path: {
            "ndv": _filtered_values(rows, leaf, settings, properties.bloom_filter_bytes),
            "fpp": settings.false_positives,
        }
        for leaf, settings in chosen
        if settings is not None
    }
    return {"bloom_filter_options": filters} if filters and _WRITES_BLOOM_FILTERS else {}


def _filtered_values(rows: pa.Table, leaf: LeafColumn, settings: BloomFilterSettings, max_bytes: int) -> int:
    """Return for how many values a filter is made: as many as the first row group has, if they fit into its size."""
    count = settings.distinct_values
    if count is None:
        try:
            values = leaf_values(rows, leaf.path)
            values = values.cast(values.type.storage_type) if isinstance(values.type, pa.BaseExtensionType) else values
            count = pc.count_distinct(values).as_py()
        except pa.ArrowNotImplementedError:  # UUIDs inside lists and maps
            count = rows.num_rows
    # A filter with eight bits for a value lets 1 - (1 - e^(-8 n / bits))^8 through; Arrow rounds up to a power of two.
    bits = 8 << int(log2(max(max_bytes, _MIN_FILTER_BYTES)))
    capacity = -bits / 8 * log(1 - settings.false_positives ** (1 / 8))
    return max(min(count, int(capacity)), 1)


def _saves_space(sample: pa.Table, leaf: LeafColumn, scale: float, dictionary_limit: int) -> bool:
    """Return whether a dictionary makes a column chunk smaller that has `scale` times the values of a sample."""
    try:
        values = leaf_values(sample, leaf.path).drop_null()
    except pa.ArrowNotImplementedError:  # UUIDs inside lists and maps
        return dictionary_limit > 0
    if not len(values):
        return True  # only nulls: nothing is stored either way
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.cast(values.type.storage_type)
    distinct = _estimate_distinct(len(values), pc.count_distinct(values).as_py())
    value_bytes = (
        8 if isinstance(leaf.kind, DecimalType) else values.nbytes / len(values)
    )  # most decimals are long integers
    dictionary_bytes = min(distinct, len(values) * scale) * value_bytes
    index_bytes = ceil(log2(max(distinct, 2))) / 8 if distinct < inf else value_bytes
    share = (dictionary_bytes + len(values) * scale * index_bytes) / (len(values) * scale * value_bytes)
    return dictionary_bytes <= dictionary_limit and share <= _MAX_SHARE


def _estimate_distinct(sampled: int, seen: int) -> float:
    """Estimate how many distinct values there are if a random sample of some values has `seen` distinct ones."""
    if seen > sampled * _ALL_DISTINCT:
        return inf
    low, high = float(seen), float(sampled) ** 2  # the expected number seen grows with the number there is
    while high - low > 0.01 * low:
        middle = (low + high) / 2
        if middle * (1 - exp(-sampled / middle)) < seen:
            low = middle
        else:
            high = middle
    return high
