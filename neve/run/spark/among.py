"""Rows of a read cut down, right where they are read, to those whose column has one of some keys.

The keys go to every task. What happens to rows afterwards, finding their files and joining them, then happens to the
few that remain.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

__all__ = ["Among"]

_KEY = "__among"


@dataclass(frozen=True)
class Among:
    """The keys a column must have one of; null is none of them."""

    field_id: int
    keys: DataFrame  # of one column

    def applied(self, rows: DataFrame, column: str) -> DataFrame:
        """The rows that have one of the keys."""
        return rows.join(F.broadcast(self.keys.toDF(_KEY)), F.col(column) == F.col(_KEY), "left_semi")
