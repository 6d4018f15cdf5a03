"""Frames that are computed once, though they are used several times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from neve.run.spark.session import options_around

__all__ = ["kept"]

_ADAPTIVE = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """A frame that stays on the executors, in memory and on their disks, until the block ends.

    One the caller keeps already is left alone.
    """
    if frame.is_cached:
        yield frame
        return
    # Without it Spark keeps hundreds of tiny partitions, and each costs a Python worker more than its rows do.
    with options_around(frame.sparkSession, {_ADAPTIVE: "true"}):
        frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()
