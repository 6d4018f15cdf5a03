"""Statements without Spark: rows read by Arrow, files written by the engine's own writers, its own commit.

A statement is a value with a meaning in plain Python: the statements that landed, in their order, determine the rows of
the table. `prepare` reads the table and writes files; `land` commits them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import eq, ge, lt, ne
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from neve import Lake, Table
from neve.catalog.base import NeveCatalog
from neve.commit.actions import Action, Append, DeleteFiles, Overwrite, RemovedFiles, RewriteFiles, RowDelta
from neve.commit.environment import Environment
from neve.commit.isolation import Isolation, RowCommand, with_conflict_checks
from neve.commit.outcome import Outcome
from neve.commit.protocol import commit
from neve.io.deletion_vectors import PositionSet
from neve.io.files import delete_files
from neve.ops.context import TableContext
from neve.ops.rows.changed_files import TouchedFiles, merge_with_existing_deletes, paths_of
from neve.plan.scan import ScanPlan
from neve.predicate import parse
from neve.run.read.scan import read_table
from neve.run.write.data_files import write_arrow_table
from neve.run.write.delete_files import write_deletes
from neve.run.write.target import WriteOptions, WriteTarget
from neve.tree.entries import EntryTable

COLUMNS = "id bigint, region string, n bigint, note string"
NAMES = ("id", "region", "n", "note")
LINEAGE = ("_row_id", "_last_updated_sequence_number")
ID, READ = "proof.id", "proof.read"
NO_WAIT = Environment(sleep=lambda seconds: None)

Row = tuple[Any, ...]
Rows = Counter[Row]
_OPERATORS = {"=": eq, "<": lt, ">=": ge, "<>": ne}


# --- values ---


@dataclass(frozen=True)
class Where:
    """Comparisons of columns with values that must all hold."""

    parts: tuple[tuple[str, str, Any], ...]

    @property
    def text(self) -> str:
        return " AND ".join(f"{column} {operator} {_literal(value)}" for column, operator, value in self.parts)

    def holds(self, row: Row) -> bool:
        return all(_OPERATORS[operator](row[NAMES.index(column)], value) for column, operator, value in self.parts)


def where(*parts: tuple[str, str, Any]) -> Where:
    return Where(tuple(parts))


@dataclass(frozen=True)
class Statement:
    """One change of a table: its kind and its arguments."""

    kind: str
    where: Where | None = None
    rows: tuple[Row, ...] = ()
    add: int = 0
    mode: str = "merge-on-read"
    reads_all: bool = False  # its condition depends on the whole table, as a subquery does

    def after(self, rows: Rows) -> Rows:
        """Return the rows of a table after this statement."""
        gone, new = self.difference(rows)
        return rows - gone + new

    def difference(self, rows: Rows) -> tuple[Rows, Rows]:
        """Return the rows that this statement removes from and adds to a table."""
        return _MEANINGS.get(self.kind, _no_change)(self, rows)

    @property
    def command(self) -> RowCommand:
        return RowCommand(self.kind)

    @property
    def uses_planned_rows(self) -> bool:
        """Return whether it depends on the rows it read; others apply to the rows at commit time."""
        return self.kind in ("delete", "update", "merge")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Statement:
        found = value["where"] and Where(tuple(tuple(p) for p in value["where"]["parts"]))
        return cls(**{**value, "where": found, "rows": tuple(tuple(r) for r in value["rows"])})


def _matching(statement: Statement, rows: Rows) -> Rows:
    found = statement.where
    if statement.reads_all and sum(rows.values()) <= statement.add:
        return Counter()
    return Counter({row: count for row, count in rows.items() if found is None or found.holds(row)})


def _append(statement: Statement, rows: Rows) -> tuple[Rows, Rows]:
    return Counter(), Counter(statement.rows)


def _delete(statement: Statement, rows: Rows) -> tuple[Rows, Rows]:
    return _matching(statement, rows), Counter()


def _update(statement: Statement, rows: Rows) -> tuple[Rows, Rows]:
    gone = _matching(statement, rows)
    return gone, Counter({(i, region, n + statement.add, note): count for (i, region, n, note), count in gone.items()})


def _merge(statement: Statement, rows: Rows) -> tuple[Rows, Rows]:
    source = {row[0]: row for row in statement.rows}
    gone = Counter({row: count for row, count in rows.items() if row[0] in source})
    updated: Rows = Counter()
    for row, count in gone.items():
        updated[source[row[0]]] += count
    inserted = Counter(row for i, row in source.items() if i not in {row[0] for row in gone})
    return gone, updated + inserted


def _overwrite(statement: Statement, rows: Rows) -> tuple[Rows, Rows]:
    return _matching(statement, rows), Counter(statement.rows)


def _no_change(statement: Statement, rows: Rows) -> tuple[Rows, Rows]:
    return Counter(), Counter()


_MEANINGS: dict[str, Callable[[Statement, Rows], tuple[Rows, Rows]]] = {
    "append": _append,
    "delete": _delete,
    "drop": _delete,
    "update": _update,
    "merge": _merge,
    "overwrite": _overwrite,
}


def _literal(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


# --- lakes and rows ---


def open_table(lake: Lake, name: str = "db.t", environment: Environment | None = None) -> Table:
    """Open a table that never starts Spark."""
    found = lake.table(name)
    return table_without_spark(lake.catalog, found.context.iceberg, environment or lake.environment)


def table_without_spark(catalog: NeveCatalog, iceberg: Any, environment: Environment = NO_WAIT) -> Table:
    """Return a table that never starts Spark."""
    return Table(TableContext(catalog, iceberg, lambda: None, environment=environment))  # type: ignore[arg-type, return-value]


def arrow(table: Table, rows: Iterable[Row]) -> pa.Table:
    """Return rows as an Arrow table with the columns of this module."""
    return pa.Table.from_pylist([dict(zip(NAMES, row, strict=True)) for row in rows], ARROW)


ARROW = pa.schema([("id", pa.int64()), ("region", pa.string()), ("n", pa.int64()), ("note", pa.string())])


def rows_of(table: Table, snapshot_id: int | None = None, ref: str | None = None) -> Rows:
    """Return the rows of a snapshot, by default of the current one."""
    found = table.scan(snapshot_id=snapshot_id, ref=ref, columns=NAMES).to_arrow(engine="arrow")
    return Counter(zip(*(found[name].to_pylist() for name in NAMES), strict=True))


# --- writers ---


@dataclass(frozen=True)
class Prepared:
    """An action whose files are written, and the snapshot it was planned on."""

    action: Action | None
    owned: tuple[str, ...] = ()
    start: int | None = None


@dataclass
class StatementWriter:
    """One writer of one table."""

    table: Table
    isolation: Isolation = Isolation.SERIALIZABLE
    branch: str = "main"
    names: Sequence[str] = NAMES
    _context: TableContext = field(init=False, repr=False)
    _new_files: list[str] = field(default_factory=list, repr=False)  # files of the current statement

    def do(self, statement: Statement, key: str = "") -> Outcome | None:
        """Read, write and commit. Return None if there is nothing to change."""
        return self.land(self.prepare(statement), key)

    def prepare(self, statement: Statement) -> Prepared:
        """Read the table and write the files of a statement; on failure delete these files."""
        self._context, self._new_files = self.table.refresh().context, []
        try:
            return self._prepare_by_kind(statement)
        except BaseException:
            delete_files(self._context.io, self._new_files)
            raise

    def _prepare_by_kind(self, statement: Statement) -> Prepared:
        match statement.kind:
            case "append":
                return self._prepare_append(statement.rows)
            case "drop":
                return Prepared(DeleteFiles(row_filter=self._expression(statement)), start=self._start)
            case "overwrite":
                return self._prepare_overwrite(statement)
            case "compact":
                return self.prepare_compaction(statement.where.text if statement.where else None)
        return self._prepare_change(statement)

    def land(self, prepared: Prepared, key: str = "") -> Outcome | None:
        """Commit what was prepared."""
        if prepared.action is None:
            return None
        context = self._context
        value = {ID: key, READ: str(prepared.start)} if key else {}
        return commit(
            context.catalog,
            context.iceberg,
            prepared.action,
            branch=self.branch,
            properties=value,
            environment=context.environment,
            files_of_this_commit=prepared.owned,
        )

    # -- statements of this module -----------------------------------------------------------------------------------

    def _prepare_append(self, rows: Sequence[Row]) -> Prepared:
        files = self._write_files(arrow(self.table, rows))
        return Prepared(Append(files), _paths(files), self._start)

    def _prepare_overwrite(self, statement: Statement) -> Prepared:
        files = self._write_files(arrow(self.table, statement.rows)) if statement.rows else None
        action = Overwrite(
            added=files, row_filter=self._expression(statement), start_snapshot_id=self._start, added_match_filter=True
        )
        return Prepared(with_conflict_checks(action, RowCommand.OVERWRITE, self.isolation), _paths(files), self._start)

    def _prepare_change(self, statement: Statement) -> Prepared:
        source = {row[0]: row for row in statement.rows}
        text = statement.where.text if statement.where else None
        if statement.kind == "merge":
            text = f"id IN ({', '.join(map(str, source))})"
        if statement.reads_all and sum(rows_of(self.table).values()) <= statement.add:
            return Prepared(None)

        def new(row: dict[str, Any]) -> dict[str, Any] | None:
            match statement.kind:
                case "update":
                    return row | {"n": row["n"] + statement.add}
                case "merge":
                    return row | dict(zip(NAMES, source[row["id"]], strict=True))
            return None

        def inserted(matching: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
            existing = {row["id"] for row in matching}
            rows = source.values() if statement.kind == "merge" else ()
            return [dict(zip(NAMES, row, strict=True)) for row in rows if row[0] not in existing]

        return self.prepare_row_change(
            text, new, inserted, statement.command, statement.mode, reads_itself=statement.reads_all
        )

    # -- any columns -------------------------------------------------------------------------------------------------

    def prepare_row_change(
        self,
        text: str | None,
        new: Callable[[dict[str, Any]], dict[str, Any] | None],
        inserted: Callable[[Sequence[dict[str, Any]]], Sequence[dict[str, Any]]] = lambda matching: (),
        command: RowCommand = RowCommand.DELETE,
        mode: str = "merge-on-read",
        *,
        reads_itself: bool = False,
    ) -> Prepared:
        """Change matching rows one by one, as the engine's own statements do, in either mode.

        `new` returns the new row, None to delete the row, or the same object to leave the row unchanged.
        """
        self._context = self.table.refresh().context
        scan = self.table.scan(text, columns=[*self.names, "_file", "_pos", *self._lineage], ref=self._ref)
        matching = scan.to_arrow(engine="arrow").to_pylist()
        changes = [(row, after) for row in matching if (after := new(row)) is not row]
        fresh = [_with_lineage(row, after) for row, after in changes if after is not None]
        fresh += [self._with_null_lineage(row) for row in inserted(matching)]
        gone = _positions_by_file(row for row, _ in changes)
        plan = _with_files(scan.plan(), gone)
        wanted = AlwaysTrue() if reads_itself else self._parse(text)
        if not changes and not fresh:
            return Prepared(None)
        delta = self._delta if mode == "merge-on-read" else self._overwrite_of
        action = delta(plan, gone, fresh, wanted)
        prepared = with_conflict_checks(action, command, self.isolation, reads_itself=reads_itself)
        return Prepared(prepared, _paths(*_added_files(prepared)), self._start)

    def _delta(
        self, plan: ScanPlan, gone: dict[str, list[int]], fresh: list[dict[str, Any]], conflict: BooleanExpression
    ) -> RowDelta:
        files = plan.files["file_path"].to_pylist()
        touched = TouchedFiles(plan, [PositionSet.of(sorted(gone[path])) for path in files])
        dropped, partly = merge_with_existing_deletes(self._context, touched).split_emptied_files()
        removed = dropped.deleted_positions.files
        return RowDelta(
            added_data=self._entries(fresh),
            added_deletes=write_deletes(partly.deleted_positions, self._target) or None,
            removed_data=RemovedFiles(removed) if len(removed) else RemovedFiles(),
            removed_deletes=RemovedFiles(partly.superseded_deletes) if partly.superseded_deletes else RemovedFiles(),
            referenced_data_files=frozenset(files) - paths_of(removed),
            conflict_filter=conflict,
            start_snapshot_id=self._start,
        )

    def _overwrite_of(
        self, plan: ScanPlan, gone: dict[str, list[int]], fresh: list[dict[str, Any]], conflict: BooleanExpression
    ) -> RowDelta | Overwrite:
        if not len(plan.files):
            return RowDelta(added_data=self._entries(fresh), conflict_filter=conflict, start_snapshot_id=self._start)
        live = read_table(plan, self._context.facts).to_pylist()
        remaining = [row for row in live if row["_pos"] not in gone[row["_file"]]]
        return Overwrite(
            added=self._entries([*remaining, *fresh]),
            removed=RemovedFiles(plan.files),
            conflict_filter=conflict,
            start_snapshot_id=self._start,
        )

    def prepare_compaction(self, text: str | None = None, spec_id: int | None = None) -> Prepared:
        """Rewrite the files that may match, with the same rows."""
        self._context = self.table.refresh().context
        scan = self.table.scan(text, columns=[*self.names, "_file", "_pos", *self._lineage], ref=self._ref)
        plan = scan.plan()
        if not len(plan.files):
            return Prepared(None)
        rows = read_table(plan, self._context.facts).to_pylist()
        files = self._entries(rows, spec_id)
        vectors = plan.deletes.filter(pc.equal(plan.deletes["file_format"], "PUFFIN"))
        head = self._context.head(self.branch)
        action = RewriteFiles(
            removed_data=RemovedFiles(plan.files),
            added_data=files,
            removed_deletes=RemovedFiles(vectors),
            data_sequence_number=head.sequence_number or 0 if head is not None else None,
            start_snapshot_id=self._start,
        )
        return Prepared(action, _paths(files), self._start)

    # -- helpers -----------------------------------------------------------------------------------------------------

    @property
    def _ref(self) -> str | None:
        return None if self.branch == "main" else self.branch

    @property
    def _start(self) -> int | None:
        head = self._context.head(self.branch)
        return None if head is None else head.snapshot_id

    @property
    def _lineage(self) -> tuple[str, ...]:
        return LINEAGE if self._context.metadata.format_version >= 3 else ()

    @property
    def _target(self) -> WriteTarget:
        options = WriteOptions(row_lineage=bool(self._lineage))
        return WriteTarget.of(self._context.metadata, self._context.facts.io_properties, options=options)

    def _with_null_lineage(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**dict.fromkeys(LINEAGE), **row}

    def _entries(self, rows: Sequence[dict[str, Any]], spec_id: int | None = None) -> EntryTable | None:
        """Write rows to new files, with their lineage if the format version has it."""
        if not rows:
            return None
        target = self._target if spec_id is None else replace(self._target, spec_id=spec_id)
        wanted = pa.schema([f for f in target.arrow_schema if f.name in rows[0]])
        return self._write_files(pa.Table.from_pylist(list(rows), wanted), target)

    def _write_files(self, rows: pa.Table, target: WriteTarget | None = None) -> EntryTable:
        context = self._context
        chosen = target or WriteTarget.of(context.metadata, context.facts.io_properties)
        files = EntryTable(write_arrow_table(rows, chosen), context.specs)
        self._new_files += files["file_path"].to_pylist()
        return files

    def _expression(self, statement: Statement) -> BooleanExpression:
        return self._parse(statement.where.text if statement.where else None)

    def _parse(self, text: str | None) -> BooleanExpression:
        if text is None:
            return AlwaysTrue()
        found = parse(text, self._context.metadata.schema())
        assert found.is_exact, text
        return found.expression


def _with_lineage(row: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the new row with the id of the old one; its sequence number is that of the commit."""
    return new | {"_last_updated_sequence_number": None, "_row_id": row.get("_row_id")}


def _positions_by_file(rows: Iterable[dict[str, Any]]) -> dict[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for row in rows:
        positions.setdefault(row["_file"], []).append(row["_pos"])
    return positions


def _with_files(plan: ScanPlan, positions: dict[str, list[int]]) -> ScanPlan:
    return plan.only(np.array([path in positions for path in plan.files["file_path"].to_pylist()], bool))


def _added_files(action: RowDelta | Overwrite) -> tuple[EntryTable | None, ...]:
    if isinstance(action, RowDelta):
        return action.added_data, action.added_deletes
    return (action.added,)


def _paths(*files: EntryTable | None) -> tuple[str, ...]:
    return tuple(path for some in files if some is not None for path in some["file_path"].to_pylist())
