"""An open file, a task and a schema, joined to the projection that reads one into the other."""

from __future__ import annotations

from pyiceberg.schema import Schema

from neve.run.arrow.formats import DataFile
from neve.run.arrow.ids import FileField, identified
from neve.run.arrow.lineage import computed_columns, lineage_columns
from neve.run.arrow.project import Projection, Source, compile_projection
from neve.run.arrow.tasks import FileTask, ReadTarget

__all__ = ["bind", "fields_with_ids"]


def bind(data: DataFile, task: FileTask, schema: Schema, target: ReadTarget) -> Projection:
    """How rows of a schema, which need not be the target's own, are made from an open data file."""
    source = Source(
        path=task.path,
        fields=fields_with_ids(data, task.path, target),
        constants=task.partition,
        computed=computed_columns(task, schema, target.carrier),
        fallback=lineage_columns(task, target.carrier),
        prunes_nested=data.prunes_nested,
    )
    return compile_projection(schema, source, target.carrier)


def fields_with_ids(data: DataFile, path: str, target: ReadTarget) -> tuple[FileField, ...]:
    """The columns of an open file, each with the id of the table field it holds."""
    return identified(data.fields, path, target.name_mapping, target.schemas or [target.schema])
