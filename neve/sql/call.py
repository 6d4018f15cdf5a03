"""CALL: the verbs of maintenance, by the names of Iceberg's procedures.

Arguments are given by name, or by place in the order of the reference. Those that only say how much another engine does
at a time (`max_concurrent_deletes`, `stream_results`, `use_caching`, `prefix_listing`) are taken and have no effect.
Two defaults are ours: `rewrite_manifests` looks at every spec, and `remove_orphan_files` deletes nothing unless
`dry_run => false`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from neve.errors import UserError
from neve.ops.context import LakeContext
from neve.ops.maintenance.rewrite_data_files import RewriteDataFiles
from neve.predicate.constants import parse_time_zone
from neve.predicate.sql_text import SqlToken, syntax_error
from neve.run.spark.session import is_case_sensitive
from neve.sql.arguments import (
    Argument,
    boolean_argument,
    integer_argument,
    integer_array_argument,
    parse_arguments,
    string_argument,
    string_array_argument,
    string_map_argument,
    table_argument,
    timestamp_argument,
)
from neve.sql.reader import Reader
from neve.sql.statement import StatementOptions, table_and_branch
from neve.table import Table

ArgumentValues = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure: its arguments after the table, in order, and what it does with them."""

    arguments: Mapping[str, Argument]
    run: Callable[[Table, ArgumentValues], Any]
    required: tuple[str, ...] = ()
    makes_builder: bool = True  # it makes a verb that can be planned and executed; otherwise it acts at once

    @property
    def all_arguments(self) -> dict[str, Argument]:
        """All its arguments in order."""
        return {"table": table_argument, **self.arguments}


@dataclass(frozen=True, slots=True)
class CatalogName:
    """The name of a catalog as a statement says it."""

    statement: str
    word: SqlToken

    def refuse_unless(self, name: str) -> None:
        """Refuse any other catalog than the one of this name: the tables meant are not in it."""
        if self.word.name != name:
            problem = f"unknown catalog {self.word.name!r}: that of this lake is {name!r}, and may be left out"
            raise syntax_error("SQL", self.statement, self.word.start, self.word.end, problem, verb="run")


@dataclass(frozen=True)
class Call:
    """`CALL system.rewrite_data_files(table => 'db.t', where => 'id > 5')`."""

    procedure: str
    arguments: Mapping[str, exp.Expression]
    catalog: CatalogName | None = None  # what stands before `system`

    def run(self, lake: LakeContext, options: StatementOptions) -> Any:
        """Run the procedure; the answer is what the verb tells, or the table."""
        made = self._invoke(lake, options)
        return made.execute() if PROCEDURES[self.procedure].makes_builder else made

    def builder(self, lake: LakeContext, options: StatementOptions) -> Any:
        """The verb of the API that the procedure stands for, or None where there is none; nothing has happened yet."""
        return self._invoke(lake, options) if PROCEDURES[self.procedure].makes_builder else None

    def _invoke(self, lake: LakeContext, options: StatementOptions) -> Any:
        """What the procedure makes of its arguments."""
        options.require_only("CALL")
        if self.catalog is not None:
            self.catalog.refuse_unless(lake.catalog.name)
        procedure, zone = PROCEDURES[self.procedure], parse_time_zone(lake.time_zone())
        read = {n: procedure.all_arguments[n].value(n, node, zone) for n, node in self.arguments.items()}
        given: ArgumentValues = {name: value for name, value in read.items() if value is not None}
        for name in ("table", *procedure.required):
            if name not in given:
                raise UserError(f"CALL {self.procedure} needs the argument {name!r}.")
        found, branch = table_and_branch(lake, given["table"])
        if branch is not None:
            given = _with_branch(self.procedure, given, branch)
        return procedure.run(found, given)


def _with_branch(procedure: str, values: ArgumentValues, branch: str) -> ArgumentValues:
    """The arguments for a table whose name says a branch."""
    if "branch" not in PROCEDURES[procedure].arguments:
        raise UserError(f"CALL {procedure} is about the whole table, not about the branch {branch!r}.")
    if values.get("branch", branch) != branch:
        raise UserError(f"The name of the table says branch {branch!r}, the argument {values['branch']!r}. Say one.")
    return {**values, "branch": branch}


