"""The commands that look at a table: `inspect` shows an overview or one view of its metadata, `verify` audits it, and
`report` writes an HTML page.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer
from rich.console import Console, Group
from rich.filesize import decimal
from rich.table import Table as Grid
from rich.text import Text

from neve.cli.command import Command, verb, writing_verb
from neve.cli.console import ExitCode
from neve.cli.execute import print_plan
from neve.cli.options import TableName, Where, one_of
from neve.cli.progress import show_progress
from neve.display.html import replace_unprintable
from neve.display.terminal import render_arrow_table
from neve.errors import UnknownName, UserError
from neve.model.metadata_table_names import METADATA_TABLES, SNAPSHOT_TABLES

if TYPE_CHECKING:
    from neve.table import Table
    from neve.tree.entries import EntryTable


_DATA, _POSITION, _EQUALITY = range(3)


def overview_of(table: Table) -> dict[str, Any]:
    """Return the overview of a table as JSON."""
    inspect = table.inspect
    context, tree = inspect.context, inspect.tree()
    metadata = context.metadata
    files = context.live_entries(context.live_manifests(context.head()))
    nodes = zip(tree["depth"].to_pylist(), tree["kind"].to_pylist(), tree["bytes"].to_pylist(), strict=True)
    # In version 4 the root itself can hold entries; only manifests that are files of their own count here.
    sizes = [size for depth, kind, size in nodes if depth == 1 and kind != "rows of the root"]
    head = metadata.current_snapshot()
    return {
        "table": table.name,
        "format_version": metadata.format_version,
        "location": metadata.location,
        "metadata_location": context.iceberg.metadata_location,
        "snapshot_id": None if head is None else head.snapshot_id,
        "committed_at": None if head is None else pa.scalar(head.timestamp_ms, pa.timestamp("ms", "UTC")).as_py(),
        "snapshots": len(metadata.snapshots),
        "refs": {name: ref.snapshot_id for name, ref in sorted(metadata.refs.items())},
        "data": _file_totals(files, _DATA),
        "position_deletes": _file_totals(files, _POSITION),
        "equality_deletes": _file_totals(files, _EQUALITY),
        "manifests": len(sizes),
        "manifest_bytes": sum(sizes),
        "specs": [_spec_facts(spec, files) for spec in inspect.specs().to_pylist()],
        "columns": [
            {"id": f.field_id, "name": f.name, "type": str(f.field_type), "required": f.required}
            for f in metadata.schema().fields
        ],
        "properties": dict(sorted(metadata.properties.items())),
    }


def render_overview(overview: dict[str, Any], console: Console) -> Group:
    """Format an overview for people."""
    data, by_position, by_value = (overview[k] for k in ("data", "position_deletes", "equality_deletes"))
    average = f", {decimal(data['bytes'] // data['files'])} each" if data["files"] else ""
    deletes = [f"{by_position['files']} by position ({by_position['rows']:,} rows)"] if by_position["files"] else []
    deletes += [f"{by_value['files']} by value"] if by_value["files"] else []
    has_snapshot = overview["snapshot_id"] is not None
    lines = {
        "version": f"format version {overview['format_version']}",
        "location": overview["location"],
        "current": f"snapshot {overview['snapshot_id']}, {overview['committed_at']:%Y-%m-%d %H:%M:%S} UTC"
        if has_snapshot
        else "no snapshot: nothing has been written",
        "history": f"{overview['snapshots']} snapshots; {', '.join(overview['refs']) or 'no branch'}",
        "rows": f"{data['rows']:,} in data files",
        "data": f"{data['files']:,} files, {decimal(data['bytes'])}{average}",
        "deletes": ", ".join(deletes) or "none",
        "manifests": f"{overview['manifests']}, {decimal(overview['manifest_bytes'])}",
        "properties": ", ".join(f"{name}={value}" for name, value in overview["properties"].items()),
    }
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in lines.items():
        if value:
            grid.add_row(Text(name, "dim"), Text(replace_unprintable(value)))
    specs = pa.Table.from_pylist([_spec_row(spec) for spec in overview["specs"]])
    columns = pa.Table.from_pylist([{**c, "required": "yes" if c["required"] else ""} for c in overview["columns"]])
    return Group(
        Text(replace_unprintable(overview["table"]), "bold"),
        grid,
        render_arrow_table(specs, "Partition specs; * is the spec of new files", 40, console.width),
        render_arrow_table(columns, "Columns", 200, console.width),
    )


def _file_totals(files: EntryTable, content: int) -> dict[str, int]:
    """Count files, rows and bytes of one kind; each vector of a Puffin file counts as one file."""
    matching = files.filter(pc.equal(files["content"], content))
    sizes = pc.coalesce(matching["content_size_in_bytes"], matching["file_size_in_bytes"])
    return {
        "files": len(matching),
        "rows": pc.sum(matching["record_count"]).as_py() or 0,
        "bytes": pc.sum(sizes).as_py() or 0,
    }


def _spec_facts(spec: dict[str, Any], files: EntryTable) -> dict[str, Any]:
    own = files.filter(pc.equal(files["spec_id"], spec["spec_id"]))
    data = own.filter(pc.equal(own["content"], _DATA))
    fields = [{"name": f["name"], "transform": f["transform"], "source": f["source"]} for f in spec["fields"]]
    return {
        "spec_id": spec["spec_id"],
        "is_default": spec["is_default"],
        "fields": fields,
        "partitions": len(data.partition_codes()[1]),
        "data": _file_totals(own, _DATA),
        "delete_files": len(own) - len(data),
    }


def _spec_row(spec: dict[str, Any]) -> dict[str, Any]:
    fields = [(f["transform"], f["source"] or "a dropped column") for f in spec["fields"]]
    terms = [source if transform == "identity" else f"{transform}({source})" for transform, source in fields]
    return {
        "spec": f"{spec['spec_id']}{' *' if spec['is_default'] else ''}",
        "partitioned by": ", ".join(terms) or "not partitioned",
        "partitions": spec["partitions"],
        "files": spec["data"]["files"],
        "deletes": spec["delete_files"],
        "rows": spec["data"]["rows"],
        # Without spaces, because a line may break at a space.
        "size": decimal(spec["data"]["bytes"]).replace(" bytes", "B").replace(" ", ""),
    }


_OVERVIEW = "overview"
_VIEWS = (_OVERVIEW, *METADATA_TABLES)
_DEFAULT_LIMIT = 40


@verb
def inspect(
    command: Command,
    table: TableName,
    view: Annotated[
        str,
        typer.Argument(
            help=f"{_OVERVIEW}, {', '.join(METADATA_TABLES)}.", autocompletion=one_of(_OVERVIEW, *METADATA_TABLES)
        ),
    ] = _OVERVIEW,
    snapshot: Annotated[int | None, typer.Option(help=f"Another snapshot, for {', '.join(SNAPSHOT_TABLES)}.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Rows to show; by default 40, or all with --json.")] = None,
) -> None:
    """Show what a table consists of: an overview, or one view of its metadata."""
    if view not in _VIEWS:
        raise UnknownName("view", view, _VIEWS)
    if snapshot is not None and view not in SNAPSHOT_TABLES:
        raise UnknownName("view of a snapshot", view, SNAPSHOT_TABLES)
    if limit is not None and view == _OVERVIEW:
        raise UserError(f"The overview has no --limit. Choose a view: {', '.join(METADATA_TABLES)}.")
    inspected = command.table(table)
    if view == _OVERVIEW:
        overview, console = overview_of(inspected), command.screen.out
        if command.as_json:
            command.screen.print_json_line(overview)
        else:
            console.print(render_overview(overview, console))
        return
    rows = getattr(inspected.inspect, view)(**({} if snapshot is None else {"snapshot_id": snapshot}))
    if command.as_json and limit is not None:
        rows = rows.slice(0, limit)
    command.screen.print_rows(rows, f"{table}: {view}", _DEFAULT_LIMIT if limit is None else limit)


@verb
def verify(
    command: Command,
    table: TableName,
    metadata_only: Annotated[bool, typer.Option("--metadata-only", help="Do not open data and delete files.")] = False,
) -> None:
    """Check that every reachable file exists, parses and agrees with its metadata; exits with 1 if one does not."""
    audited = command.table(table)
    with show_progress(command.screen, f"Checking {table}"):
        audit = audited.verify(data=not metadata_only)
    if command.as_json:
        command.screen.print_json_line(audit.as_dict())
    else:
        command.screen.print_text(str(audit), "" if audit.is_sound else "red")
    raise typer.Exit(ExitCode.DONE if audit.is_sound else ExitCode.FAILED)


@writing_verb
def report(
    command: Command,
    table: TableName,
    path: Annotated[Path, typer.Argument(help="Where to write the page.")] = Path("report.html"),
    where: Where = None,
) -> None:
    """Write an HTML page about a table: its history, its files, its problems, and what would help.

    With `--where`, it plans a compaction of the files that may match, and marks where the filter cannot be evaluated.
    """
    reported = command.table_to_change(table)
    if command.dry_run:
        print_plan(command, {"path": str(path)}, f"Write a page about {reported.name} to {path}")
        return
    with show_progress(command.screen, f"Reading {table}"):
        reported.report(path, where)
    size = path.stat().st_size
    if command.as_json:
        command.print_json("done", path=str(path), bytes=size, summary=f"{path}, {size:,} bytes")
    else:
        command.screen.print_text(f"Done: {path}, {size:,} bytes.", "green")
