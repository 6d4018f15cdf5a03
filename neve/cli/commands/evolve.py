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
    work: Command,
    table: TableName,
    add: Annotated[
        Texts, _repeatable_option("--add", _PARTITIONS, "TERM", "A field for new files: days(ts), bucket(16, id)")
    ] = None,
    drop: Annotated[Texts, _repeatable_option("--drop", _PARTITIONS, "TERM", "A field new files do without")] = None,
    rename: Annotated[Texts, _repeatable_option("--rename", _PARTITIONS, "OLD=NEW", "Another name of a field")] = None,
    add_columns: Annotated[Texts, _repeatable_option("--add-column", _COLUMNS, "'NAME TYPE'", "A new column")] = None,
    drop_columns: Annotated[Texts, _repeatable_option("--drop-column", _COLUMNS, "NAME", "A column that goes")] = None,
    rename_columns: Annotated[
        Texts, _repeatable_option("--rename-column", _COLUMNS, "OLD=NEW", "Another name of a column")
    ] = None,
    widen: Annotated[Texts, _repeatable_option("--widen", _COLUMNS, "'NAME TYPE'", "A wider type of a column")] = None,
    put: Annotated[Texts, _repeatable_option("--set", _PROPERTIES, "NAME=VALUE", "A table property")] = None,
    unset: Annotated[Texts, _repeatable_option("--unset", _PROPERTIES, "NAME", "A table property that goes")] = None,
) -> None:
    """Change columns, how new files are partitioned, or properties; only metadata changes."""
    found = work.table_to_change(table)
    steps = _Evolution(
        found,
        (tuple(add or ()), tuple(drop or ()), parse_pairs(rename, "--rename")),
        (
            tuple(add_columns or ()),
            tuple(drop_columns or ()),
            parse_pairs(rename_columns, "--rename-column"),
            tuple(widen or ()),
        ),
        (parse_pairs(put, "--set"), tuple(unset or ())),
    )
    if not any(any(part) for part in (steps.partition_changes, steps.column_changes, steps.property_changes)):
        raise UserError("Say what to change: columns, partition fields or properties. `neve evolve --help` lists them.")
    question = f"Drop {', '.join(drop_columns)} of {table}?" if drop_columns else ""
    run_command(work, steps.metadata_change().command_plan(f"Evolving {table}", steps.commit, question))


@dataclass(frozen=True)
class _Evolution:
    """What is asked for, in the order in which it lands."""

    table: Table
    partition_changes: tuple[Any, ...]  # add, drop, rename
    column_changes: tuple[Any, ...]  # add, drop, rename, widen
    property_changes: tuple[Any, ...]  # set, remove

    def metadata_change(self) -> MetadataChange:
        """What the table is, and what it will be; wrong input is refused here."""
        now = self.table.context
        foreseen = self._schema_change().preview_context() if any(self.column_changes) else now
        put, gone = self.property_changes
        _table_properties(put).check()
        properties = {**now.metadata.properties, **put}
        after = {
            **_table_facts(foreseen),
            "partitioned_by": _partition_fields(_evolved_spec(foreseen.metadata, *self.partition_changes), foreseen),
            "properties": {name: value for name, value in properties.items() if name not in gone},
        }
        return MetadataChange(f"Evolve table {now.name}", _table_facts(now), after)

    def commit(self) -> None:
        """Make the changes."""
        if any(self.column_changes):
            self._schema_change().commit()
        if any(self.partition_changes):
            self.table.evolve_partitions(*self.partition_changes)
        put, gone = self.property_changes
        if put:
            self.table.set_properties(**put)
        if gone:
            self.table.remove_properties(*gone)

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
    return {
        "columns": [_column(f) for f in metadata.schema().fields],
        "partitioned_by": _partition_fields(metadata.spec(), context),
        "properties": dict(metadata.properties),
    }


def _column(field: Any) -> str:
    comment = "" if field.doc is None else f" comment {field.doc!r}"
    return f"{field.name} {field.field_type}{' required' if field.required else ''}{comment}"


def _partition_fields(spec: Any, context: TableContext) -> list[str]:
    return [f"{f.name} ({f.transform})" for f in spec.fields]


@writing_verb
def upgrade(
    work: Command,
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
    run_command(work, change.command_plan(f"Upgrading {table}", lambda: found.upgrade(to), question))


@writing_verb
def export(
    work: Command,
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
        print_plan(work, plan, f"Export {what}")
        return
    with show_progress(work.screen, f"Exporting {table}"):
        path = found.export_metadata(to)
    if work.as_json:
        work.print_json("done", metadata_location=path, format_version=to, summary=f"exported {what}")
    else:
        work.screen.print_text(path)
