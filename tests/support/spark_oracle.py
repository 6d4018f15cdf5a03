"""What the rows must be afterwards, as plain Spark says: SQL over Parquet tables of the rows before.

Nothing of the package is asked. The answer of an oracle and the rows of a table are compared as multisets of exact
values: minus zero is not zero, NaN is NaN, a decimal has its scale.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isnan
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tests.support.text_rows import Rows


@dataclass
class Oracle:
    """Answers questions about rows on Spark, from Parquet files in a folder."""

    spark: SparkSession
    folder: Path
    _frames: dict[int, tuple[Rows, DataFrame]] = field(default_factory=dict)  # the rows are kept: their id stays theirs

    def answer(self, sql: str, **tables: Rows) -> pa.Table:
        """The rows a query gives over the tables named."""
        for name, rows in tables.items():
            self.show(name, rows)
        return self.spark.sql(sql).toArrow()

    def show(self, name: str, rows: Rows) -> None:
        """Make rows known to Spark as a view."""
        if id(rows) not in self._frames:
            path = self.folder / f"{uuid4()}.parquet"
            pq.write_table(rows.arrow(), path, write_statistics=False)  # Spark trusts them about NaN, wrongly
            self._frames[id(rows)] = rows, self.spark.read.schema(rows.spark_ddl).parquet(str(path))
        self._frames[id(rows)][1].createOrReplaceTempView(name)


def multiset(table: pa.Table, names: tuple[str, ...] | None = None) -> Counter[str]:
    """The rows of a table as text that tells all values apart, columns in the order of their names."""
    order = sorted(names or table.column_names)
    columns = [table.column(name).to_pylist() for name in order]
    return Counter(repr([plain(value) for value in row]) for row in zip(*columns, strict=True))


def plain(value: Any) -> Any:
    """A value in the one form all readers agree on."""
    match value:
        case dict():
            return {k: plain(v) for k, v in value.items()}
        case [*pairs] if pairs and all(isinstance(p, tuple) for p in pairs):  # a map
            return sorted(([plain(k), plain(v)] for k, v in pairs), key=repr)
        case list():
            return [plain(v) for v in value]
    return _plain_primitive(value)


def _plain_primitive(value: Any) -> Any:
    match value:
        case float() if isnan(value):
            return "NaN"
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat()
        case UUID():
            return str(value)
    return value


def kinds(table: pa.Table) -> dict[str, str]:
    """The type of each column, without what only Arrow tells apart."""
    return {f.name: kind_of(f.type) for f in table.schema}


def kind_of(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{f.name}: {kind_of(f.type)}' for f in kind)}>"
    if pa.types.is_list(kind):
        return f"list<{kind_of(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{kind_of(kind.key_type)}, {kind_of(kind.item_type)}>"
    return str(kind)


def difference(found: pa.Table, expected: pa.Table) -> str:
    """How two sets of rows differ in words; empty when they do not."""
    if sorted(found.column_names) != sorted(expected.column_names):
        return f"columns {found.column_names}, expected {expected.column_names}"
    have, want = multiset(found), multiset(expected)
    lines = [f"  {n} x missing {row}" for row, n in sorted((want - have).items())]
    lines += [f"  {n} x unexpected {row}" for row, n in sorted((have - want).items())]
    return f"columns {sorted(expected.column_names)}\n" + "\n".join(lines) if lines else ""
