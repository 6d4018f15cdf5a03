"""Find the rows that a statement changes with Arrow, in this process.

Only the columns of the condition are read, and only row groups that may hold a match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
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
    plan: ScanPlan, facts: TableFacts, where: BooleanExpression, fields: Sequence[NestedField]
) -> pa.Table | None:
    """Return the matching rows with file, position and some columns, as Spark holds them; None if they are many."""
    batches, size = [], 0
    for batch in _matching_rows(plan, facts, where, fields):
        batches.append(batch)
        size += batch.nbytes
        if size > MAX_FOUND_BYTES:
            return None
    return pa.Table.from_batches(batches) if batches else _NO_ROWS


def tally_rows(batches: Iterable[pa.RecordBatch], effects: Effects) -> Tally:
    """Tally changed rows, which have `CHANGE_COLUMNS`."""
    tally = TallyBuilder(effects)
    for batch in batches:
        tally.add(batch)
    return Tally.from_tables([tally.table()], len(effects))


def _matching_rows(
    plan: ScanPlan, facts: TableFacts, where: BooleanExpression, fields: Sequence[NestedField]
) -> Iterator[pa.RecordBatch]:
    schema = Schema(*fields, schema_id=plan.schema.schema_id)
    narrow = replace(plan, files=with_ordinals(plan.files), schema=schema, metadata_columns=())
    for batch in read_plan(narrow, facts, where, ArrowFlavor.SPARK, extra=_CHANGED_ROW):
        yield batch.append_column(CLAUSE_COLUMN, pa.array(np.zeros(batch.num_rows, np.int32)))
