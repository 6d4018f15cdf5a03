"""SQL over a lake: text is parsed into a statement, and the statement is run.

This package parses the frame of a statement. Its expressions, conditions and queries are passed to the builders and to
Spark as they were written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from neve.errors import UserError
from neve.ops.context import LakeContext
from neve.sql.parse import parse
from neve.sql.query import Describe, Query, ShowNamespaces, ShowTables
from neve.sql.reader import point_at_source
from neve.sql.statement import StatementOptions

__all__ = ["parse", "run"]


def run(lake: LakeContext, text: str, *, restricted: bool = False, **options: Any) -> Any:
    """Run one statement: a query returns a DataFrame, a change of rows its result, a change of a table the table."""
    statement = parse(text)
    if isinstance(statement, Query):
        statement = replace(statement, is_restricted=restricted)
    elif restricted and not isinstance(statement, ShowTables | ShowNamespaces | Describe):
        raise UserError("Cannot run this statement with restricted=True: only queries, SHOW and DESCRIBE are allowed.")
    with point_at_source(text):
        return statement.run(lake, StatementOptions.of(options))
