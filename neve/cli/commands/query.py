"""`neve sql`: one statement.

`neve scan`: rows of a table, of any state of it.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.command import Work, verb, writing_verb
from neve.cli.commands.rows import Isolation, plan_facts
from neve.cli.console import facts_of
from neve.cli.execute import Deed, carry_out, confirm, tell_failures, tell_plan
from neve.cli.options import Limit, Modes, Properties, TableName, Where, moment, names, pairs
from neve.cli.process import is_a, late
from neve.cli.progress import watched

if TYPE_CHECKING:
    from neve.ops.context import LakeContext


_parse = late("neve.sql", "parse")
_options = late("neve.sql.statement", "Options")
_pointing = late("neve.sql.reader", "pointing")
_QUERY, _DROP = ("neve.sql.query", "Query"), ("neve.sql.create_table", "DropTable")
_CHANGES_ROWS = (
    ("neve.ops.rows.update", "Update"),
    ("neve.ops.rows.delete", "Delete"),
    ("neve.ops.rows.merge", "Merge"),
)
_DELETES_FILES = (
    ("neve.ops.maintenance.expire_snapshots", "ExpireSnapshots"),
    ("neve.ops.maintenance.remove_orphan_files", "RemoveOrphanFiles"),
)


@writing_verb
def sql(
    work: Work,
    statement: Annotated[str, typer.Argument(help="One SQL statement.", show_default=False)],
    mode: Modes = None,
    isolation: Isolation = None,
    branch: Annotated[str | None, typer.Option("--branch", help="The branch to write to.", show_default=False)] = None,
    properties: Properties = None,
    limit: Limit = 20,
) -> None:
    """Run one SQL statement: a query shows its rows, everything else what it did."""
    lake, read = work.lake().context, _parse(statement)
    options = _options(mode, isolation, branch, snapshot_properties=pairs(properties, "--snapshot-property"))
    with _pointing(statement):
        _carry_out(work, statement, lake, read, options, limit)


def _carry_out(work: Work, statement: str, lake: LakeContext, read: Any, options: Any, limit: int) -> None:
    builder = read.builder(lake, options) if hasattr(read, "builder") else None
    if builder is not None:
        _built(work, statement, builder)
    elif work.dry_run and not is_a(read, _QUERY):
        tell_plan(work, {"statement": statement}, f"Would run: {statement}")
    else:
        _run(work, lake, read, options, limit)


def _built(work: Work, statement: str, builder: Any) -> None:
    """A statement that is a verb of the API."""
    work.began = builder.context
    changes_rows = is_a(builder, *_CHANGES_ROWS)
    deed = Deed.of(
        "Running",
        builder,
        facts=lambda plan: {"statement": statement, **(plan_facts(plan) if changes_rows else {})},
        is_empty=lambda plan: False,  # what the statement finds to do is known when it has run
        did_nothing=_did_nothing,
        question="Run it?" if changes_rows or _deletes_files(builder) else "",
    )
    tell_failures(work, carry_out(work, deed))


def _deletes_files(builder: Any) -> bool:
    return is_a(builder, *_DELETES_FILES) and not getattr(builder, "is_dry", False)


def _did_nothing(result: Any) -> bool:
    told = facts_of(result)
    kinds = ("snapshot_id", "snapshot_ids", "orphans", "refs", "spec_ids", "schema_ids", "failed_groups")
    return not any(told[kind] for kind in kinds if kind in told)


def _run(work: Work, lake: LakeContext, read: Any, options: Any, limit: int) -> None:
    """A query, or a statement that changes a table."""
    if is_a(read, _DROP):
        confirm(work, f"Drop {'.'.join(read.table)}{' and delete its files' if read.purge else ''}?")
    work.writes = not is_a(read, _QUERY)
    with watched(work.screen, "Running"):
        done = read.run(lake, options)
        done = done.limit(limit).toArrow() if hasattr(done, "toArrow") else done
    if hasattr(done, "to_pylist"):
        work.screen.rows(done, "rows", limit)
    elif work.as_json:
        work.document("done", **_told(work, done))
    else:
        work.screen.result(_told(work, done))


def _told(work: Work, done: Any) -> dict[str, Any]:
    """What a statement did: the table it is about, or its result."""
    if done is None:
        return {"summary": "the statement has run"}
    if hasattr(done, "context"):
        work.began = done.context
        return {"format_version": done.context.metadata.format_version, "summary": f"{done!r}"}
    return facts_of(done) if is_dataclass(done) else {"summary": str(done)}


@verb
def scan(
    work: Work,
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
    then = None if as_of is None else moment(as_of)
    chosen = work.table(table).scan(where, names(columns), ref=ref, snapshot_id=snapshot, as_of=then)
    if explain:
        _explained(work, chosen.explain())
        return
    with watched(work.screen, f"Reading {table}"):
        rows = chosen.head(limit)
    work.screen.rows(rows, table, limit)


def _explained(work: Work, text: str) -> None:
    if work.as_json:
        work.screen.document({"explain": text})
    else:
        work.screen.text(text)
