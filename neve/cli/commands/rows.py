"""The commands that change rows: `delete`, `update` and `merge`.

The clauses of a merge are those of SQL, in the order in which they are tried: `--when "MATCHED AND s.op = 'd' THEN
DELETE"`. In them, the table is called `t` and the source `s`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neve.cli.command import Command, writing_verb
from neve.cli.execute import CommandPlan, run_command, with_options
from neve.cli.options import Branch, Mode, SnapshotProperties, TableName, Where, one_of, parse_pairs
from neve.cli.process import lazy_import
from neve.errors import UserError

Isolation = Annotated[
    str | None,
    typer.Option(
        help="serializable or snapshot, instead of the table's isolation level.",
        autocompletion=one_of("serializable", "snapshot"),
    ),
]
EveryRow = Annotated[bool, typer.Option("--all", help="Change every row, without --where.")]


def run_row_change(
    command: Command,
    activity: str,
    statement: Any,
    question: str,
    mode: str | None,
    isolation: str | None,
    branch: str,
    properties: list[str] | None,
) -> None:
    """Run a statement that changes rows, with its shared options."""
    statement = with_options(
        statement.branch(branch),
        mode=mode,
        isolation=isolation,
        snapshot_property=parse_pairs(properties, "--snapshot-property"),
    )
    plan = CommandPlan.of(
        activity,
        statement,
        facts=row_change_facts,
        is_empty=lambda plan: plan.is_empty and command.verb != "merge",  # a merge may insert
        question=question,
    )
    run_command(command, plan)


def row_change_facts(plan: Any) -> dict[str, Any]:
    """Return the plan of a statement as JSON."""
    stats = plan.read.stats
    facts: dict[str, Any] = {
        "statement": plan.statement,
        "snapshot_id": plan.snapshot_id,
        "mode": plan.mode,
        "isolation": plan.isolation,
        "output_spec_id": plan.default_spec_id,
        "files": stats.files_considered,
        "files_untouched": stats.files_considered - len(plan.read.files) - len(plan.whole.files),
        "filter_stats": stats.filter,
    }
    for word, part in (("read", plan.read), ("whole", plan.whole)):
        facts |= {f"files_{word}": len(part.files), f"bytes_{word}": part.stats.bytes, f"rows_{word}": part.stats.rows}
        facts[f"files_{word}_by_spec"] = {spec_id: len(files) for spec_id, files in part.files.by_spec()}
    return facts


@writing_verb
def delete(
    command: Command,
    table: TableName,
    where: Where = None,
    everything: EveryRow = False,
    mode: Mode = None,
    isolation: Isolation = None,
    branch: Branch = "main",
    properties: SnapshotProperties = None,
) -> None:
    """Delete rows that match a condition."""
    if where is None and not everything:
        raise UserError("DELETE without --where would delete every row. Give --where or --all.")
    statement = with_options(command.table_to_change(table).delete(), where=where)
    question = f"Delete rows of {table}?"
    run_row_change(command, f"Deleting from {table}", statement, question, mode, isolation, branch, properties)


@writing_verb
def update(
    command: Command,
    table: TableName,
    assignments: Annotated[
        list[str], typer.Option("--set", metavar="COLUMN=EXPRESSION", help="A new value for a column; may be repeated.")
    ],
    where: Where = None,
    everything: EveryRow = False,
    mode: Mode = None,
    isolation: Isolation = None,
    branch: Branch = "main",
    properties: SnapshotProperties = None,
) -> None:
    """Change rows: `neve update db.events --set "status=upper(status)" --where "id = 1"`."""
    if where is None and not everything:
        raise UserError("UPDATE without --where would change every row. Give --where or --all.")
    statement = command.table_to_change(table).update().set(parse_pairs(assignments, "--set"))
    statement = with_options(statement, where=where)
    question = f"Update rows of {table}?"
    run_row_change(command, f"Updating {table}", statement, question, mode, isolation, branch, properties)


_parse = lazy_import("neve.sql", "parse")
_ALIASES = ("t", "s")
_UPSERT_CLAUSES = ("MATCHED THEN UPDATE SET *", "NOT MATCHED THEN INSERT *")
_FORMATS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".orc": "orc", ".csv": "csv"}


@writing_verb
def merge(
    command: Command,
    table: TableName,
    source: Annotated[str, typer.Option("--using", help="A table, a query, or a file: .parquet, .orc, .json or .csv.")],
    on: Annotated[str, typer.Option(help="The condition that matches rows: t.id = s.id.")],
    when: Annotated[list[str] | None, typer.Option(help="A clause in SQL, without WHEN; may be repeated.")] = None,
    upsert: Annotated[bool, typer.Option("--upsert", help=f"The clauses: {'; '.join(_UPSERT_CLAUSES)}.")] = False,
    evolve: Annotated[bool, typer.Option("--evolve", help="Add columns of the source that the table lacks.")] = False,
    mode: Mode = None,
    isolation: Isolation = None,
    branch: Branch = "main",
    properties: SnapshotProperties = None,
) -> None:
    """Merge rows: `neve merge db.events --using changes.parquet --on "t.id = s.id" --upsert`."""
    clauses = [*(when or ()), *(_UPSERT_CLAUSES if upsert else ())]
    if not clauses:
        raise UserError(f'MERGE without clauses. Give --upsert, or clauses such as --when "{_UPSERT_CLAUSES[0]}".')
    text = " ".join(f"WHEN {clause}" for clause in clauses)
    parsed = _parse(f"MERGE INTO {_ALIASES[0]} USING {_ALIASES[1]} ON true {text}")
    target = command.table_to_change(table)
    rows: Any = source
    kind = _FORMATS.get(Path(source).suffix.lower())
    if kind is not None and Path(source).exists():
        reader = command.lake().spark().read.format(kind)
        reader = reader.option("header", True).option("inferSchema", True) if kind == "csv" else reader
        rows = reader.load(str(Path(source).absolute()))
    statement = target.merge(rows, on=on, aliases=_ALIASES)
    for clause in parsed.clauses:
        statement = clause.add_to(statement, str)
    statement = with_options(statement, with_schema_evolution=evolve)
    question = f"Merge into {table}?"
    run_row_change(command, f"Merging into {table}", statement, question, mode, isolation, branch, properties)
