"""Replace the definition and the rows of a table, which keeps its id, its history, its location and its other branches.

What a concurrent writer commits before the replacement is in the history of the table, but not in its rows, as if it
had been committed before. If the new rows were read from the table itself, it is a conflict.

Isolation: fails if the columns or partition fields were changed meanwhile, so that the written files would not fit.
Writes: data files under the new default spec, one manifest for them.

>>> from neve.ops.metadata.create_table import schema_of
>>> replacement = replacement_of(t.context, schema_of("id BIGINT, day DATE", 2), ["day"])
>>> ReplaceTable(t.context, [{"id": 9}], replacement=replacement).execute().rows_added
1
>>> t.refresh().schema.column_names, len(t.iceberg.snapshots())
(['id', 'day'], 2)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId

from neve.commit.actions import Action, Overwrite
from neve.commit.outcome import Outcome
from neve.commit.protocol import MetadataChange
from neve.errors import CommitConflict, UnsupportedFeature
from neve.model.ddl import spec_of_terms
from neve.model.metadata import TableMetadata
from neve.model.properties import TableProperties
from neve.model.replacement import Replacement
from neve.ops.context import TableContext
from neve.ops.destination import Destination
from neve.ops.metadata.evolve import RequirementsAndUpdates, commit_updates, new_location
from neve.ops.verb import NOTHING_TO_COMMIT, Execution
from neve.ops.write.append import WritePlan, WriteRows, WrittenRows, with_added_files
from neve.run.spark.input_rows import write_rows
from neve.run.write.target import WriteTarget
from neve.tree.entries import EntryTable

_FORMAT_VERSION = "format-version"


def replacement_of(
    context: TableContext,
    schema: Schema,
    partition_by: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
    location: str | None = None,
) -> Replacement:
    """Return a new definition of a table; properties that are not given stay as they are."""
    values = dict(properties or {})
    TableProperties(values).check()
    version = values.pop(_FORMAT_VERSION, None)
    return Replacement(
        schema,
        spec_of_terms(list(partition_by), schema),
        properties=values,
        location=None if location is None else new_location(context, location),
        format_version=None if version is None else int(version),
    )


def replace_definition(context: TableContext, change: MetadataChange) -> None:
    """Give a table a new definition and no rows."""

    def change_state(state: TableContext) -> RequirementsAndUpdates:
        return change(state.metadata)

    commit_updates(context, change_state, "replacement")


@dataclass(frozen=True)
class ReplaceTable(WriteRows):
    """A replacement of the definition of a table and of its rows."""

    replacement: Replacement = field(kw_only=True)
    reads_itself: bool = False  # the rows come from the table

    title = "replacement"

    def _action(self, context: TableContext, head: Snapshot | None) -> Overwrite:
        return Overwrite(row_filter=AlwaysTrue())  # which the history shows; no file is left to be removed

    def _plan(self, context: TableContext) -> WritePlan:
        if (destination := self._destination(context)) != Destination():
            raise UnsupportedFeature(
                f"Cannot stage the replacement of table {context.name} ({destination}), as its property "
                "write.wap.enabled and the Spark session ask for: a table has one definition for all branches. Unset "
                "spark.wap.id and spark.wap.branch first."
            )
        metadata = self.replacement.applied_to(context.metadata)
        return WritePlan(self._action(context, context.head()), WriteTarget.of(metadata, context.facts.io_properties))

    def _write(self, context: TableContext, plan: WritePlan, execution: Execution) -> WrittenRows:
        with execution.phase("write"):
            files = EntryTable(write_rows(self.rows, plan.target), plan.target.specs)
        action = with_added_files(plan.action, files)
        return WrittenRows(files, action=action, written_files=files["file_path"].to_pylist())

    def _publish(self, context: TableContext, plan: WritePlan, written: Any, execution: Execution) -> Outcome:
        change = self._change_of(context, plan)
        if not len(written.files):
            replace_definition(context, change)
            return NOTHING_TO_COMMIT
        return context.commit(
            cast(Action, written.action),
            properties=self.properties,
            written_files=written.written_files,
            change_metadata=change,
        )

    def _change_of(self, context: TableContext, plan: WritePlan) -> MetadataChange:
        """Return the change of metadata, which rejects a state that the written files do not fit."""
        head_id = context.metadata.current_snapshot_id

        def change(metadata: TableMetadata) -> RequirementsAndUpdates:
            after = self.replacement.applied_to(metadata)
            spec = plan.target.specs[plan.target.spec_id]
            if (after.schema(), after.spec()) != (plan.target.schema, spec):
                raise CommitConflict(
                    f"The columns or partition fields of table {context.name} were changed by a concurrent writer. "
                    "Run the statement again."
                )
            if not self.reads_itself:
                return self.replacement.requirements(metadata), self.replacement.updates(metadata)
            if metadata.current_snapshot_id != head_id:
                raise CommitConflict(
                    f"The rows of table {context.name}, from which the new ones were read, were changed by a "
                    "concurrent writer. Run the statement again."
                )
            is_unchanged = AssertRefSnapshotId(ref="main", snapshot_id=head_id)
            return (*self.replacement.requirements(metadata), is_unchanged), self.replacement.updates(metadata)

        return change
