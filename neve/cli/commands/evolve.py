"""`neve evolve`: columns, partition fields and properties.

Columns change in one commit, partition fields in the next, properties in a third; everything is checked against the
table before the first of them lands. `neve sql "ALTER TABLE …"` can do more with columns.

`neve upgrade`: a later format version.

`neve export`: the metadata once more, for engines that cannot read version 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.command import Work, writing_verb
from neve.cli.execute import MetadataChange, carry_out, tell_plan
from neve.cli.options import TableName, pairs
from neve.cli.process import late
from neve.cli.progress import watched
from neve.errors import UserError

if TYPE_CHECKING:
    from neve.ops.context import TableContext
    from neve.table import Table


_columns_of = late("neve.model.ddl", "schema_of_ddl")
_evolved_spec = late("neve.model.spec_evolution", "evolved_spec")
_checked = late("neve.model.properties", "TableProperties")

Texts = list[str] | None
_COLUMNS, _PARTITIONS, _PROPERTIES = "Columns", "Partition fields", "Properties"


def _several(name: str, panel: str, metavar: str, help: str) -> Any:  # noqa: A002
    return typer.Option(name, metavar=metavar, help=f"{help}; may be repeated.", rich_help_panel=panel)


@writing_verb
def evolve(
    work: Work,
    table: TableName,
    add: Annotated[
        Texts, _several("--add", _PARTITIONS, "TERM", "A field for new files: days(ts), bucket(16, id)")
    ] = None,
    drop: Annotated[Texts, _several("--drop", _PARTITIONS, "TERM", "A field new files do without")] = None,
    rename: Annotated[Texts, _several("--rename", _PARTITIONS, "OLD=NEW", "Another name of a field")] = None,
    add_columns: Annotated[Texts, _several("--add-column", _COLUMNS, "'NAME TYPE'", "A new column")] = None,
    drop_columns: Annotated[Texts, _several("--drop-column", _COLUMNS, "NAME", "A column that goes")] = None,
    rename_columns: Annotated[
        Texts, _several("--rename-column", _COLUMNS, "OLD=NEW", "Another name of a column")
    ] = None,
    widen: Annotated[Texts, _several("--widen", _COLUMNS, "'NAME TYPE'", "A wider type of a column")] = None,
    put: Annotated[Texts, _several("--set", _PROPERTIES, "NAME=VALUE", "A table property")] = None,
    unset: Annotated[Texts, _several("--unset", _PROPERTIES, "NAME", "A table property that goes")] = None,
) -> None:
    """Change columns, how new files are partitioned, or properties; only metadata changes."""
    found = work.table_to_change(table)
    steps = _Steps(
        found,
        (tuple(add or ()), tuple(drop or ()), pairs(rename, "--rename")),
        (
            tuple(add_columns or ()),
            tuple(drop_columns or ()),
            pairs(rename_columns, "--rename-column"),
            tuple(widen or ()),
        ),
        (pairs(put, "--set"), tuple(unset or ())),
    )
    if not any(any(part) for part in (steps.fields, steps.columns, steps.properties)):
        raise UserError("Say what to change: columns, partition fields or properties. `neve evolve --help` lists them.")
    question = f"Drop {', '.join(drop_columns)} of {table}?" if drop_columns else ""
    carry_out(work, steps.change().deed(f"Evolving {table}", steps.land, question))


@dataclass(frozen=True)
class _Steps:
    """What is asked for, in the order in which it lands."""

    table: Table
    fields: tuple[Any, ...]  # add, drop, rename
    columns: tuple[Any, ...]  # add, drop, rename, widen
    properties: tuple[Any, ...]  # set, remove

    def change(self) -> MetadataChange:
        """What the table is, and what it will be; wrong input is refused here."""
        now = self.table.context
        foreseen = self._schema_change().foreseen() if any(self.columns) else now
        put, gone = self.properties
        _checked(put).check()
        properties = {**now.metadata.properties, **put}
        after = {
            **_described(foreseen),
            "partitioned_by": _fields(_evolved_spec(foreseen.metadata, *self.fields), foreseen),
            "properties": {name: value for name, value in properties.items() if name not in gone},
        }
        return MetadataChange(f"Evolve table {now.name}", _described(now), after)

    def land(self) -> None:
        """Make the changes."""
        if any(self.columns):
            self._schema_change().commit()
        if any(self.fields):
            self.table.evolve_partitions(*self.fields)
        put, gone = self.properties
        if put:
            self.table.set_properties(**put)
        if gone:
            self.table.remove_properties(*gone)

    def _schema_change(self) -> Any:
        add, drop, rename, widen = self.columns
        change = self.table.evolve_schema()
        for text in add:
            for column in _columns_of(text).fields:
                change.add_column(column.name, column.field_type, column.doc, column.required)
        for text in widen:
            for column in _columns_of(text).fields:
                change.update_column(column.name, column.field_type, doc=column.doc)
        for name in drop:
            change.delete_column(name)
        for old, new in rename.items():
            change.rename_column(old, new)
        return change


def _described(context: TableContext) -> dict[str, Any]:
    metadata = context.metadata
    return {
        "columns": [_column(f) for f in metadata.schema().fields],
        "partitioned_by": _fields(metadata.spec(), context),
        "properties": dict(metadata.properties),
    }


def _column(field: Any) -> str:
    comment = "" if field.doc is None else f" comment {field.doc!r}"
    return f"{field.name} {field.field_type}{' required' if field.required else ''}{comment}"


def _fields(spec: Any, context: TableContext) -> list[str]:
    return [f"{f.name} ({f.transform})" for f in spec.fields]


@writing_verb
def upgrade(
    work: Work,
    table: TableName,
    to: Annotated[int, typer.Option("--to", help="The format version: 2, 3 or 4.", show_default=False)],
) -> None:
    """Move a table to a later format version. Only metadata changes; there is no way back but `neve export`."""
    found = work.table_to_change(table)
    now = found.context.metadata.format_version
    if to < now or to not in (1, 2, 3, 4):
        later = " or ".join(map(str, range(now + 1, 5)))
        advice = f"Give {later}." if later else "There is no later one."
        raise UserError(f"Cannot move table {found.name} from format version {now} to {to}. {advice}")
    before, after = {"format_version": now}, {"format_version": to}
    change = MetadataChange(f"Upgrade table {found.name}", before, after)
    question = f"Move {table} from format version {now} to {to}? There is no way back."
    carry_out(work, change.deed(f"Upgrading {table}", lambda: found.upgrade(to), question))


@writing_verb
def export(
    work: Work,
    table: TableName,
    to: Annotated[int, typer.Option("--to", help="The format version to write.")] = 3,
) -> None:
    """Write the metadata of a table as version 3 spells it, over the same data files; prints the metadata file."""
    found = work.table_to_change(table)
    metadata = found.context.metadata
    refs = sorted(metadata.refs)
    what = (
        f"version {metadata.format_version} metadata of {found.name} as version {to}: {', '.join(refs) or 'no branch'}"
    )
    if work.dry_run:
        plan = {"format_version": metadata.format_version, "exported_version": to, "refs": refs}
        tell_plan(work, plan, f"Export {what}")
        return
    with watched(work.screen, f"Exporting {table}"):
        path = found.export_metadata(to)
    if work.as_json:
        work.document("done", metadata_location=path, format_version=to, summary=f"exported {what}")
    else:
        work.screen.text(path)
