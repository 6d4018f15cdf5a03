"""The commands that change metadata only: `evolve`, `upgrade` and `export`.

`neve evolve` changes columns in one commit, partition fields in the next, and properties in a third; all of them are
checked against the table before the first commit. `neve sql "ALTER TABLE …"` can do more with columns. `neve export`
writes a copy of the metadata for engines that cannot read version 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.command import Command, writing_verb
from neve.cli.execute import MetadataChange, print_plan, run_command
from neve.cli.options import TableName, parse_pairs
from neve.cli.process import lazy_import
from neve.cli.progress import show_progress
from neve.errors import UserError

if TYPE_CHECKING:
    from neve.ops.context import TableContext
    from neve.table import Table


_schema_of_ddl = lazy_import("neve.model.ddl", "schema_of_ddl")
_evolved_spec = lazy_import("neve.model.spec_evolution", "evolved_spec")
_table_properties = lazy_import("neve.model.properties", "TableProperties")

Texts = list[str] | None
_COLUMNS, _PARTITIONS, _PROPERTIES = "Columns", "Partition fields", "Properties"


def _repeatable_option(name: str, panel: str, metavar: str, help: str) -> Any:  # noqa: A002
    return typer.Option(name, metavar=metavar, help=f"{help}; may be repeated.", rich_help_panel=panel)


@writing_verb
def evolve(
    command: Command,
    table: TableName,
    add: Annotated[
        Texts, _repeatable_option("--add", _PARTITIONS, "TERM", "A field for new files: days(ts), bucket(16, id)")
    ] = None,
    drop: Annotated[Texts, _repeatable_option("--drop", _PARTITIONS, "TERM", "A field to drop for new files")] = None,
    rename: Annotated[Texts, _repeatable_option("--rename", _PARTITIONS, "OLD=NEW", "A new name for a field")] = None,
    add_columns: Annotated[Texts, _repeatable_option("--add-column", _COLUMNS, "'NAME TYPE'", "A new column")] = None,
    drop_columns: Annotated[Texts, _repeatable_option("--drop-column", _COLUMNS, "NAME", "A column to drop")] = None,
    rename_columns: Annotated[
        Texts, _repeatable_option("--rename-column", _COLUMNS, "OLD=NEW", "A new name for a column")
    ] = None,
    widen: Annotated[Texts, _repeatable_option("--widen", _COLUMNS, "'NAME TYPE'", "A wider type for a column")] = None,
    put: Annotated[Texts, _repeatable_option("--set", _PROPERTIES, "NAME=VALUE", "A table property to set")] = None,
    unset: Annotated[Texts, _repeatable_option("--unset", _PROPERTIES, "NAME", "A table property to remove")] = None,
) -> None:
    """Change columns, the partitioning of new files, or properties; only metadata changes."""
    evolution = _Evolution(
        command.table_to_change(table),
        (add or (), drop or (), parse_pairs(rename, "--rename")),
        (add_columns or (), drop_columns or (), parse_pairs(rename_columns, "--rename-column"), widen or ()),
        (parse_pairs(put, "--set"), unset or ()),
    )
    if not any((*evolution.partition_changes, *evolution.column_changes, *evolution.property_changes)):
        raise UserError("Say what to change: columns, partition fields or properties. `neve evolve --help` lists them.")
    question = f"Drop {', '.join(drop_columns)} of {table}?" if drop_columns else ""
    run_command(command, evolution.metadata_change().command_plan(f"Evolving {table}", evolution.commit, question))


@dataclass(frozen=True)
class _Evolution:
    """The requested changes; columns are committed first, then partition fields, then properties."""

    table: Table
    partition_changes: tuple[Any, ...]  # add, drop, rename
    column_changes: tuple[Any, ...]  # add, drop, rename, widen
    property_changes: tuple[Any, ...]  # set, remove

    def metadata_change(self) -> MetadataChange:
        """Return the table before and after; wrong input is rejected here."""
        current = self.table.context
        evolved = self._schema_change().preview_context() if any(self.column_changes) else current
        put, removed = self.property_changes
        _table_properties(put).check()
        properties = {**current.metadata.properties, **put}
        after = {
            **_table_facts(evolved),
            "partitioned_by": _partition_fields(_evolved_spec(evolved.metadata, *self.partition_changes)),
            "properties": {name: value for name, value in properties.items() if name not in removed},
        }
        return MetadataChange(f"Evolve table {current.name}", _table_facts(current), after)

    def commit(self) -> None:
        """Commit the changes."""
        if any(self.column_changes):
            self._schema_change().commit()
        if any(self.partition_changes):
            self.table.evolve_partitions(*self.partition_changes)
        put, removed = self.property_changes
        if put:
            self.table.set_properties(**put)
        if removed:
            self.table.remove_properties(*removed)

    def _schema_change(self) -> Any:
        add, drop, rename, widen = self.column_changes
        change = self.table.evolve_schema()
        for text in add:
            for column in _schema_of_ddl(text).fields:
                change.add_column(column.name, column.field_type, column.doc, column.required)
        for text in widen:
            for column in _schema_of_ddl(text).fields:
                change.update_column(column.name, column.field_type, doc=column.doc)
        for name in drop:
            change.delete_column(name)
        for old, new in rename.items():
            change.rename_column(old, new)
        return change


def _table_facts(context: TableContext) -> dict[str, Any]:
    metadata = context.metadata
    columns = [
        f"{f.name} {f.field_type}{' required' if f.required else ''}{'' if f.doc is None else f' comment {f.doc!r}'}"
        for f in metadata.schema().fields
    ]
    return {
        "columns": columns,
        "partitioned_by": _partition_fields(metadata.spec()),
        "properties": dict(metadata.properties),
    }


def _partition_fields(spec: Any) -> list[str]:
    return [f"{f.name} ({f.transform})" for f in spec.fields]


@writing_verb
def upgrade(
    command: Command,
    table: TableName,
    to: Annotated[int, typer.Option(help="The format version: 2, 3 or 4.")],
) -> None:
    """Upgrade a table to a later format version. Only metadata changes; there is no way back but `neve export`."""
    upgraded = command.table_to_change(table)
    current = upgraded.context.metadata.format_version
    if to < current or to not in (1, 2, 3, 4):
        later = " or ".join(map(str, range(current + 1, 5)))
        advice = f"Give {later}." if later else "There is no later one."
        raise UserError(f"Cannot move table {upgraded.name} from format version {current} to {to}. {advice}")
    before, after = {"format_version": current}, {"format_version": to}
    change = MetadataChange(f"Upgrade table {upgraded.name}", before, after)
    question = f"Upgrade {table} from format version {current} to {to}? There is no way back."
    run_command(command, change.command_plan(f"Upgrading {table}", lambda: upgraded.upgrade(to), question))


@writing_verb
def export(
    command: Command,
    table: TableName,
    to: Annotated[int, typer.Option(help="The format version to write.")] = 3,
) -> None:
    """Write the metadata of a table in format version 3, over the same data files; prints the metadata file."""
    exported = command.table_to_change(table)
    metadata = exported.context.metadata
    refs = sorted(metadata.refs)
    versions = f"version {metadata.format_version} metadata of {exported.name} as version {to}"
    what = f"{versions}: {', '.join(refs) or 'no branch'}"
    if command.dry_run:
        plan = {"format_version": metadata.format_version, "exported_version": to, "refs": refs}
        print_plan(command, plan, f"Export {what}")
        return
    with show_progress(command.screen, f"Exporting {table}"):
        path = exported.export_metadata(to)
    if command.as_json:
        command.print_json("done", metadata_location=path, format_version=to, summary=f"exported {what}")
    else:
        command.screen.print_text(path)
