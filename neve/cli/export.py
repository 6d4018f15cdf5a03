"""`neve export`: the metadata once more, for engines that cannot read version 4."""

from __future__ import annotations

from typing import Annotated

import typer

from neve.cli.carrying import tell_plan
from neve.cli.options import TableName
from neve.cli.progress import watched
from neve.cli.work import Work, writing_verb

__all__ = ["export"]


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
