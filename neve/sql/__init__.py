"""SQL over a lake: text is parsed into a statement, and the statement is run.

This package parses the frame of a statement. Its expressions, conditions and queries are passed to the builders and to
Spark as they were written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from neve.errors import UserError
from neve.ops.context import LakeContext
from neve.run.spark.input_rows import create_dataframe
from neve.run.spark.session import spark_itself, substitute_variables
from neve.sql.parameters import Parameters, bind_parameters
from neve.sql.parse import parse
from neve.sql.query import Query
from neve.sql.reader import point_at_source
from neve.sql.statement import MetadataQuery, StatementOptions

__all__ = ["parse", "run"]


def run(
    lake: LakeContext, text: str, *, args: Parameters | None = None, restricted: bool = False, **options: Any
) -> Any:
    """Run one statement: a query or SHOW returns a DataFrame, a change of rows its result, one of a table the table."""
    if "${" in text:
        if restricted:
            raise UserError("Cannot use ${…} with restricted=True: it would be replaced by a setting of the session.")
        text = substitute_variables(lake.spark(), text)
    text = bind_parameters(text, args)
    statement = parse(text)
    if isinstance(statement, Query):
        statement = replace(statement, is_restricted=restricted)
    elif restricted and not isinstance(statement, MetadataQuery):
        raise UserError("Cannot run this statement with restricted=True: only queries, SHOW and DESCRIBE are allowed.")
    with spark_itself(), point_at_source(text):
        result = statement.run(lake, StatementOptions.of(options))
        return create_dataframe(lake.spark(), result) if isinstance(statement, MetadataQuery) else result