def call(reader: Reader) -> Call:
    """Read a CALL."""
    reader.expect("CALL")
    *place, name = reader.dotted_name_words("the name of a procedure")
    if not place or place[-1].name.lower() != "system":
        raise reader.syntax_error(f"procedures are called system.{name.name}", name)
    if len(place) > 2:
        raise reader.syntax_error(f"only the name of a catalog comes before system.{name.name}", place[1])
    procedure = name.name.lower()
    if procedure not in PROCEDURES:
        raise reader.syntax_error(f"unknown procedure {name.name!r}: known are {', '.join(PROCEDURES)}", name)
    catalog = CatalogName(reader.text, place[0]) if len(place) > 1 else None
    return Call(procedure, parse_arguments(reader, procedure, PROCEDURES[procedure].all_arguments), catalog)


# -- the verbs ------------------------------------------------------------------------------------------------------


def _rewrite_data_files(table: Table, values: ArgumentValues) -> Any:
    rewrite = _configure(table.rewrite_data_files().options(values.get("options", {})), values, "where", "branch")
    if "where" in values:
        rewrite = rewrite.case_sensitive(is_case_sensitive(table.context.spark()))
    strategy, order = values.get("strategy", "sort" if "sort_order" in values else "binpack"), values.get("sort_order")
    if strategy not in ("binpack", "sort"):
        raise UserError(f"Argument 'strategy' is {strategy!r}; it must be 'binpack' or 'sort'.")
    if strategy == "binpack" and order is not None:
        raise UserError("Argument 'sort_order' needs the strategy 'sort'.")
    return rewrite if strategy == "binpack" else _apply_sort_order(rewrite, order)


def _apply_sort_order(rewrite: RewriteDataFiles, order: str | None) -> RewriteDataFiles:
    """A rewrite in the order of some columns, of a curve through them, or of the table."""
    if order is None:
        return rewrite.sort()
    reader = Reader.of(order)
    if reader.take_if_next("ZORDER"):
        columns = reader.bracketed_list(lambda: _column(reader, ",", ")"))
        reader.expect_end()
        return rewrite.zorder(*columns)
    return rewrite.sort(*reader.comma_list(lambda: _column(reader, ",")))


def _column(reader: Reader, *stops: str) -> str:
    return reader.text_until(*stops, what="a column")


def _rewrite_position_delete_files(table: Table, values: ArgumentValues) -> Any:
    rewrite = table.rewrite_position_deletes().options(values.get("options", {}))
    return _configure(rewrite, values, "where", "branch")


def _rewrite_manifests(table: Table, values: ArgumentValues) -> Any:
    rewrite = _configure(table.rewrite_manifests(), values, "branch", spec_id="spec")
    return rewrite.cluster_by(*values["sort_by"]) if "sort_by" in values else rewrite


def _expire_snapshots(table: Table, values: ArgumentValues) -> Any:
    expire = _configure(table.expire_snapshots(), values, "older_than", "retain_last", "clean_expired_metadata")
    return expire.snapshot_ids(*values.get("snapshot_ids", ()))


def _remove_orphan_files(table: Table, values: ArgumentValues) -> Any:
    names = ("older_than", "location", "dry_run", "equal_schemes", "equal_authorities", "prefix_mismatch_mode")
    return _configure(table.remove_orphan_files(), values, *names)


def _remove_dangling_deletes(table: Table, values: ArgumentValues) -> Any:
    return _configure(table.remove_dangling_deletes(), values, "branch")


def _rollback_to_snapshot(table: Table, values: ArgumentValues) -> Table:
    return table.rollback(values["snapshot_id"])


def _rollback_to_timestamp(table: Table, values: ArgumentValues) -> Table:
    """Back to the last snapshot before a time, of those that led to the current one."""
    before = [snapshot_id for snapshot_id, time in _lineage(table, None) if time < values["timestamp"]]
    if not before:
        raise UserError(f"Table {table.name} had no snapshot before that time. {table.name}.history lists them.")
    return table.rollback(before[0])


