"""Find the rows that a statement changes with Arrow, in this process.

Only the columns of the condition are read, and only row groups that may hold a match.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from neve.plan.scan import ScanPlan
from neve.run.change_tally import CLAUSE_COLUMN, FILE_COLUMN, POSITION_COLUMN, Effects, Tally, TallyBuilder
from neve.run.read.metadata_columns import ORDINAL, POSITION
from neve.run.read.scan import read_plan
from neve.run.read.tasks import with_ordinals
from neve.run.table_facts import TableFacts

CHANGED_ROW = tuple(
    column.model_copy(update={"name": name}) for column, name in ((ORDINAL, FILE_COLUMN), (POSITION, POSITION_COLUMN))
)


def tally_matching_rows(plan: ScanPlan, facts: TableFacts, where: BooleanExpression, effects: Effects) -> Tally:
    """Tally the rows of a plan's files that match a condition; the only clause applies to all of them."""
    positions = replace(plan, files=with_ordinals(plan.files), schema=Schema(schema_id=plan.schema.schema_id))
    tally = TallyBuilder(effects)
    for batch in read_plan(replace(positions, metadata_columns=()), facts, where, extra=CHANGED_ROW):
        tally.add(batch.append_column(CLAUSE_COLUMN, pa.array(np.zeros(batch.num_rows, np.int32))))
    return Tally.from_tables([tally.table()], len(effects))
