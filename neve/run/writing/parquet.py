"""What the properties of a table say about Parquet, in the words of pyarrow."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from neve.errors import UserError
from neve.model.properties import TableProperties

__all__ = ["check_compression", "parquet_options"]

_WITHOUT_LEVELS = ("snappy", "uncompressed", "lz4", "lz4_raw")
_IN_ARROW = {"uncompressed": "none", "lz4_raw": "lz4"}  # which is the raw one in Parquet
_LEVELS = {"zstd": 3}  # what other Iceberg writers use; Arrow's own default is 1
_LIMITS_ROWS_OF_PAGES = "max_rows_per_page" in signature(pq.ParquetWriter.__init__).parameters  # Arrow 23 and later


def parquet_options(properties: TableProperties) -> dict[str, Any]:
    """The options of a Parquet writer."""
    codec = properties.parquet_codec
    page_rows = {"max_rows_per_page": properties.parquet_page_rows} if _LIMITS_ROWS_OF_PAGES else {}
    return page_rows | {
        "compression": _IN_ARROW.get(codec, codec),
        "compression_level": _level(properties),
        "data_page_size": properties.parquet_page_size,
        "dictionary_pagesize_limit": properties.parquet_dict_size,
        "write_page_index": True,
        "store_schema": False,  # the Iceberg schema is the only one
        "store_decimal_as_integer": True,
    }


def check_compression(properties: TableProperties) -> None:
    """Refuse a codec or level that does not exist here."""
    codec, level = properties.parquet_codec, _level(properties)
    if codec == "uncompressed":
        return
    try:
        pa.Codec(_IN_ARROW.get(codec, codec), compression_level=level)
    except (ValueError, OSError, NotImplementedError) as e:
        raise UserError(
            f"Cannot compress data files with {codec} at level {level}: {e}. "
            "Change write.parquet.compression-codec or write.parquet.compression-level."
        ) from e


def _level(properties: TableProperties) -> int | None:
    if properties.parquet_codec in _WITHOUT_LEVELS:
        return None
    asked = properties.parquet_level
    return _LEVELS.get(properties.parquet_codec) if asked is None else asked
