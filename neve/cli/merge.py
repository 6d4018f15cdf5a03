"""`neve merge`: bring in the rows of a source.

The clauses are those of SQL, in the order they are tried: `--when "MATCHED AND s.op = 'd' THEN DELETE"`. The table is
called `t` and the source `s`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.late import late
from neve.cli.options import Branch, Modes, Properties, TableName
from neve.cli.rows import Isolation, carry_out_change
from neve.cli.work import Work, writing_verb
from neve.errors import UserError

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["merge"]

_parse = late("neve.sql", "parse")
_ALIASES = ("t", "s")
_UPSERT = ("MATCHED THEN UPDATE SET *", "NOT MATCHED THEN INSERT *")
_FORMATS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".orc": "orc", ".csv": "csv"}


@writing_verb
def merge(
    work: Work,
    table: TableName,
    source: Annotated[str, typer.Option("--using", help="A table, a query, or a file: .parquet, .orc, .json or .csv.")],
    on: Annotated[str, typer.Option("--on", help="How rows are matched, as in: t.id = s.id.")],
    when: Annotated[
        list[str] | None, typer.Option("--when", help="A clause in SQL, without WHEN; may be repeated.")
    ] = None,
    upsert: Annotated[
        bool, typer.Option("--upsert", help=f"The clauses: {'; '.join(_UPSERT)}.", show_default=False)
    ] = False,
    evolve: Annotated[bool, typer.Option("--evolve", help="Add columns of the source that the table lacks.")] = False,
    mode: Modes = None,
    isolation: Isolation = None,
    branch: Branch = "main",
    properties: Properties = None,
) -> None:
    """Merge rows: `neve merge db.events --using changes.parquet --on "t.id = s.id" --upsert`."""
    clauses = [*(when or ()), *(_UPSERT if upsert else ())]
    if not clauses:
        raise UserError(f'MERGE without clauses. Say --upsert, or clauses such as --when "{_UPSERT[0]}".')
    text = " ".join(f"WHEN {clause}" for clause in clauses)
    read = _parse(f"MERGE INTO {_ALIASES[0]} USING {_ALIASES[1]} ON true {text}")
    found = work.table_to_change(table)
    statement = found.merge(_source(work.lake(), source), on=on, aliases=_ALIASES)
    for clause in read.clauses:
        statement = clause.added_to(statement)
    statement = statement.with_schema_evolution() if evolve else statement
    question = f"Merge into {table}?"
    carry_out_change(work, f"Merging into {table}", statement, question, mode, isolation, branch, properties)


def _source(lake: Lake, text: str) -> Any:
    """The rows of a file; a table or a query goes on as it is."""
    kind = _FORMATS.get(Path(text).suffix.lower())
    if kind is None or not Path(text).exists():
        return text
    reader = lake.spark().read.format(kind)
    reader = reader.option("header", True).option("inferSchema", True) if kind == "csv" else reader
    return reader.load(str(Path(text).absolute()))
