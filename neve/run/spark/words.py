"""Deleted positions as a small table that Spark joins with the rows it reads.

A row of the table is a stretch of 65,536 rows of one file: 1,024 longs with a bit for every deleted row, or none at all
when nothing in it is deleted. It is broadcast; a query pays for one lookup per row and one bit test.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from neve.io.deletion_vectors import WORDS, PositionSet
from neve.run.spark.keys import CHUNK_BITS, FileKeys, stop_without_match

__all__ = ["CHUNK_BYTES", "live_rows", "words_table"]

CHUNK_BYTES = 8 * WORDS


def live_rows(
    spark: SparkSession,
    rows: DataFrame,
    key: str,
    position: str,
    keys: FileKeys,
    deleted: Sequence[PositionSet],
    counts: np.ndarray,
) -> DataFrame:
    """The rows that are not deleted, of a DataFrame with the key of each row's file and its position there."""
    table = words_table(keys, deleted, counts)
    names = [f"__k{i}" for i in range(table.num_columns - 1)]
    words = spark.createDataFrame(table.rename_columns([*names, "__words"]))
    here = [c.alias(n) for c, n in zip(keys.chunk_columns(F.col(key), F.col(position)), ("__h0", "__h1"), strict=False)]
    matched = [F.col(f"__h{i}") == F.col(n) for i, n in enumerate(names)]
    joined = rows.select("*", *here).join(F.broadcast(words), matched, "left")
    live = stop_without_match(F.col("__words"), _is_live(F.col("__words"), F.col(position)), "deletion vector")
    return joined.where(live).select(*rows.columns)


def words_table(keys: FileKeys, deleted: Sequence[PositionSet], counts: np.ndarray) -> pa.Table:
    """The keys of every chunk of every file, and its words."""
    files, chunks, words, sizes = [], [], [], []
    for file, (positions, count) in enumerate(zip(deleted, counts, strict=True)):
        found, table = positions.chunks()
        every = np.union1d(np.arange((count - 1 >> CHUNK_BITS) + 1), found)
        files.append(np.full(len(every), file))
        chunks.append(every)
        words.append(table.reshape(-1))
        sizes.append(np.where(np.isin(every, found), WORDS, 0))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(words)))
    columns = [*keys.chunk_keys(np.concatenate(files), np.concatenate(chunks)), lists]
    return pa.table(columns, names=[str(i) for i in range(len(columns))])


def _is_live(words: Column, position: Column) -> Column:
    word = F.shiftright(position, 6).bitwiseAND(WORDS - 1).cast("int")
    bit = position.bitwiseAND(63).cast("int")
    return F.when(F.size(words) == 0, F.lit(True)).otherwise(F.getbit(words[word], bit) == 0)
