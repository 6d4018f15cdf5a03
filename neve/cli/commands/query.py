"""`neve sql`: one statement.

`neve scan`: rows of a table, of any state of it.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.command import Command, verb, writing_verb
from neve.cli.commands.rows import Isolation, row_change_facts
from neve.cli.console import facts_of
from neve.cli.execute import CommandPlan, confirm_or_exit, exit_if_groups_failed, print_plan, run_command
from neve.cli.options import Limit, Mode, SnapshotProperties, TableName, Where, parse_pairs, parse_time, split_names
from neve.cli.process import is_a, lazy_import
from neve.cli.progress import show_progress

if TYPE_CHECKING:
    from neve.ops.context import LakeContext


_parse = lazy_import("neve.sql", "parse")
_statement_options = lazy_import("neve.sql.statement", "StatementOptions")
_point_at_source = lazy_import("neve.sql.reader", "point_at_source")
_QUERY, _DROP = ("neve.sql.query", "Query"), ("neve.sql.create_table", "DropTable")
_ROW_CHANGE_BUILDERS = (
    ("neve.ops.rows.update", "Update"),
    ("neve.ops.rows.delete", "Delete"),
    ("neve.ops.rows.merge", "Merge"),
)
_FILE_DELETING_BUILDERS = (
    ("neve.ops.maintenance.expire_snapshots", "ExpireSnapshots"),
    ("neve.ops.maintenance.remove_orphan_files", "RemoveOrphanFiles"),
)


@writing_verb
def sql(
    work: Command,
    statement: Annotated[str, typer.Argument(help="One SQL statement.", show_default=False)],
    mode: Mode = None,
    isolation: Isolation = None,
    branch: Annotated[str | None, typer.Option("--branch", help="The branch to write to.", show_default=False)] = None,
    properties: SnapshotProperties = None,
    limit: Limit = 20,
) -> None:
    """Run one SQL statement: a query shows its rows, everything else what it did."""
    lake, read = work.lake().context, _parse(statement)
    options = _statement_options(
        mode, isolation, branch, snapshot_properties=parse_pairs(properties, "--snapshot-property")
    )
    with _point_at_source(statement):
        _run_statement(work, statement, lake, read, options, limit)


def _run_statement(
    work: Command, statement: str, lake: LakeContext, parsed_statement: Any, options: Any, limit: int
) -> None:
    builder = parsed_statement.builder(lake, options) if hasattr(parsed_statement, "builder") else None
    if builder is not None:
        _run_builder(work, statement, builder)
    elif work.dry_run and not is_a(parsed_statement, _QUERY):
        print_plan(work, {"statement": statement}, f"Would run: {statement}")
    else:
        _run_query_or_ddl(work, lake, parsed_statement, options, limit)


def _run_builder(work: Command, statement: str, builder: Any) -> None:
    """A statement that is a verb of the API."""
    work.table_before = builder.context
    changes_rows = is_a(builder, *_ROW_CHANGE_BUILDERS)
    deed = CommandPlan.of(
        "Running",
        builder,
        facts=lambda plan: {"statement": statement, **(row_change_facts(plan) if changes_rows else {})},
        is_empty=lambda plan: False,  # what the statement finds to do is known when it has run
        did_nothing=_did_nothing,
        question="Run it?" if changes_rows or _deletes_files(builder) else "",
    )
    exit_if_groups_failed(work, run_command(work, deed))


def _deletes_files(builder: Any) -> bool:
    return is_a(builder, *_FILE_DELETING_BUILDERS) and not getattr(builder, "is_dry", False)


def _did_nothing(result: Any) -> bool:
    told = facts_of(result)
    kinds = ("snapshot_id", "snapshot_ids", "orphans", "refs", "spec_ids", "schema_ids", "failed_groups")
    return not any(told[kind] for kind in kinds if kind in told)


def _run_query_or_ddl(work: Command, lake: LakeContext, parsed_statement: Any, options: Any, limit: int) -> None:
    """A query, or a statement that changes a table."""
    if is_a(parsed_statement, _DROP):
        confirm_or_exit(
            work, f"Drop {'.'.join(parsed_statement.table)}{' and delete its files' if parsed_statement.purge else ''}?"
        )
    work.may_have_written = not is_a(parsed_statement, _QUERY)
    with show_progress(work.screen, "Running"):
        done = parsed_statement.run(lake, options)
        done = done.limit(limit).toArrow() if hasattr(done, "toArrow") else done
    if hasattr(done, "to_pylist"):
        work.screen.print_rows(done, "rows", limit)
    elif work.as_json:
        work.print_json("done", **_statement_facts(work, done))
    else:
        work.screen.print_result(_statement_facts(work, done))


def _statement_facts(work: Command, outcome: Any) -> dict[str, Any]:
    """What a statement did: the table it is about, or its result."""
    if outcome is None:
        return {"summary": "the statement has run"}
    if hasattr(outcome, "context"):
        work.table_before = outcome.context
        return {"format_version": outcome.context.metadata.format_version, "summary": f"{outcome!r}"}
    return facts_of(outcome) if is_dataclass(outcome) else {"summary": str(outcome)}


@verb
def scan(
    work: Command,
    table: TableName,
    where: Where = None,
    columns: Annotated[str | None, typer.Option(help="Columns, separated by commas.", show_default=False)] = None,
    ref: Annotated[str | None, typer.Option(help="A branch or tag to read.", show_default=False)] = None,
    snapshot: Annotated[int | None, typer.Option(help="The id of a snapshot to read.", show_default=False)] = None,
    as_of: Annotated[
        str | None, typer.Option(help="Read it as it was then: 2026-01-31, or 7d ago.", show_default=False)
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what would be read, and read nothing.")] = False,
    limit: Limit = 20,
) -> None:
    """Read rows."""
    then = None if as_of is None else parse_time(as_of)
    chosen = work.table(table).scan(where, split_names(columns), ref=ref, snapshot_id=snapshot, as_of=then)
    if explain:
        _print_explanation(work, chosen.explain())
        return
    with show_progress(work.screen, f"Reading {table}"):
        rows = chosen.head(limit)
    work.screen.print_rows(rows, table, limit)


def _print_explanation(work: Command, text: str) -> None:
    if work.as_json:
        work.screen.print_json_line({"explain": text})
    else:
        work.screen.print_text(text)
