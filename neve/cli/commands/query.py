"""`neve sql` runs one statement; `neve scan` reads rows of a table in any of its states."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.command import Command, verb, writing_verb
from neve.cli.commands.rows import Isolation, row_change_facts
from neve.cli.console import facts_of
from neve.cli.execute import CommandPlan, confirm_or_exit, exit_if_groups_failed, print_plan, print_result, run_command
from neve.cli.options import Limit, Mode, SnapshotProperties, TableName, Where, parse_pairs, parse_time, split_names
from neve.cli.process import is_a, lazy_import
from neve.cli.progress import show_progress

if TYPE_CHECKING:
    from neve.ops.context import LakeContext


_parse = lazy_import("neve.sql", "parse")
_collect_rows = lazy_import("neve.sql.query", "collect_rows")
_statement_options = lazy_import("neve.sql.statement", "StatementOptions")
_point_at_source = lazy_import("neve.sql.reader", "point_at_source")
_QUERY, _METADATA_QUERY = ("neve.sql.query", "Query"), ("neve.sql.statement", "MetadataQuery")
_EXPLAIN, _SHOW_CREATE = ("neve.sql.explain", "Explain"), ("neve.sql.show", "ShowCreateTable")
_DROP, _REPLACE = ("neve.sql.create_table", "DropTable"), ("neve.sql.create_table", "ReplaceTable")
_ROW_CHANGE_BUILDERS = (
    ("neve.ops.rows.update", "Update"),
    ("neve.ops.rows.delete", "Delete"),
    ("neve.ops.rows.merge", "Merge"),
)
_FILE_DELETING_BUILDERS = (
    ("neve.ops.maintenance.expire_snapshots", "ExpireSnapshots"),
    ("neve.ops.maintenance.remove_orphan_files", "RemoveOrphanFiles"),
)
_FACTS_OF_CHANGES = ("snapshot_id", "snapshot_ids", "orphans", "refs", "spec_ids", "schema_ids", "failed_groups")


@writing_verb
def sql(
    command: Command,
    statement: Annotated[str, typer.Argument(help="One SQL statement.")],
    mode: Mode = None,
    isolation: Isolation = None,
    branch: Annotated[str | None, typer.Option(help="The branch to write to.")] = None,
    properties: SnapshotProperties = None,
    limit: Limit = 20,
) -> None:
    """Run one SQL statement: a query prints its rows, other statements print what they did."""
    lake, parsed = command.lake().context, _parse(statement)
    options = _statement_options(
        mode, isolation, branch, snapshot_properties=parse_pairs(properties, "--snapshot-property")
    )
    with _point_at_source(statement):
        builder = parsed.builder(lake, options) if hasattr(parsed, "builder") else None
        if builder is not None:
            _run_builder(command, statement, builder)
        elif command.dry_run and not is_a(parsed, _QUERY, _METADATA_QUERY, _EXPLAIN):
            print_plan(command, {"statement": statement}, f"Would run: {statement}")
        else:
            _run_query_or_ddl(command, lake, parsed, options, limit)


def _run_builder(command: Command, statement: str, builder: Any) -> None:
    """Run a statement that is a verb of the API."""
    command.table_before = builder.context
    changes_rows = is_a(builder, *_ROW_CHANGE_BUILDERS)
    deletes_files = is_a(builder, *_FILE_DELETING_BUILDERS) and not getattr(builder, "is_dry", False)
    plan = CommandPlan.of(
        "Running",
        builder,
        facts=lambda plan: {"statement": statement, **(row_change_facts(plan) if changes_rows else {})},
        is_empty=lambda plan: False,  # only the execution shows whether there is something to do
        did_nothing=lambda result: not any(map(facts_of(result).get, _FACTS_OF_CHANGES)),
        question="Run it?" if changes_rows or deletes_files else "",
    )
    exit_if_groups_failed(command, run_command(command, plan))


def _run_query_or_ddl(command: Command, lake: LakeContext, parsed: Any, options: Any, limit: int) -> None:
    if is_a(parsed, _DROP):
        confirm_or_exit(command, f"Drop {'.'.join(parsed.table)}{' and delete its files' if parsed.purge else ''}?")
    if is_a(parsed, _REPLACE):
        confirm_or_exit(command, f"Replace {'.'.join(parsed.new.table)} if it exists?")
    command.may_have_written = not is_a(parsed, _QUERY, _METADATA_QUERY, _EXPLAIN)
    with show_progress(command.screen, "Running"):
        outcome = parsed.run(lake, options)
        outcome = _collect_rows(outcome, limit) if hasattr(outcome, "toArrow") else outcome
    if is_a(parsed, _SHOW_CREATE, _EXPLAIN) and not command.as_json:
        command.screen.print_text(outcome.column(0)[0].as_py())
    elif hasattr(outcome, "to_pylist"):
        command.screen.print_rows(outcome, "rows", outcome.num_rows if is_a(parsed, _METADATA_QUERY) else limit)
    elif outcome is None:
        print_result(command, {"summary": "the statement has run"})
    elif hasattr(outcome, "context"):
        command.table_before = outcome.context
        facts = {"format_version": outcome.context.metadata.format_version, "summary": f"{outcome!r}"}
        print_result(command, facts)
    else:
        print_result(command, outcome if is_dataclass(outcome) else {"summary": str(outcome)})


@verb
def scan(
    command: Command,
    table: TableName,
    where: Where = None,
    columns: Annotated[str | None, typer.Option(help="Columns, separated by commas.")] = None,
    ref: Annotated[str | None, typer.Option(help="A branch or tag to read.")] = None,
    snapshot: Annotated[int | None, typer.Option(help="The id of a snapshot to read.")] = None,
    as_of: Annotated[
        str | None, typer.Option(help="Read the state at a time: 2026-01-31, or 7d for 7 days ago.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print what would be read, and read nothing.")] = False,
    limit: Limit = 20,
) -> None:
    """Read rows."""
    then = parse_time(as_of)
    reading = command.table(table).scan(where, split_names(columns), ref=ref, snapshot_id=snapshot, as_of=then)
    if not explain:
        with show_progress(command.screen, f"Reading {table}"):
            rows = reading.head(limit)
        command.screen.print_rows(rows, table, limit)
    elif command.as_json:
        command.screen.print_json_line({"explain": reading.explain()})
    else:
        command.screen.print_text(reading.explain())
