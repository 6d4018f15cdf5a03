"""Make a table of one version of a Delta table: its files stay where they are, and nothing is copied.

The files, their partitions and their deleted rows are those that Delta's log names. Deleted rows become position
deletes or deletion vectors of the new table. Columns that Delta has renamed or dropped are found as Delta finds them,
by the field ids of the files or by the names that they have there. New data goes to the table's own location.

Maintenance deletes no file of the Delta table, as the new one has the property `gc.enabled=false`. VACUUM of the Delta
table does: it deletes files that the Delta table no longer needs, and the new one may.

Isolation: fails if the name is taken. Without the files, the table is dropped again.
Writes: table metadata, one manifest, and the deletes.

>>> import pyarrow as pa
>>> from deltalake import write_deltalake
>>> write_deltalake("events", pa.table({"id": [7, 8], "day": ["mon", "tue"]}), partition_by=["day"])
>>> lake = LakeContext(t.context.catalog, t.context.spark, lambda: None)
>>> snapshot_delta(lake, "events", "db.events")[1].summary
'2 rows added, 2 files added to 2 partitions'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.name_mapping import create_mapping_from_schema

from neve.commit.actions import RowDelta
from neve.errors import TableError, UserError
from neve.io.delta_log import DeltaVersion, read_delta_version
from neve.io.paths import refuse_unreadable
from neve.model.partition import Specs
from neve.ops.context import LakeContext, TableContext
from neve.ops.metadata.create_table import create_table
from neve.ops.results import AddFilesResult
from neve.ops.verb import Execution
from neve.ops.write.add_files import NAME_MAPPING, AddFiles, DescribedFiles
from neve.ops.write.snapshot_folder import SNAPSHOT_PROPERTIES, dropped_without_files, identity_terms
from neve.plan.partition_folders import AddFilesPlan
from neve.run.write.delete_files import DeletedPositions, write_deletes
from neve.run.write.target import WriteTarget
from neve.tree.entries import EntryTable


def snapshot_delta(
    lake: LakeContext,
    source: str | Path,
    name: str | tuple[str, ...],
    *,
    version: int | None = None,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
    parallelism: int | None = None,
) -> tuple[TableContext, AddFilesResult]:
    """Create a table over the files of a version, by default the newest; return it, and what was added."""
    delta = read_delta_version(source, version, lake.catalog.properties)
    created = create_table(
        lake,
        name,
        delta.columns.schema,
        identity_terms(delta.partition_columns),
        location=location,
        properties={**SNAPSHOT_PROPERTIES, **_own_properties(delta), **(properties or {})},
        keeps_ids=delta.is_mapped,
    )
    with dropped_without_files(created):
        if not delta.files.num_rows:
            return created, AddFilesResult(snapshot_id=None)
        added = AddDeltaFiles(created, source=delta.location, parallelism=parallelism, delta=delta).execute()
    return created.refreshed(), added


def _own_properties(delta: DeltaVersion) -> dict[str, str]:
    found = {"snapshot_source": "delta", "original_location": delta.location}
    if delta.is_mapped:
        found[NAME_MAPPING] = create_mapping_from_schema(delta.columns.stored_schema).model_dump_json()
    return found


@dataclass(frozen=True)
class AddDeltaFiles(AddFiles):
    """The files of a version of a Delta table, with their deleted rows."""

    _: KW_ONLY
    delta: DeltaVersion

    @property
    def has_full_mapping(self) -> bool:
        """Delta's column mapping names all columns, and a file may have others that were dropped."""
        return self.delta.is_mapped

    def _plan(self, context: TableContext) -> AddFilesPlan:
        spec_id = context.metadata.default_spec_id
        files = _entries(self.delta, context.specs, spec_id)
        refuse_unreadable(files["file_path"], context.metadata.location)
        return AddFilesPlan(files, spec_id)

    def _write(self, context: TableContext, plan: AddFilesPlan, execution: Execution) -> DescribedFiles:
        described = super()._write(context, plan, execution)
        deleted = _deleted_positions(described.files, self.delta)
        if not len(deleted.files):
            return described
        if context.metadata.format_version < 2:
            raise UserError(
                f"Rows of the Delta table in {self.delta.location} are deleted, and a table of format version 1 has no "
                "deletes of rows. Give format-version 2 or 3."
            )
        with execution.phase("write deletes"):
            deletes = write_deletes(deleted, WriteTarget.of(context.metadata, context.facts.io_properties))
        return replace(
            described,
            action=RowDelta(added_data=described.files, added_deletes=deletes),
            written_files=deletes["file_path"].to_pylist(),
        )

    def _result(
        self, context: TableContext, plan: AddFilesPlan, written: DescribedFiles, execution: Execution
    ) -> AddFilesResult:
        result = super()._result(context, plan, written, execution)
        return replace(result, rows_added=result.rows_added - sum(d.cardinality for d in self.delta.deleted.values()))


def _entries(delta: DeltaVersion, specs: Specs, spec_id: int) -> EntryTable:
    """Return the files as entries, each with its partition."""
    columns = {
        "manifest": -1,
        "status": 1,
        "content": 0,
        "file_path": delta.files["path"],
        "file_format": "PARQUET",
        "spec_id": spec_id,
        "file_size_in_bytes": delta.files["size"],
    }
    types = {u.column: u.arrow_type for u in specs.union}
    for column, name in zip(specs.columns(spec_id), delta.partition_columns, strict=True):
        columns[column] = delta.files[f"partition.{name}"].cast(types[column])
    return EntryTable.from_columns(columns, specs, delta.files.num_rows)


def _deleted_positions(files: EntryTable, delta: DeltaVersion) -> DeletedPositions:
    some = np.flatnonzero(pc.is_in(files["file_path"], value_set=pa.array([*delta.deleted], pa.string())))
    chosen = files.take(some)
    if unknown := delta.deleted.keys() - {*chosen["file_path"].to_pylist()}:  # their deleted rows would come back
        raise TableError(f"The log of {delta.location} deletes rows of {min(unknown)}, and lists no such file.")
    return DeletedPositions(chosen, [delta.deleted[path] for path in chosen["file_path"].to_pylist()])
