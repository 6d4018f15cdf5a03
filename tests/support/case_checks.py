"""What must hold after a case: always, and where the case says so.

Always: the rows are those of the oracle, in their exact types; new data files are under the default spec; a delete
keeps spec and partition of its data file; nothing that was there before has gone from storage and nothing unreachable
was left in it; the audit passes; on version 3 rows keep their ids and only changed ones a new number; PyIceberg and
DuckDB read the same rows where they can.

In `expect`:

| key | what must hold |
|---|---|
| `snapshot = false` | no snapshot was made |
| `snapshots` | how many were made; one for each statement unless said |
| `operation` | of the last snapshot |
| `summary` | entries of its summary |
| `result` | fields of the result of the last statement |
| `data_files`, `removed_files`, `delete_files` | how many the last snapshot added, removed, added |
| `delete_specs` | the specs of the delete files it added |
| `live_delete_files` | how many delete files the table has now |
| `files_scanned = 0` | the statement ran while all data files were out of reach |
| `unread` | it ran while the files that may hold rows of this condition were |
| `sort_order` | the order id of every data file it added |
| `columns` | the columns of the table now, in DDL words, when the statement may change them |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal
from uuid import UUID

import pyarrow as pa

from neve import Table
from neve.tree.entries import Content, EntryTable, Status
from neve.tree.read import manifests_of
from tests.peers.known_bugs import witnesses
from tests.peers.readers import for_peers
from tests.support.coverage import WANTS_ALL_CASES
from tests.support.dml_cases import Case, Run
from tests.support.spark_oracle import difference, kinds, plain
from tests.support.tables import entries_of, lineage_of, on_disk
from tests.support.text_rows import Rows

LINEAGE = ["_row_id", "_last_updated_sequence_number"]


@dataclass(frozen=True)
class Played:
    """A case with its table before and after."""

    case: Case
    run: Run
    rows: Rows
    location: str
    files: set[str]
    snapshots: frozenset[int]
    lineage: dict[Any, tuple[int | None, int | None]]
    table: Table
    result: Any = None
    answer: pa.Table | None = None  # of the oracle

    @classmethod
    def before(cls, case: Case, run: Run, table: Table, rows: Rows) -> Played:
        """What a case finds."""
        metadata = table.context.metadata
        ids = frozenset(s.snapshot_id for s in metadata.snapshots)
        lineage = _lineage(table) if run.version > 2 and _is_told_apart(rows.arrow()) else {}
        return cls(case, run, rows, table.context.iceberg.metadata_location, on_disk(table, ""), ids, lineage, table)

    def after(self, table: Table, result: Any, answer: pa.Table) -> Played:
        """What a case leaves."""
        return replace(self, table=table, result=result, answer=answer)

    @property
    def expected(self) -> dict[str, Any]:
        return self.case.expectations(self.run)

    @property
    def metadata(self) -> Any:
        return self.table.context.metadata

    @property
    def has_changed(self) -> bool:
        return bool(self.new_snapshots)

    @cached_property
    def new_snapshots(self) -> list[Any]:
        """The snapshots made since, oldest first."""
        made = [s for s in self.metadata.snapshots if s.snapshot_id not in self.snapshots]
        return sorted(made, key=lambda s: s.sequence_number or 0)

    @cached_property
    def entries(self) -> EntryTable:
        """The entries of the last new snapshot, tombstones included."""
        return entries_of(self.table, self.new_snapshots[-1])

    def touched(self, status: Status, *contents: Content) -> EntryTable:
        """The files that the last new snapshot added or removed."""
        last = self.new_snapshots[-1].snapshot_id
        kept = [
            (state, made_by) == (int(status), last)
            for state, made_by in zip(*(self.entries[n].to_pylist() for n in ("status", "snapshot_id")), strict=True)
        ]
        return self.entries.filter(pa.array(kept, pa.bool_())).of_content(*contents)

    def reachable(self) -> set[str]:
        """Every file the new snapshots and the metadata name."""
        found = {self.table.context.iceberg.metadata_location, *(e.metadata_file for e in self.metadata.metadata_log)}
        for snapshot in self.new_snapshots:
            manifests = manifests_of(self.table.context.io, self.metadata, snapshot)
            found |= {snapshot.tree_root_location, *(m.file for m in manifests)}
            found |= set(entries_of(self.table, snapshot)["file_path"].to_pylist())
        return found

    def read(self, branch: str, engine: Literal["arrow", "spark"] = "arrow") -> pa.Table:
        """The rows of a branch now, UUIDs as text."""
        return with_text_uuids(self.table.scan(ref=branch).to_arrow(engine=engine), self.rows)

    @cached_property
    def main_rows(self) -> pa.Table:
        """The rows that main must hold now."""
        assert self.answer is not None
        return self.answer if self.case.branch == "main" else self.rows.arrow()


def check(played: Played) -> None:
    """Check everything that must hold; the first thing that does not is the failure."""
    for rule in RULES:
        rule(played)
    told = {**played.expected}
    for name in SHAPE_OF_HISTORY:
        told.pop(name, None)
    for name, value in told.items():
        EXPECTATIONS[name](played, value)


# --- always ---


def rows_are_those_of_the_oracle(played: Played) -> None:
    assert played.answer is not None
    for engine in ("arrow", "spark") if WANTS_ALL_CASES else ("arrow",):
        found = played.read(played.case.branch, engine)
        assert not (wrong := difference(found, played.answer)), f"{engine}: {wrong}"
        assert kinds(found) == {name: kinds(played.answer)[name] for name in found.column_names}, engine


def main_is_untouched_by_a_branch(played: Played) -> None:
    if played.case.branch != "main":
        assert not (wrong := difference(played.read("main"), played.main_rows)), wrong


def as_many_snapshots_as_said(played: Played) -> None:
    is_refused = played.case.error is not None
    if is_refused or played.expected.get("snapshot") is False:
        assert not played.new_snapshots, "a snapshot was made"
        assert played.table.context.iceberg.metadata_location == played.location, "the metadata changed"
        return
    if played.case.unknown == "lost":
        assert not played.new_snapshots
        return
    mine = 0 if played.case.outcome == "conflict" else len(played.case.statements)
    wanted = played.expected.get("snapshots", mine + len(played.case.steps_meanwhile))
    assert len(played.new_snapshots) == wanted, [s.summary for s in played.new_snapshots]


def columns_are_those_before(played: Played) -> None:
    wanted = Rows.of_columns(played.expected["columns"]) if "columns" in played.expected else played.rows
    assert tuple(f.name for f in played.table.schema.fields) == wanted.names
    assert [f.required for f in played.table.schema.fields] == [c.required for c in wanted.columns]
    found = kinds(played.read("main"))
    assert found == kinds(wanted.arrow())


def storage_lost_nothing(played: Played) -> None:
    assert not (gone := played.files - on_disk(played.table, "")), f"gone from storage: {sorted(gone)}"


def storage_holds_nothing_unreachable(played: Played) -> None:
    stray = on_disk(played.table, "") - played.files - played.reachable()
    if played.case.unknown == "lost":
        assert any("/data/" in path for path in stray), "the files of a commit that may have landed were deleted"
        return
    assert not stray, f"left behind: {sorted(stray)}"


def new_data_is_under_the_default_spec(played: Played) -> None:
    if played.has_changed and not played.case.meanwhile:
        added = played.touched(Status.ADDED, Content.DATA)
        assert set(added.spec_ids()) <= {played.metadata.default_spec_id}


def deletes_keep_the_partition_of_their_file(played: Played) -> None:
    if not played.has_changed:
        return
    entries = played.entries
    data = {entries["file_path"][i].as_py(): entries.partition_key(i) for i in range(len(entries))}
    deletes = played.touched(Status.ADDED, Content.POSITION_DELETES)
    for i in range(len(deletes)):
        covered = deletes["referenced_data_file"][i].as_py()
        assert covered is None or deletes.partition_key(i) == data[covered], f"delete of {covered}"


def deletes_fit_the_mode_and_version(played: Played) -> None:
    if not played.has_changed or played.case.meanwhile:
        return
    deletes = played.touched(Status.ADDED, Content.POSITION_DELETES)
    if played.run.mode == "cow" and not played.case.calls:
        assert not len(deletes), "copy-on-write wrote delete files"
    formats = set(deletes["file_format"].to_pylist())
    assert formats <= {"PARQUET" if played.metadata.format_version == 2 else "PUFFIN"}


def the_audit_passes(played: Played) -> None:
    audit = played.table.verify()
    assert audit.is_sound, str(audit)


def rows_keep_their_lineage(played: Played) -> None:
    """A row keeps its id; its number moves exactly when it changes; new rows have ids of their own."""
    case, answer = played.case, played.answer
    if played.run.version < 3 or not played.has_changed or case.branch != "main" or answer is None:
        return
    found = played.table.scan(columns=LINEAGE).to_arrow(engine="arrow")
    ids = Counter(found.column(LINEAGE[0]).to_pylist())
    assert None not in ids and max(ids.values(), default=1) == 1, "a row id is missing or given twice"
    if not played.lineage or case.lineage:
        return
    assert _is_told_apart(answer), f"{case.name}: rows are not told apart by id; say so in `lineage`"
    before, after = (_by_id(t) for t in (played.rows.arrow(), answer))
    now = _lineage(played.table)
    newest = {s.sequence_number for s in played.new_snapshots}
    for key, (row_id, number) in now.items():
        if key not in before:
            assert row_id not in {old for old, _ in played.lineage.values()}, f"new row {key} took an old row's id"
            assert number in newest, f"new row {key}"
            continue
        assert row_id == played.lineage[key][0], f"row {key} has another id than before"
        if _row_text(before[key]) == _row_text(
            after[key]
        ):  # a column that was added is null in rows that did not change
            assert number == played.lineage[key][1], f"row {key} did not change, but its number did"
        else:
            assert number in newest, f"row {key} changed, but its number did not"


def other_engines_read_the_same_rows(played: Played) -> None:
    if not played.has_changed:
        return
    table = for_peers(played.table)
    for name, read in witnesses(table).items():
        wrong = difference(with_text_uuids(read(table), played.rows), played.main_rows)
        assert not wrong, f"{name} reads other rows: {wrong}"


Rule = Callable[[Played], None]

RULES: tuple[Rule, ...] = (
    as_many_snapshots_as_said,
    rows_are_those_of_the_oracle,
    main_is_untouched_by_a_branch,
    columns_are_those_before,
    storage_lost_nothing,
    storage_holds_nothing_unreachable,
    new_data_is_under_the_default_spec,
    deletes_keep_the_partition_of_their_file,
    deletes_fit_the_mode_and_version,
    the_audit_passes,
    rows_keep_their_lineage,
    other_engines_read_the_same_rows,
)


# --- where the case says so ---


def _operation(played: Played, wanted: str) -> None:
    assert played.new_snapshots[-1].summary.operation.value == wanted


def _summary(played: Played, wanted: dict[str, str]) -> None:
    said = played.new_snapshots[-1].summary.additional_properties
    assert {name: said.get(name) for name in wanted} == wanted


def _result(played: Played, wanted: dict[str, Any]) -> None:
    found = {name: getattr(played.result, name) for name in wanted}
    assert {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()} == wanted


def _data_files(played: Played, wanted: int) -> None:
    assert len(played.touched(Status.ADDED, Content.DATA)) == wanted


def _removed_files(played: Played, wanted: int) -> None:
    assert len(played.touched(Status.DELETED, Content.DATA)) == wanted


def _delete_files(played: Played, wanted: int) -> None:
    assert len(played.touched(Status.ADDED, Content.POSITION_DELETES)) == wanted


def _delete_specs(played: Played, wanted: list[int]) -> None:
    assert played.touched(Status.ADDED, Content.POSITION_DELETES).spec_ids() == wanted


def _live_delete_files(played: Played, wanted: int) -> None:
    live = played.entries.live().of_content(Content.POSITION_DELETES, Content.EQUALITY_DELETES)
    assert len(live) == wanted, live.columns.to_pylist()


def _sort_order(played: Played, wanted: int) -> None:
    assert set(played.touched(Status.ADDED, Content.DATA)["sort_order_id"].to_pylist()) == {wanted}


EXPECTATIONS: dict[str, Callable[[Played, Any], None]] = {
    "operation": _operation,
    "summary": _summary,
    "result": _result,
    "data_files": _data_files,
    "removed_files": _removed_files,
    "delete_files": _delete_files,
    "delete_specs": _delete_specs,
    "live_delete_files": _live_delete_files,
    "sort_order": _sort_order,
}
SHAPE_OF_HISTORY = (
    "snapshot",
    "snapshots",
    "columns",
    "files_scanned",
    "unread",
)  # judged by the rules above and on the way


# --- helpers ---


def with_text_uuids(table: pa.Table, rows: Rows) -> pa.Table:
    """The table with its UUIDs as the text that engines on Spark show."""
    for column in rows.columns:
        if column.kind == "uuid" and column.name in table.column_names:
            values = [_uuid_text(v) for v in table.column(column.name).to_pylist()]
            at = table.column_names.index(column.name)
            table = table.set_column(at, column.name, pa.array(values, pa.string()))
    return table


def _uuid_text(value: Any) -> str | None:
    return str(UUID(bytes=value)) if isinstance(value, bytes) else None if value is None else str(value)


def _is_told_apart(table: pa.Table) -> bool:
    """Whether every row has an id of its own."""
    if "id" not in table.column_names:
        return False
    ids = table.column("id").to_pylist()
    return None not in ids and len(set(ids)) == len(ids)


def _lineage(table: Table) -> dict[Any, tuple[int | None, int | None]]:
    """Row id and number of each row; nothing for a table whose rows have no ids yet because it was upgraded."""
    found = lineage_of(table)
    return {} if any(row_id is None for row_id, _ in found.values()) else found


def _by_id(table: pa.Table) -> dict[Any, dict[str, Any]]:
    return {row["id"]: row for row in table.to_pylist()}


def _row_text(row: dict[str, Any]) -> str:
    """A row as text; a value that is not there and a column that is not are the same."""
    return repr(sorted((name, plain(value)) for name, value in row.items() if value is not None))
