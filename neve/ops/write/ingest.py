"""Read files of another engine and write their rows to a table, in the table's own layout; the files stay untouched.

Unlike `add_files`, which takes the files as they are, the rows are partitioned, sorted and encoded as the table's
properties say, whatever the folders look like. The files are Parquet, ORC or Avro; their columns are matched by name,
and their values are converted as those of an append. Folders such as `region=eu` give values to columns. A column that
the table does not have, and a value that does not fit, is an error, and nothing is written.

Files are read in threads of this process, or in tasks of Spark if they are many, and no row passes through Spark unless
the table is sorted.

Isolation: an append never conflicts with a concurrent writer.
Writes: data files under the current default spec, one manifest for them.

>>> import pyarrow.parquet as pq
>>> folder = Path("arrived/region=apac")
>>> folder.mkdir(parents=True)
>>> pq.write_table(pa.table({"id": [11, 12]}), folder / "part-0.parquet")
>>> t.ingest("arrived").execute().rows_added
2
>>> t.scan("id > 10").to_arrow().to_pylist()
[{'id': 11, 'region': 'apac'}, {'id': 12, 'region': 'apac'}]
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from neve.catalog.entries import find_overlap
from neve.commit.actions import Append
from neve.commit.summary import refuse_reserved_properties
from neve.errors import NeveError, UserError
from neve.io.files import file_size
from neve.io.parallel import map_in_threads, reader_count
from neve.io.paths import refuse_unreadable
from neve.ops.context import TableContext
from neve.ops.results import WriteResult
from neve.ops.verb import Execution, StageableVerb
from neve.ops.write.add_files import list_source
from neve.ops.write.append import WrittenRows, write_result
from neve.plan.foreign_files import IngestPlan, plan_ingestion
from neve.predicate.constants import parse_time_zone
from neve.run.spark.foreign_rows import ForeignRowsJob
from neve.run.write.target import WriteTarget
from neve.tree.entries import EntryTable


@dataclass(frozen=True)
class Ingest(StageableVerb[IngestPlan, WriteResult]):
    """Files whose rows are to be written: `.plan()` and `.explain()` show them, `.execute()` writes the rows.

    `.branch(name)`, `.stage(id)` and `.snapshot_property(name, value)` are those of other writes.
    """

    source: str | Path | Sequence[str | Path] = ""
    file_format: str | None = None

    title = "ingestion of files"

    def _check(self) -> None:
        refuse_reserved_properties(self.properties)
        files = [self.source] if isinstance(self.source, str | Path) else self.source
        if not isinstance(files, list | tuple) or not all(isinstance(each, str | Path) and str(each) for each in files):
            raise UserError(f"Cannot ingest {self.source!r}: give the path of a folder, or a list of paths of files.")

    def _plan(self, context: TableContext) -> IngestPlan:
        self._destination(context).head(context)  # an unknown branch is an error before any file is read
        source = [self.source] if isinstance(self.source, str | Path) and os.path.isfile(self.source) else self.source
        listing, root = list_source(context, source)
        own = None if root is None else find_overlap(context.metadata, context.iceberg.metadata_location, root)
        if own is not None:
            raise UserError(f"Cannot ingest {root}: it overlaps the table's own folder {own}, with rows that it has.")
        plan = plan_ingestion(
            listing if root is not None else _with_sizes(listing, context),
            context.metadata.schema(),
            context.metadata.default_spec_id,
            root=root,
            file_format=self.file_format,
            zone=parse_time_zone(context.time_zone()),
        )
        if not plan.files.num_rows:
            hint = " Patterns are not expanded: give the folder, or a list of files." if "*" in str(self.source) else ""
            raise UserError(f"Found no data files to ingest in {self.source}.{hint}")
        refuse_unreadable(plan.files["file_path"], context.metadata.location)
        return plan

    def _write(self, context: TableContext, plan: IngestPlan, execution: Execution) -> WrittenRows:
        target = WriteTarget.of(context.metadata, context.facts.io_properties, spec_id=plan.spec_id)
        with execution.phase("write"):
            job = ForeignRowsJob(plan.files, target, context.spark, context.running_spark())
            files = EntryTable(job.write(), context.specs)
        return WrittenRows(files, action=Append(files), written_files=files["file_path"].to_pylist())

    def _result(
        self, context: TableContext, plan: IngestPlan, written: WrittenRows, execution: Execution
    ) -> WriteResult:
        return write_result(written.files, execution)


def _with_sizes(listing: pa.Table, context: TableContext) -> pa.Table:
    """Return files that were named one by one with their sizes."""
    paths = listing["path"].to_pylist()

    def size(path: str) -> int:
        try:
            return file_size(context.io, path)
        except (NeveError, TypeError) as e:  # PyArrow has no size for a folder
            raise UserError(f"Cannot ingest {path}: there is no such file.") from e

    sizes = map_in_threads(size, paths, reader_count(context.io, paths, 0))
    return listing.set_column(listing.schema.get_field_index("size"), "size", pa.array(sizes, pa.int64()))
