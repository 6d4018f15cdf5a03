"""SQL over a lake: text is parsed into a statement, and the statement is run.

This package parses the frame of a statement. Its expressions, conditions and queries are passed to the builders and to
Spark as they were written.
"""

from __future__ import annotations

from typing import Any

from neve.ops.context import LakeContext
from neve.sql.parse import parse
from neve.sql.reader import point_at_source
from neve.sql.statement import StatementOptions

__all__ = ["parse", "run"]


def run(lake: LakeContext, text: str, **options: Any) -> Any:
    """Run one statement: a query returns a DataFrame, a change of rows its result, a change of a table the table."""
    statement = parse(text)
    with point_at_source(text):
        return statement.run(lake, StatementOptions.of(options))
