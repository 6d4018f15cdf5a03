"""A table at a glance: how large, how old, under which specs, and what burdens it.

`neve inspect`: a table at a glance, and every view of its metadata.

`neve verify`: the audit.

`neve report`: a page to look at.
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
from neve.display.format import readable_values
from neve.display.html import replace_unprintable
from neve.display.terminal import render_arrow_table
from neve.errors import UnknownName, UserError

if TYPE_CHECKING:
    from neve.table import Table


_DATA, _POSITION, _EQUALITY = range(3)


def overview_of(table: Table) -> dict[str, Any]:
    """The facts, for programs."""
    metadata, inspect = table.context.metadata, table.inspect
    files, sizes = inspect.files(), _manifest_sizes(inspect.tree())
    head = metadata.current_snapshot()
    return {
        "table": table.name,
        "format_version": metadata.format_version,
        "location": metadata.location,
        "metadata_location": table.context.iceberg.metadata_location,
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
    """The facts, for people."""
    specs = pa.Table.from_pylist([_spec_row(spec) for spec in overview["specs"]])
    columns = pa.Table.from_pylist([{**c, "required": "yes" if c["required"] else ""} for c in overview["columns"]])
    return Group(
        Text(replace_unprintable(overview["table"]), "bold"),
        _overview_grid(overview),
        render_arrow_table(specs, "Partition specs; * is the one new files get", 40, console.width),
        render_arrow_table(columns, "Columns", 200, console.width),
    )


def _overview_grid(overview: dict[str, Any]) -> Grid:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in _overview_lines(overview).items():
        grid.add_row(Text(name, "dim"), Text(replace_unprintable(value)))
    return grid


def _overview_lines(overview: dict[str, Any]) -> dict[str, str]:
    data, by_position, by_value = (overview[k] for k in ("data", "position_deletes", "equality_deletes"))
    average = f", {decimal(data['bytes'] // data['files'])} each" if data["files"] else ""
    deletes = [f"{by_position['files']} by position ({by_position['rows']:,} rows)"] if by_position["files"] else []
    deletes += [f"{by_value['files']} by value"] if by_value["files"] else []
    said = {
        "version": f"format version {overview['format_version']}",
        "place": overview["location"],
        "current": _current(overview),
        "history": f"{overview['snapshots']} snapshots; {', '.join(overview['refs']) or 'no branch'}",
        "rows": f"{data['rows']:,} in data files",
        "data": f"{data['files']:,} files, {decimal(data['bytes'])}{average}",
        "deletes": ", ".join(deletes) or "none",
        "manifests": f"{overview['manifests']}, {decimal(overview['manifest_bytes'])}",
        "properties": ", ".join(f"{name}={value}" for name, value in overview["properties"].items()),
    }
    return {name: value for name, value in said.items() if value}


def _current(told: dict[str, Any]) -> str:
    if told["snapshot_id"] is None:
        return "no snapshot: nobody has written to it"
    return f"snapshot {told['snapshot_id']}, {told['committed_at']:%Y-%m-%d %H:%M:%S} UTC"


def _manifest_sizes(tree: pa.Table) -> list[int]:
    """The bytes of every manifest that is a file of its own."""
    nodes = zip(tree["depth"].to_pylist(), tree["kind"].to_pylist(), tree["bytes"].to_pylist(), strict=True)
    return [size for depth, kind, size in nodes if depth == 1 and kind != "rows of the root"]


def _file_totals(files: pa.Table, content: int) -> dict[str, int]:
    """Files, rows and bytes of one kind; vectors of one file count one each."""
    some = files.filter(pc.equal(files["content"], content))
    sizes = pc.coalesce(some["content_size_in_bytes"], some["file_size_in_bytes"])
    return {
        "files": some.num_rows,
        "rows": pc.sum(some["record_count"]).as_py() or 0,
        "bytes": pc.sum(sizes).as_py() or 0,
    }


def _spec_facts(spec: dict[str, Any], files: pa.Table) -> dict[str, Any]:
    mine = files.filter(pc.equal(files["spec_id"], spec["spec_id"]))
    fields = [{"name": f["name"], "transform": f["transform"], "source": f["source"]} for f in spec["fields"]]
    return {
        "spec_id": spec["spec_id"],
        "is_default": spec["is_default"],
        "fields": fields,
        "partitions": len(set(map(str, readable_values(mine.filter(pc.equal(mine["content"], _DATA))["partition"])))),
        "data": _file_totals(mine, _DATA),
        "delete_files": mine.num_rows - _file_totals(mine, _DATA)["files"],
    }


def _spec_row(spec: dict[str, Any]) -> dict[str, Any]:
    fields = ", ".join(_term(f) for f in spec["fields"]) or "not partitioned"
    return {
        "spec": f"{spec['spec_id']}{' *' if spec['is_default'] else ''}",
        "partitioned by": fields,
        "partitions": spec["partitions"],
        "files": spec["data"]["files"],
        "deletes": spec["delete_files"],
        "rows": spec["data"]["rows"],
        "size": decimal(spec["data"]["bytes"])
        .replace(" bytes", "B")
        .replace(" ", ""),  # what has a space may be broken
    }


def _term(field: dict[str, Any]) -> str:
    """A partition field as it is written: days(ts), region."""
    source = field["source"] or "a dropped column"
    return str(source) if field["transform"] == "identity" else f"{field['transform']}({source})"


VIEWS = ("files", "entries", "manifests", "partitions", "specs", "snapshots", "history", "refs", "tree")
_OVERVIEW = "overview"
_DEFAULT_LIMIT = 40
_SNAPSHOT_VIEWS = ("files", "entries", "manifests", "partitions", "tree")


@verb
def inspect(
    work: Command,
    table: TableName,
    view: Annotated[
        str,
        typer.Argument(help=f"{_OVERVIEW}, {', '.join(VIEWS)}.", autocompletion=one_of(_OVERVIEW, *VIEWS)),
    ] = _OVERVIEW,
    snapshot: Annotated[
        int | None, typer.Option(help=f"Another snapshot: of {', '.join(_SNAPSHOT_VIEWS)}.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help="Rows to show; 40, or with --json all.", show_default=False)
    ] = None,
) -> None:
    """Show what a table is made of: an overview, or one view of its metadata."""
    if view not in (_OVERVIEW, *VIEWS):
        raise UnknownName("view", view, (_OVERVIEW, *VIEWS))
    if snapshot is not None and view not in _SNAPSHOT_VIEWS:
        raise UnknownName("view of a snapshot", view, _SNAPSHOT_VIEWS)
    if limit is not None and view == _OVERVIEW:
        raise UserError(f"The overview has no --limit. Choose a view: {', '.join(VIEWS)}.")
    found = work.table(table)
    if view == _OVERVIEW:
        told, console = overview_of(found), work.screen.out
        work.screen.print_json_line(told) if work.as_json else console.print(render_overview(told, console))
        return
    chosen = {} if snapshot is None else {"snapshot_id": snapshot}
    rows = getattr(found.inspect, view)(**chosen)
    if work.as_json and limit is not None:
        rows = rows.slice(0, limit)
    work.screen.print_rows(rows, f"{table}: {view}", _DEFAULT_LIMIT if limit is None else limit)


@verb
def verify(
    work: Command,
    table: TableName,
    metadata_only: Annotated[bool, typer.Option("--metadata-only", help="Do not open data and delete files.")] = False,
) -> None:
    """Check that every reachable file exists, parses and agrees with its metadata; exits with 1 when one does not."""
    found = work.table(table)
    with show_progress(work.screen, f"Checking {table}"):
        audit = found.verify(data=not metadata_only)
    if work.as_json:
        work.screen.print_json_line(audit.as_dict())
    else:
        work.screen.print_text(str(audit), "" if audit.is_sound else "red")
    raise typer.Exit(ExitCode.DONE if audit.is_sound else ExitCode.FAILED)


@writing_verb
def report(
    work: Command,
    table: TableName,
    path: Annotated[Path, typer.Argument(help="Where to write the page.", show_default=True)] = Path("report.html"),
    where: Where = None,
) -> None:
    """Write one page about a table: its life, its files, what burdens it, what would help.

    With `--where`, a compaction of the files that may match is planned, and what could not be judged is marked.
    """
    found = work.table_to_change(table)
    if work.dry_run:
        print_plan(work, {"path": str(path)}, f"Write a page about {found.name} to {path}")
        return
    with show_progress(work.screen, f"Looking at {table}"):
        found.report(path, where)
    size = path.stat().st_size
    if work.as_json:
        work.print_json("done", path=str(path), bytes=size, summary=f"{path}, {size:,} bytes")
    else:
        work.screen.print_text(f"Done: {path}, {size:,} bytes.", "green")
