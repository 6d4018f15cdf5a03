"""Find the rows that a statement changes with Arrow, in this process.

Only the columns that the statement names are read, and only row groups that may hold a match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from neve.plan.scan import ScanPlan
from neve.run.change_tally import (
    CHANGE_COLUMNS,
    CLAUSE_COLUMN,
    FILE_COLUMN,
    POSITION_COLUMN,
    Effects,
    Tally,
    TallyBuilder,
)
from neve.run.read.metadata_columns import ORDINAL, POSITION
from neve.run.read.scan import read_plan
from neve.run.read.tasks import with_ordinals
from neve.run.read.types import ArrowFlavor
from neve.run.table_facts import TableFacts

_CHANGED_ROW = tuple(
    column.model_copy(update={"name": name}) for column, name in ((ORDINAL, FILE_COLUMN), (POSITION, POSITION_COLUMN))
)
_NO_ROWS = pa.schema([(name, pa.int64()) for name in CHANGE_COLUMNS]).empty_table()
MAX_FOUND_BYTES = 64 << 20  # of matching rows that one process holds


def tally_matching_rows(plan: ScanPlan, facts: TableFacts, where: BooleanExpression, effects: Effects) -> Tally:
    """Tally the rows of a plan's files that match a condition; the only clause applies to all of them."""
    return tally_rows(_matching_rows(plan, facts, where, ()), effects)


def read_matching_rows(
    plan: ScanPlan,
    facts: TableFacts,
    where: BooleanExpression,
    fields: Sequence[NestedField],
    keys: Mapping[str, pa.Array] | None = None,
) -> pa.Table | None:
    """Return the matching rows with file, position and some columns, as Spark holds them; None if they are many.

    With `keys`, rows match if each of these columns also has one of the values, which are not null.
    """
    batches, size = [], 0
    for batch in _matching_rows(plan, facts, where, fields):
        for name, values in (keys or {}).items():
            batch = batch.filter(_is_key(batch.column(name), values))  # noqa: PLW2901
        batches += [batch] if batch.num_rows else []
        size += batch.nbytes
        if size > MAX_FOUND_BYTES:
            return None
    return pa.Table.from_batches(batches) if batches else _NO_ROWS


def pair_rows(rows: pa.Table, others: pa.Table, keys: Mapping[str, str]) -> tuple[pa.Array, pa.Array] | None:
    """Return the numbers of the rows of two tables that have equal keys, pair by pair; None if the types differ."""
    sides: list[dict[str, pa.Array]] = [{"row": np.arange(len(rows))}, {"other": np.arange(len(others))}]
    for n, (name, other_name) in enumerate(keys.items()):
        column, other = rows[name], others[other_name]
        if pa.types.is_integer(column.type) and pa.types.is_integer(other.type):
            column, other = column.cast(pa.int64()), other.cast(pa.int64())
        if column.type != other.type:
            return None
        sides[0][f"key{n}"], sides[1][f"key{n}"] = column, other
    ours, theirs = map(pa.table, sides)
    pairs = ours.join(theirs, [f"key{n}" for n in range(len(keys))], join_type="inner")
    return pairs["row"], pairs["other"]


def tally_rows(batches: Iterable[pa.RecordBatch], effects: Effects) -> Tally:
    """Tally changed rows, which have `CHANGE_COLUMNS`."""
    tally = TallyBuilder(effects)
    for batch in batches:
        tally.add(batch)
    return Tally.from_tables([tally.table()], len(effects))


def _is_key(column: pa.Array, values: pa.Array) -> pa.Array:
    if pa.types.is_integer(values.type):  # an int and a long compare as numbers
        column, values = column.cast(pa.int64()), values.cast(pa.int64())
    return pc.is_in(column, value_set=values.cast(column.type))


def _matching_rows(
    plan: ScanPlan, facts: TableFacts, where: BooleanExpression, fields: Sequence[NestedField]
) -> Iterator[pa.RecordBatch]:
    schema = Schema(*fields, schema_id=plan.schema.schema_id)
    narrow = replace(plan, files=with_ordinals(plan.files), schema=schema, metadata_columns=())
    for batch in read_plan(narrow, facts, where, ArrowFlavor.SPARK, extra=_CHANGED_ROW):
        yield batch.append_column(CLAUSE_COLUMN, pa.array(np.zeros(batch.num_rows, np.int32)))
