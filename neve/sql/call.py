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
from neve.predicate.constants import zone_of
from neve.predicate.sql_text import Word, wrong
from neve.run.spark.session import is_case_sensitive
from neve.sql.arguments import Argument, arguments, flag, mapping, number, numbers, table, text, texts, time
from neve.sql.reader import Reader
from neve.sql.statement import Options, table_and_branch
from neve.table import Table

Given = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure: its arguments after the table, in order, and what it does with them."""

    arguments: Mapping[str, Argument]
    run: Callable[[Table, Given], Any]
    needed: tuple[str, ...] = ()
    is_built: bool = True  # it makes a verb that can be planned and executed; otherwise it acts at once

    @property
    def known(self) -> dict[str, Argument]:
        """All its arguments in order."""
        return {"table": table, **self.arguments}


@dataclass(frozen=True, slots=True)
class NamedCatalog:
    """The name of a catalog as a statement says it."""

    statement: str
    word: Word

    def refuse_unless(self, name: str) -> None:
        """Refuse any other catalog than the one of this name: the tables meant are not in it."""
        if self.word.name != name:
            problem = f"unknown catalog {self.word.name!r}: that of this lake is {name!r}, and may be left out"
            raise wrong("SQL", self.statement, self.word.start, self.word.end, problem, verb="run")


@dataclass(frozen=True)
class Call:
    """`CALL system.rewrite_data_files(table => 'db.t', where => 'id > 5')`."""

    procedure: str
    arguments: Mapping[str, exp.Expression]
    catalog: NamedCatalog | None = None  # what stands before `system`

    def run(self, lake: LakeContext, options: Options) -> Any:
        """Run the procedure; the answer is what the verb tells, or the table."""
        made = self._called(lake, options)
        return made.execute() if PROCEDURES[self.procedure].is_built else made

    def builder(self, lake: LakeContext, options: Options) -> Any:
        """The verb of the API that the procedure stands for, or None where there is none; nothing has happened yet."""
        return self._called(lake, options) if PROCEDURES[self.procedure].is_built else None

    def _called(self, lake: LakeContext, options: Options) -> Any:
        """What the procedure makes of its arguments."""
        options.only("CALL")
        if self.catalog is not None:
            self.catalog.refuse_unless(lake.catalog.name)
        procedure, zone = PROCEDURES[self.procedure], zone_of(lake.time_zone())
        read = {n: procedure.known[n].value(n, node, zone) for n, node in self.arguments.items()}
        given: Given = {name: value for name, value in read.items() if value is not None}
        for name in ("table", *procedure.needed):
            if name not in given:
                raise UserError(f"CALL {self.procedure} needs the argument {name!r}.")
        found, branch = table_and_branch(lake, given["table"])
        if branch is not None:
            given = _on_branch(self.procedure, given, branch)
        return procedure.run(found, given)


def _on_branch(procedure: str, given: Given, branch: str) -> Given:
    """The arguments for a table whose name says a branch."""
    if "branch" not in PROCEDURES[procedure].arguments:
        raise UserError(f"CALL {procedure} is about the whole table, not about the branch {branch!r}.")
    if given.get("branch", branch) != branch:
        raise UserError(f"The name of the table says branch {branch!r}, the argument {given['branch']!r}. Say one.")
    return {**given, "branch": branch}


def call(reader: Reader) -> Call:
    """Read a CALL."""
    reader.expect("CALL")
    *place, name = reader.words_of_name("the name of a procedure")
    if not place or place[-1].name.lower() != "system":
        raise reader.wrong(f"procedures are called system.{name.name}", name)
    if len(place) > 2:
        raise reader.wrong(f"only the name of a catalog comes before system.{name.name}", place[1])
    procedure = name.name.lower()
    if procedure not in PROCEDURES:
        raise reader.wrong(f"unknown procedure {name.name!r}: known are {', '.join(PROCEDURES)}", name)
    catalog = NamedCatalog(reader.text, place[0]) if len(place) > 1 else None
    return Call(procedure, arguments(reader, procedure, PROCEDURES[procedure].known), catalog)


# -- the verbs ------------------------------------------------------------------------------------------------------


def _rewrite_data_files(found: Table, given: Given) -> Any:
    rewrite = _built(found.rewrite_data_files().options(given.get("options", {})), given, "where", "branch")
    if "where" in given:
        rewrite = rewrite.case_sensitive(is_case_sensitive(found.context.spark()))
    strategy, order = given.get("strategy", "sort" if "sort_order" in given else "binpack"), given.get("sort_order")
    if strategy not in ("binpack", "sort"):
        raise UserError(f"Argument 'strategy' is {strategy!r}; it must be 'binpack' or 'sort'.")
    if strategy == "binpack" and order is not None:
        raise UserError("Argument 'sort_order' needs the strategy 'sort'.")
    return rewrite if strategy == "binpack" else _sorted(rewrite, order)


def _sorted(rewrite: RewriteDataFiles, order: str | None) -> RewriteDataFiles:
    """A rewrite in the order of some columns, of a curve through them, or of the table."""
    if order is None:
        return rewrite.sort()
    reader = Reader.of(order)
    if reader.took("ZORDER"):
        columns = reader.in_brackets(lambda: _column(reader, ",", ")"))
        reader.end()
        return rewrite.zorder(*columns)
    return rewrite.sort(*reader.listed(lambda: _column(reader, ",")))


def _column(reader: Reader, *stops: str) -> str:
    return reader.until(*stops, what="a column")


def _rewrite_position_delete_files(found: Table, given: Given) -> Any:
    rewrite = found.rewrite_position_deletes().options(given.get("options", {}))
    return _built(rewrite, given, "where", "branch")


def _rewrite_manifests(found: Table, given: Given) -> Any:
    rewrite = _built(found.rewrite_manifests(), given, "branch", spec_id="spec")
    return rewrite.cluster_by(*given["sort_by"]) if "sort_by" in given else rewrite


def _expire_snapshots(found: Table, given: Given) -> Any:
    expire = _built(found.expire_snapshots(), given, "older_than", "retain_last", "clean_expired_metadata")
    return expire.snapshot_ids(*given.get("snapshot_ids", ()))


def _remove_orphan_files(found: Table, given: Given) -> Any:
    names = ("older_than", "location", "dry_run", "equal_schemes", "equal_authorities", "prefix_mismatch_mode")
    return _built(found.remove_orphan_files(), given, *names)


def _remove_dangling_deletes(found: Table, given: Given) -> Any:
    return _built(found.remove_dangling_deletes(), given, "branch")


def _rollback_to_snapshot(found: Table, given: Given) -> Table:
    return found.rollback(given["snapshot_id"])


def _rollback_to_timestamp(found: Table, given: Given) -> Table:
    """Back to the last snapshot before a time, of those that led to the current one."""
    before = [snapshot_id for snapshot_id, time in _lineage(found, None) if time < given["timestamp"]]
    if not before:
        raise UserError(f"Table {found.name} had no snapshot before that time. {found.name}.history lists them.")
    return found.rollback(before[0])


def _set_current_snapshot(found: Table, given: Given) -> Table:
    return found.set_current_snapshot(given.get("snapshot_id"), ref=given.get("ref"))


def _fast_forward(found: Table, given: Given) -> Table:
    return found.fast_forward(given["branch"], given["to"])


def _ancestors_of(found: Table, given: Given) -> pa.Table:
    """The snapshot asked for, or the current one, and those before it, newest first."""
    rows = _lineage(found, given.get("snapshot_id"))
    ids, times = ([row[i] for row in rows] for i in range(2))
    columns = [pa.array(ids, pa.int64()), pa.array(times, pa.timestamp("ms", "UTC"))]
    return pa.table(columns, names=["snapshot_id", "timestamp"])


def _lineage(found: Table, snapshot_id: int | None) -> list[tuple[int, int]]:
    """A snapshot and those before it, newest first: ids and times in milliseconds."""
    context = found.refresh().context
    at, rows = context.snapshot(snapshot_id), []
    while at is not None and (at.snapshot_id, at.timestamp_ms) not in rows:
        rows.append((at.snapshot_id, at.timestamp_ms))
        parent = at.parent_snapshot_id
        at = None if parent is None else context.metadata.snapshot_by_id(parent)
    return rows


def _built(builder: Any, given: Given, *names: str, **renamed: str) -> Any:
    """A builder with the arguments that were given, by the names its methods have."""
    for name, method in {**{n: n for n in names}, **renamed}.items():
        builder = getattr(builder, method)(given[name]) if name in given else builder
    return builder


_HINTS = {"max_concurrent_deletes": number, "stream_results": flag}

PROCEDURES: dict[str, Procedure] = {
    "rewrite_data_files": Procedure(
        {"strategy": text, "sort_order": text, "options": mapping, "where": text, "branch": text}, _rewrite_data_files
    ),
    "rewrite_position_delete_files": Procedure(
        {"options": mapping, "where": text, "branch": text}, _rewrite_position_delete_files
    ),
    "rewrite_manifests": Procedure(
        {"use_caching": flag, "spec_id": number, "sort_by": texts, "branch": text}, _rewrite_manifests
    ),
    "expire_snapshots": Procedure(
        {
            "older_than": time,
            "retain_last": number,
            **_HINTS,
            "snapshot_ids": numbers,
            "clean_expired_metadata": flag,
        },
        _expire_snapshots,
    ),
    "remove_orphan_files": Procedure(
        {
            "older_than": time,
            "location": text,
            "dry_run": flag,
            **_HINTS,
            "equal_schemes": mapping,
            "equal_authorities": mapping,
            "prefix_mismatch_mode": text,
            "prefix_listing": flag,
        },
        _remove_orphan_files,
    ),
    "remove_dangling_deletes": Procedure({"branch": text}, _remove_dangling_deletes),
    "rollback_to_snapshot": Procedure({"snapshot_id": number}, _rollback_to_snapshot, ("snapshot_id",), is_built=False),
    "rollback_to_timestamp": Procedure({"timestamp": time}, _rollback_to_timestamp, ("timestamp",), is_built=False),
    "set_current_snapshot": Procedure({"snapshot_id": number, "ref": text}, _set_current_snapshot, is_built=False),
    "fast_forward": Procedure({"branch": text, "to": text}, _fast_forward, ("branch", "to"), is_built=False),
    "ancestors_of": Procedure({"snapshot_id": number}, _ancestors_of, is_built=False),
}
"""Every procedure by its name."""
