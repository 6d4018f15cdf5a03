"""Where cases are played: one lake, a table of each history made once, another writer, a catalog that may forget.

A table comes to be what a case finds by steps, each done to the table and to the model of its rows. A step is a table
with one verb and its options; `VERBS` lists them. The model is changed by what the step says, never by what the table
shows afterwards.

A case's table starts as another name for the metadata of its history's table: Iceberg never changes what is written,
so nothing has to be copied, and whatever a case removed or damaged would be missed by the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from tests.support.dml_cases import Case, Run, Step, histories
from tests.support.reference_engine import Finished
from tests.support.spark_oracle import Oracle
from tests.support.tables import commit_to, delete_equal, stored
from tests.support.text_rows import Rows
from tests.support.two_writers import TwoWriters

TABLE = "db.t"
SOURCE = "db.source"


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


@dataclass(frozen=True)
class Template:
    """A history that was played once: where its metadata is and which rows it left."""

    location: str
    rows: Rows


@dataclass
class Stage(TwoWriters):
    """One lake for many cases."""

    templates: dict[tuple[str, int], Template] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.finished = Finished()
        rows = self.folder / "rows"
        rows.mkdir()
        self.oracle = Oracle(self.spark, rows)

    # --- tables ---

    def template(self, history: str | list[Step], version: int) -> Template:
        """The table of a history, made when it is first asked for."""
        key = history if isinstance(history, str) else json.dumps(history, default=str), version
        if key not in self.templates:
            builder = Builder(self.theirs, self.oracle, f"db.h{len(self.templates)}", version)
            for step in flat(history):
                builder.take(step)
            self.templates[key] = Template(builder.table.iceberg.metadata_location, builder.rows)
        return self.templates[key]

    def opened(self, case: Case, run: Run) -> tuple[Table, Rows]:
        """The table of a case before its statement, and its rows."""
        template = self.template(case.history, run.version)
        self._forget(TABLE)
        table = self.theirs.register_table(TABLE, template.location)
        modes = {f"write.{command}.mode": run.mode_name for command in ("delete", "update", "merge")}
        return table.set_properties(**modes, **_settings(case), **case.properties), template.rows

    def sourced(self, case: Case) -> Rows | None:
        """The source rows of a case, known to Spark and where it is named to the lake."""
        if case.source is None:
            return None
        rows = Rows.of_text(case.source)
        self.oracle.show("source", rows)
        if SOURCE in " ".join(case.statements):
            self._forget(SOURCE)
            self.theirs.create_table(SOURCE, rows.ddl).append(rows.arrow())
        return rows

    def _forget(self, name: str) -> None:
        if name in self.theirs.tables("db"):
            self.theirs.drop_table(name)

    # --- what happens around a statement ---

    def interrupted(self, case: Case, rows: Rows) -> Builder:
        """Have another writer commit between plan and commit; the rows it appends show in the builder."""
        other = Builder(self.theirs, self.oracle, TABLE, 0, rows)

        def act() -> None:
            for step in case.steps_meanwhile:
                other.take(step)

        self.interrupt(*([act] if case.steps_meanwhile else []))
        return other

    @contextmanager
    def forgetting(self, case: Case) -> Iterator[None]:
        """Have the catalog lose the answer to the swap of a statement."""
        self.catalog.forgets = case.unknown
        try:
            yield
        finally:
            self.catalog.forgets, self.catalog.lost = None, False


def flat(history: str | list[Step | str]) -> Iterator[Step]:
    """The steps of a history; a name among them stands for the steps of that history."""
    for step in histories()[history] if isinstance(history, str) else history:
        yield from flat(step) if isinstance(step, str) else [step]


def _settings(case: Case) -> dict[str, str]:
    settings = {}
    if case.isolation:
        settings |= {f"write.{command}.isolation-level": case.isolation for command in ("delete", "update", "merge")}
    if case.outcome == "conflict":
        settings["neve.commit.reruns"] = "0"
    return settings


def _written(rows: Rows) -> pa.Table:
    """Rows as they are given to append: UUIDs as the 16 bytes they are."""
    table = rows.arrow()
    for at, column in enumerate(rows.columns):
        if column.kind == "uuid":
            values = [None if v is None else UUID(v).bytes for v in table.column(at).to_pylist()]
            table = table.set_column(at, column.name, pa.array(values, pa.binary(16)))
    return table
