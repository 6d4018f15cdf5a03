"""CALL: maintenance operations under the names of Iceberg's procedures.

Arguments are given by name, or by position in the order of the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, tzinfo
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, BinaryType, DateType, MapType, StringType, StructType, TimestampType
from sqlglot import exp

from neve.errors import UserError
from neve.ops.context import LakeContext
from neve.predicate.constants import parse_constant, parse_time_zone
from neve.predicate.sql_text import SqlToken, parse_sql, syntax_error
from neve.run.spark.session import quiet_errors
from neve.sql.parameters import sql_literal
from neve.sql.procedures import PROCEDURES
from neve.sql.reader import Reader
from neve.sql.statement import StatementOptions, identifier, table_and_branch


@dataclass(frozen=True)
class Call:
    """`CALL system.rewrite_data_files(table => 'db.t', where => 'id > 5')`."""

    procedure: str
    arguments: Mapping[str, exp.Expression]
    catalog: tuple[str, SqlToken] | None = None  # the text of the statement, and the name before `system`

    def run(self, lake: LakeContext, options: StatementOptions) -> Any:
        """Run the procedure; returns the result of the verb, or the table."""
        result = self._invoke(lake, options)
        return result.execute() if PROCEDURES[self.procedure].makes_builder else result

    def builder(self, lake: LakeContext, options: StatementOptions) -> Any:
        """Return the verb of the API for this procedure, not yet executed; None if there is none."""
        return self._invoke(lake, options) if PROCEDURES[self.procedure].makes_builder else None

    def _invoke(self, lake: LakeContext, options: StatementOptions) -> Any:
        options.require_only("CALL")
        if self.catalog is not None:
            (text, word), name = self.catalog, lake.name
            if word.name != name:  # its tables are not in this lake
                problem = f"unknown catalog {word.name!r}: the catalog of this lake is {name!r}, and may be left out"
                raise syntax_error("SQL", text, word.start, word.end, problem, verb="run")
        procedure, zone = PROCEDURES[self.procedure], parse_time_zone(lake.time_zone())
        values = {
            name: procedure.all_arguments[name].value(name, _as_constant(lake, node, zone), zone)
            for name, node in self.arguments.items()
        }
        values = {name: value for name, value in values.items() if value is not None}
        for name in ("table", *procedure.required):
            if name not in values:
                raise UserError(f"CALL {self.procedure} needs the argument {name!r}.")
        if procedure.adds_table:
            return procedure.run(lake, values)
        # A name is of the procedure's own catalog, whichever is the current one.
        table, branch = table_and_branch(replace(lake, lookup=None), identifier(lake, values["table"]))
        if branch is not None:  # of a name such as db.t.branch_audit
            if "branch" not in procedure.arguments:
                raise UserError(f"CALL {self.procedure} works on the whole table, not on branch {branch!r}.")
            if values.setdefault("branch", branch) != branch:
                argument = values["branch"]
                raise UserError(f"The table name gives branch {branch!r}, the argument {argument!r}. Give only one.")
        return procedure.run(table, values)


def _as_constant(lake: LakeContext, node: exp.Expression, zone: tzinfo) -> exp.Expression:
    """Return the value of an expression such as `current_timestamp() - INTERVAL 7 DAYS`, which Spark computes."""
    kinds = exp.Binary | exp.Func | exp.Paren | exp.Unary
    if not isinstance(node, kinds) or isinstance(node, exp.Array | exp.VarMap) or parse_constant(node, zone):
        return node
    text = node.sql("spark")
    try:
        with quiet_errors():
            frame = lake.spark().sql(f"SELECT {text} AS value")
            rows = frame.collect()
    except PySparkException:  # no constant: the error about the argument shows it
        return node
    if len(rows) != 1 or rows[0].value is None:
        raise UserError(f"Cannot use {text} as an argument: it has no value.")
    value = rows[0].value
    match frame.schema[0].dataType:
        case StringType():
            return exp.Literal.string(value)
        case DateType():
            value = datetime.combine(value, time())  # the midnight with which the day begins
        case TimestampType():
            value = value.astimezone(UTC)  # PySpark returns it in the time zone of the process
        case ArrayType() | MapType() | StructType() | BinaryType():
            return node
    [literal] = parse_sql(sql_literal(value, "the argument"))
    return literal


def parse_call(reader: Reader) -> Call:
    """Parse a CALL."""
    reader.expect("CALL")
    *qualifiers, name = reader.dotted_name_words("the name of a procedure")
    if not qualifiers or qualifiers[-1].name.lower() != "system":
        raise reader.syntax_error(f"call the procedure as system.{name.name}", name)
    if len(qualifiers) > 2:
        raise reader.syntax_error(f"only the name of a catalog may come before system.{name.name}", qualifiers[1])
    procedure = name.name.lower()
    if procedure not in PROCEDURES:
        raise reader.syntax_error(f"unknown procedure {name.name!r}: expected one of {', '.join(PROCEDURES)}", name)
    catalog = (reader.text, qualifiers[0]) if len(qualifiers) > 1 else None
    return Call(procedure, _parse_arguments(reader, procedure), catalog)


def _parse_arguments(reader: Reader, procedure: str) -> dict[str, exp.Expression]:
    """Parse arguments in parentheses: first those by position, then those by name."""
    parameters = tuple(PROCEDURES[procedure].all_arguments)
    takes = f"{procedure} takes {', '.join(parameters)}"
    arguments: dict[str, exp.Expression] = {}
    reader.expect("(")
    while not reader.sees(")"):
        if arguments:
            reader.expect(",")
        start = reader.word
        if reader.position + 1 < len(reader.words) and reader.words[reader.position + 1].matches("=>"):
            word = reader.name_word("the name of an argument")
            name = word.name.lower()
            if name not in parameters:
                raise reader.syntax_error(f"unknown argument {word.name!r}: {takes}", word)
            reader.expect("=>")
        elif tuple(arguments) != parameters[: len(arguments)]:
            raise reader.syntax_error("an argument after a named argument needs a name too")
        elif len(arguments) == len(parameters):
            raise reader.syntax_error(f"too many arguments: {takes}")
        else:
            name = parameters[len(arguments)]
        if name in arguments:
            raise reader.syntax_error(f"argument {name!r} is given twice", start)
        roots = parse_sql(reader.text_until(",", ")", what="a value"))
        if len(roots) != 1:
            raise reader.syntax_error("expected one value", start)
        arguments[name] = roots[0]
    reader.expect(")")
    return arguments
