"""The command line: the same words as the Python API.

neve demo | tables | inspect | scan | sql | verify; `--json` prints rows for other programs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from pyspark.sql import DataFrame
from rich.console import Console
from rich.text import Text

from neve.demo import run as run_demo
from neve.errors import NeveError, UnknownName, UserError
from neve.lake import Lake, connect
from neve.show import arrow_table, plain
from neve.table import Table

__all__ = ["app"]

app = typer.Typer(
    help="Névé: Apache Iceberg tables that have lived, on Spark, without a jar.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

LakePath = Annotated[Path, typer.Option("--lake", help="Folder of the lake.", show_default=True)]
CatalogName = Annotated[str | None, typer.Option("--catalog", help="A catalog of PyIceberg's configuration instead.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print rows as JSON lines.")]
Limit = Annotated[int, typer.Option(help="Rows to show.")]

_VIEWS = ("files", "entries", "manifests", "partitions", "specs", "snapshots", "history", "refs", "tree")


@contextmanager
def _plain_errors() -> Iterator[None]:
    """An error of ours is one sentence on the screen, not a trace."""
    try:
        yield
    except NeveError as e:
        said = "\n".join(plain(line) for line in str(e).splitlines())  # one that points into a text has lines
        Console(stderr=True).print(Text("Error: ", "red") + Text(said), soft_wrap=True)
        raise typer.Exit(1) from None


def _lake(path: Path, catalog: str | None) -> Lake:
    """The lake to look at; looking makes none."""
    if catalog:
        return connect(catalog=catalog)
    if not (path / "catalog.db").is_file():
        raise UserError(f"There is no lake in {path}. Name its folder with --lake, or a catalog with --catalog.")
    return connect(path)


def _print(table: pa.Table, as_json: bool, limit: int, title: str) -> None:
    if as_json:
        for row in table.to_pylist(maps_as_pydicts="lossy"):
            sys.stdout.write(json.dumps(row, default=_text, ensure_ascii=False) + "\n")
        return
    console = Console()
    console.print(arrow_table(table, title, limit, console.width))


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


@app.command()
def demo(
    lake: Annotated[Path | None, typer.Option("--lake", help="Keep the demo lake in this folder.")] = None,
) -> None:
    """Make a table, let it live through four partition specs, and read it back."""
    with _plain_errors():
        run_demo(Console(), lake)


@app.command()
def tables(lake: LakePath = Path("lake"), catalog: CatalogName = None, as_json: AsJson = False) -> None:
    """List the tables of a lake."""
    with _plain_errors():
        for name in _lake(lake, catalog).tables():
            typer.echo(json.dumps({"table": name}) if as_json else plain(name))


@app.command()
def inspect(
    table: str,
    view: Annotated[str, typer.Argument(help=f"One of {', '.join(_VIEWS)}.")] = "partitions",
    lake: LakePath = Path("lake"),
    catalog: CatalogName = None,
    as_json: AsJson = False,
    limit: Limit = 40,
) -> None:
    """Show the metadata of a table."""
    with _plain_errors():
        if view not in _VIEWS:
            raise UnknownName("view", view, _VIEWS)
        found = getattr(_lake(lake, catalog).table(table).inspect, view)()
        _print(found, as_json, limit, f"{table}: {view}")


@app.command()
def scan(
    table: str,
    where: Annotated[str | None, typer.Option(help="A condition in Spark SQL.")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns, separated by commas.")] = None,
    ref: Annotated[str | None, typer.Option(help="A branch or tag to read.")] = None,
    snapshot: Annotated[int | None, typer.Option(help="The id of a snapshot to read.")] = None,
    as_of: Annotated[str | None, typer.Option(help="Read the table as it was at a time, in UTC unless said.")] = None,
    explain: Annotated[bool, typer.Option(help="Say what would be read, and read nothing.")] = False,
    lake: LakePath = Path("lake"),
    catalog: CatalogName = None,
    as_json: AsJson = False,
    limit: Limit = 20,
) -> None:
    """Read rows."""
    with _plain_errors():
        names = [c.strip() for c in columns.split(",")] if columns else None
        moment = None if as_of is None else _moment(as_of)
        chosen = _lake(lake, catalog).table(table).scan(where, names, ref=ref, snapshot_id=snapshot, as_of=moment)
        if explain:
            typer.echo(chosen.explain())
            return
        _print(pa.table(chosen.to_spark().limit(limit).toArrow()), as_json, limit, table)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(
            f"Cannot read the time {text!r}. Write it as 2026-01-31 or 2026-01-31T12:00:00+01:00."
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="One SQL statement.")],
    lake: LakePath = Path("lake"),
    catalog: CatalogName = None,
    as_json: AsJson = False,
    limit: Limit = 20,
) -> None:
    """Run one SQL statement: a query shows its rows, everything else what it did."""
    with _plain_errors():
        done = _lake(lake, catalog).sql(statement)
        if isinstance(done, DataFrame | pa.Table):
            found = done if isinstance(done, pa.Table) else pa.table(done.limit(limit).toArrow())
            _print(found, as_json, limit, "rows")
        else:
            told = _told(done)
            down = pa.table({"what": list(told), "value": [str(v) for v in told.values()]})
            _print(pa.Table.from_pylist([told]) if as_json else down, as_json, len(told), "done")


def _told(done: Any) -> dict[str, Any]:
    """What a statement did, without what stayed zero."""
    if isinstance(done, Table):
        return {"table": done.name, "format_version": done.context.metadata.format_version}
    if done is None:
        return {"done": True}
    values = {f.name: getattr(done, f.name) for f in fields(done)}
    told = {name: _plainly(v) for name, v in values.items() if v}
    return {**{name: values[name] for name in ("snapshot_id",) if name in values}, **told} or {"done": True}


def _plainly(value: Any) -> Any:
    """A value of a result: what is made of parts is told in words."""
    if isinstance(value, Mapping):
        return str(dict(value))
    return str(value) if is_dataclass(value) else value


@app.command()
def verify(
    table: str,
    lake: LakePath = Path("lake"),
    catalog: CatalogName = None,
    as_json: AsJson = False,
) -> None:
    """Check that every reachable file exists, parses and agrees with its metadata."""
    with _plain_errors():
        audit = _lake(lake, catalog).table(table).verify()
        if as_json:
            sys.stdout.write(json.dumps(audit.as_dict(), ensure_ascii=False) + "\n")
        else:
            Console().print(str(audit), highlight=False, markup=False)
        raise typer.Exit(0 if audit.is_sound else 1)
