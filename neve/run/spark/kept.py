"""Frames that are computed once, though they are used several times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from neve.run.spark.options import options_around

__all__ = ["is_kept", "kept"]

_ADAPTIVE = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


def is_kept(frame: DataFrame) -> bool:
    """Whether Spark holds a frame such that none of it is computed again for want of memory.

    What the frame itself says of being cached stays true when the cache was cleared.
    """
    return bool(frame.storageLevel.useDisk)


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """A frame that stays on the executors, in memory and on their disks, until the block ends.

    One the caller keeps already is left alone.
    """
    if frame.storageLevel != StorageLevel.NONE:
        yield frame
        return
    # Without it Spark keeps hundreds of tiny partitions, and each costs a Python worker more than its rows do.
    with options_around(frame.sparkSession, {_ADAPTIVE: "true"}):
        frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()
