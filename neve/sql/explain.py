"""EXPLAIN: what a statement would read and change; nothing is run.

For a query it shows what is read and pruned of each table of the lake, and then Spark's plan; for other statements what
`explain()` of the same builder says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from neve.errors import UserError
from neve.ops.context import LakeContext
from neve.ops.destination import destination_of
from neve.run.spark.input_rows import create_dataframe
from neve.sql.insert import Insert
from neve.sql.query import Query, register_query, translate_query_errors
from neve.sql.statement import Statement, StatementOptions, table_and_branch

EXPLAIN_MODES = ("EXTENDED", "FORMATTED", "CODEGEN", "COST")


@dataclass(frozen=True)
class Explain:
    """`EXPLAIN [EXTENDED | FORMATTED | CODEGEN | COST] statement`."""

    statement: Statement
    mode: str = ""  # of Spark's plan

    def run(self, lake: LakeContext, options: StatementOptions) -> DataFrame:
        """Return the plan as text, in one row with the column `plan`."""
        text = "\n\n".join(self._parts(lake, options))
        return create_dataframe(lake.spark(), pa.table({"plan": [text]}))

    def _parts(self, lake: LakeContext, options: StatementOptions) -> Iterator[str]:
        statement = self.statement
        if isinstance(statement, Query):
            options.require_only("EXPLAIN of a query")
            yield from self._explain_query(lake, statement.text)
        elif isinstance(statement, Insert):
            yield f"{_effect_of_insert(lake, statement, options)}, the rows of a query:"
            table, _ = table_and_branch(lake, statement.table)
            yield from self._explain_query(lake, statement.query_for(table, statement.partition_values(lake, table)))
        else:
            builder = statement.builder(lake, options) if hasattr(statement, "builder") else None
            if builder is None:
                raise UserError(
                    "EXPLAIN takes a query, INSERT, UPDATE, DELETE, MERGE, or CALL of a procedure that rewrites or "
                    "deletes files. This statement has no plan."
                )
            yield builder.explain()

    def _explain_query(self, lake: LakeContext, text: str) -> Iterator[str]:
        with register_query(lake, text) as views:
            yield from (read.explain() for read in views.tables)
            with translate_query_errors(lake):
                lake.spark().sql(views.single_text)  # Spark's EXPLAIN returns an error as a plan
                rows = lake.spark().sql(f"EXPLAIN {self.mode} {views.single_text}").collect()
            yield "\n".join(row[0] for row in rows)


def _effect_of_insert(lake: LakeContext, statement: Insert, options: StatementOptions) -> str:
    table, branch = table_and_branch(lake, statement.table)
    target = f"{table.name}, {destination_of(table.context, options.on_branch(branch).branch or 'main', None)}"
    if statement.replace_where is not None:
        return f"Replace the rows of {target} where {statement.replace_where} by"
    if not statement.overwrites_partitions:
        return f"Append to {target}"
    constants = statement.partition_values(lake, table)
    if statement.replaces_dynamically(lake, constants):
        return f"Replace the partitions of {target} that get new rows by"
    replaced = " AND ".join(f"{column} = {value}" for column, value in statement.partition.items() if value is not None)
    return f"Replace the rows of {target} where {replaced or 'true'} by"