def _set_current_snapshot(table: Table, values: ArgumentValues) -> Table:
    return table.set_current_snapshot(values.get("snapshot_id"), ref=values.get("ref"))


def _fast_forward(table: Table, values: ArgumentValues) -> Table:
    return table.fast_forward(values["branch"], values["to"])


def _ancestors_of(table: Table, values: ArgumentValues) -> pa.Table:
    """The snapshot asked for, or the current one, and those before it, newest first."""
    rows = _lineage(table, values.get("snapshot_id"))
    ids, times = ([row[i] for row in rows] for i in range(2))
    columns = [pa.array(ids, pa.int64()), pa.array(times, pa.timestamp("ms", "UTC"))]
    return pa.table(columns, names=["snapshot_id", "timestamp"])


def _lineage(table: Table, snapshot_id: int | None) -> list[tuple[int, int]]:
    """A snapshot and those before it, newest first: ids and times in milliseconds."""
    context = table.refresh().context
    at, rows = context.snapshot(snapshot_id), []
    while at is not None and (at.snapshot_id, at.timestamp_ms) not in rows:
        rows.append((at.snapshot_id, at.timestamp_ms))
        parent = at.parent_snapshot_id
        at = None if parent is None else context.metadata.snapshot_by_id(parent)
    return rows


def _configure(builder: Any, values: ArgumentValues, *names: str, **renamed: str) -> Any:
    """A builder with the arguments that were given, by the names its methods have."""
    for name, method in {**{n: n for n in names}, **renamed}.items():
        builder = getattr(builder, method)(values[name]) if name in values else builder
    return builder


_IGNORED_ARGUMENTS = {"max_concurrent_deletes": integer_argument, "stream_results": boolean_argument}

PROCEDURES: dict[str, Procedure] = {
    "rewrite_data_files": Procedure(
        {
            "strategy": string_argument,
            "sort_order": string_argument,
            "options": string_map_argument,
            "where": string_argument,
            "branch": string_argument,
        },
        _rewrite_data_files,
    ),
    "rewrite_position_delete_files": Procedure(
        {"options": string_map_argument, "where": string_argument, "branch": string_argument},
        _rewrite_position_delete_files,
    ),
    "rewrite_manifests": Procedure(
        {
            "use_caching": boolean_argument,
            "spec_id": integer_argument,
            "sort_by": string_array_argument,
            "branch": string_argument,
        },
        _rewrite_manifests,
    ),
    "expire_snapshots": Procedure(
        {
            "older_than": timestamp_argument,
            "retain_last": integer_argument,
            **_IGNORED_ARGUMENTS,
            "snapshot_ids": integer_array_argument,
            "clean_expired_metadata": boolean_argument,
        },
        _expire_snapshots,
    ),
    "remove_orphan_files": Procedure(
        {
            "older_than": timestamp_argument,
            "location": string_argument,
            "dry_run": boolean_argument,
            **_IGNORED_ARGUMENTS,
            "equal_schemes": string_map_argument,
            "equal_authorities": string_map_argument,
            "prefix_mismatch_mode": string_argument,
            "prefix_listing": boolean_argument,
        },
        _remove_orphan_files,
    ),
    "remove_dangling_deletes": Procedure({"branch": string_argument}, _remove_dangling_deletes),
    "rollback_to_snapshot": Procedure(
        {"snapshot_id": integer_argument}, _rollback_to_snapshot, ("snapshot_id",), makes_builder=False
    ),
    "rollback_to_timestamp": Procedure(
        {"timestamp": timestamp_argument}, _rollback_to_timestamp, ("timestamp",), makes_builder=False
    ),
    "set_current_snapshot": Procedure(
        {"snapshot_id": integer_argument, "ref": string_argument}, _set_current_snapshot, makes_builder=False
    ),
    "fast_forward": Procedure(
        {"branch": string_argument, "to": string_argument}, _fast_forward, ("branch", "to"), makes_builder=False
    ),
    "ancestors_of": Procedure({"snapshot_id": integer_argument}, _ancestors_of, makes_builder=False),
}
"""Every procedure by its name."""
