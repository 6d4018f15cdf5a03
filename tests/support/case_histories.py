"""How a table comes to be what a case finds: steps, each done to the table and to the model of its rows.

A step is a table with one verb and its options; `VERBS` lists them. The model is changed by what the step says, never
by what the table shows afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from neve import Lake, Table
from neve.commit.actions import Append, RemovedFiles, RewriteFiles
from neve.model.ddl import schema_of_ddl
from neve.run.write.data_files import write_arrow_table
from neve.run.write.file_schema import arrow_file_schema
from neve.run.write.target import WriteTarget
from neve.tree.entries import Content, EntryTable
from tests.support.spark_oracle import Oracle
from tests.support.tables import commit_to, delete_equal, stored
from tests.support.text_rows import Rows

Step = Mapping[str, Any]


@dataclass
class Builder:
    """A table being made, and the rows it must hold by now."""

    lake: Lake
    oracle: Oracle
    name: str
    version: int
    rows: Rows = field(default_factory=lambda: Rows(()))
    theirs: tuple[dict[str, Any], ...] = ()  # rows of the latest append

    def take(self, step: Step) -> None:
        """Do one step."""
        verb = next(iter(step))
        assert verb in VERBS, f"Unknown step {verb!r}. Known: {', '.join(VERBS)}."
        getattr(self, f"_{verb}")(**step)

    @property
    def table(self) -> Table:
        return self.lake.table(self.name)

    # --- the table and its rows ---

    def _create(
        self,
        create: str,
        by: Sequence[str] = (),
        order: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        version: int | None = None,
    ) -> None:
        self.rows = Rows.of_columns(create)
        schema = schema_of_ddl(self.rows.ddl)
        fields = [
            SortField(source_id=schema.find_field(name).field_id, transform=IdentityTransform()) for name in order
        ]
        self.lake.create_table(
            self.name,
            schema,
            partition_by=by,
            sort_order=SortOrder(*fields, order_id=1) if fields else UNSORTED_SORT_ORDER,
            format_version=version or self.version,
            properties=properties,
        )

    def _append(self, append: str, branch: str = "main") -> None:
        self.theirs = tuple(self.rows.read(append))
        self.table.append(_written(Rows(self.rows.columns, self.theirs)), branch=branch)
        if branch == "main":
            self.rows = self.rows.plus(list(self.theirs))

    def _sql(self, sql: str, oracle: str | None = None) -> None:
        """A statement on `{table}` and what it makes of the rows; without an oracle the case's own accounts for it."""
        self.lake.sql(sql.replace("{table}", self.name))
        if oracle is not None:
            self.rows = self.rows.with_values(self.oracle.answer(oracle, rows=self.rows))

    # --- what a table is ---

    def _partition(self, partition: Mapping[str, list[str]]) -> None:
        self.table.evolve_partitions(add=partition.get("add", ()), drop=partition.get("drop", ()))

    def _rename(self, rename: Mapping[str, str]) -> None:
        for old, new in rename.items():
            with self.table.evolve_schema() as change:
                change.rename_column(tuple(old.split(".")), new)
            self.rows = self.rows.renamed(old, new)

    def _drop(self, drop: str) -> None:
        with self.table.evolve_schema() as change:
            change.delete_column((drop,))
        self.rows = self.rows.without(drop)

    def _promote(self, promote: Mapping[str, str]) -> None:
        for name, kind in promote.items():
            with self.table.evolve_schema() as change:
                change.update_column((name,), schema_of_ddl(f"x {kind}").find_type("x"))
            self.rows = self.rows.promoted(name, kind)

    def _add(self, add: str, default: Any = None) -> None:
        self.rows = self.rows.with_column(add, default)
        column = self.rows.columns[-1]
        with self.table.evolve_schema() as change:
            kind = schema_of_ddl(f"x {column.kind}").find_type("x")
            change.add_column((column.name,), kind, required=column.required, default_value=default)

    def _upgrade(self, upgrade: int) -> None:
        self.table.upgrade(upgrade)

    def _branch(self, branch: str) -> None:
        self.table.create_branch(branch)

    def _properties(self, properties: Mapping[str, str]) -> None:
        self.table.set_properties(**properties)

    # --- files as other writers make them ---

    def _empty_file(self, empty_file: bool) -> None:
        """A data file of no rows: other writers leave them, this engine does not."""
        table = self.table
        commit_to(table, Append(stored(table, arrow_file_schema(table.schema).empty_table(), Content.DATA)))

    def _equality_deletes(self, equality_deletes: Mapping[str, list[Any]]) -> None:
        """An equality delete of one column under the default spec, which must be unpartitioned."""
        (name, values), *_ = equality_deletes.items()
        delete_equal(self.table, *values, column=name)
        kept = tuple(row for row in self.rows.values if row[name] not in values)
        self.rows = Rows(self.rows.columns, kept)

    def _compact(self, compact: bool) -> None:
        """All live rows into new files of the default spec, as a maintenance job does it."""
        table = self.table
        plan = table.scan().plan()
        rows = table.scan().to_arrow(engine="arrow")
        metadata = table.context.metadata
        files = EntryTable(
            write_arrow_table(rows, WriteTarget.of(metadata, table.context.facts.io_properties)), plan.files.specs
        )
        vectors = RemovedFiles(entries=plan.deletes) if metadata.format_version > 2 else RemovedFiles()
        commit_to(table, RewriteFiles(RemovedFiles(entries=plan.files), files, vectors))


VERBS = (
    "create",
    "append",
    "sql",
    "partition",
    "rename",
    "drop",
    "promote",
    "add",
    "upgrade",
    "branch",
    "properties",
    "empty_file",
    "equality_deletes",
    "compact",
)


def _written(rows: Rows) -> pa.Table:
    """Rows as they are given to append: UUIDs as the 16 bytes they are."""
    table = rows.arrow()
    for at, column in enumerate(rows.columns):
        if column.kind == "uuid":
            values = [None if v is None else UUID(v).bytes for v in table.column(at).to_pylist()]
            table = table.set_column(at, column.name, pa.array(values, pa.binary(16)))
    return table
