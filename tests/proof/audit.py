"""The judge of every case: after whatever happened, a new process must find a sound table and be able to go on.

A table is sound when everything reachable exists, parses and agrees (`Table.verify`), its rows are those before or
those after what was tried, the next commit works, and removing orphans without any grace takes exactly the files that
nothing leads to.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy.event import listen

from neve import Lake, Table, connect
from neve.catalog.sql import EmbeddedCatalog
from neve.errors import UnknownName
from neve.model.snapshots import tree_root_location
from neve.tree.read import manifests_of, read_entries
from tests.proof.statements_without_spark import COLUMNS, NO_WAIT, opened

HOUR = 60 * 60 * 1000
NEXT_ROW = {"id": -1, "region": "eu", "n": 0}
NEW_NAME = "db.u"  # what the table is called once it was renamed


def lake_in(folder: Path, catalog: type[EmbeddedCatalog] = EmbeddedCatalog) -> Lake:
    """A lake as a process that has just started finds it; its database does not wait for the disk."""
    lake = connect(catalog=catalog(folder), environment=NO_WAIT)
    listen(lake.catalog.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))  # type: ignore[attr-defined]
    return lake


@dataclass(frozen=True)
class State:
    """What a table shows, without what differs from run to run."""

    name: str = ""  # none: there is no table
    rows: dict[str, Counter[str]] = field(default_factory=dict)  # of every branch and tag
    version: int = 0
    specs: int = 0
    columns: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    snapshots: int = 0

    @classmethod
    def of(cls, table: Table | None) -> State:
        if table is None:
            return cls()
        metadata = table.refresh().context.metadata
        refs = {*metadata.refs} or {"main"}
        return cls(
            name=table.name,
            rows={name: rows_in(table, name) for name in refs},
            version=metadata.format_version,
            specs=len(metadata.partition_specs),
            columns=tuple(f.name for f in metadata.schema().fields),
            properties=tuple(sorted(metadata.properties.items())),
            snapshots=len(metadata.snapshots),
        )


def rows_in(table: Table, ref: str) -> Counter[str]:
    """The rows of a branch or tag, whatever columns it has."""
    known = table.refresh().context.metadata.refs
    found = table.scan(ref=ref).to_arrow(engine="arrow") if ref in known else None
    return Counter(repr(row) for row in found.to_pylist()) if found is not None else Counter()


def table_in(lake: Lake) -> Table | None:
    """The table, whichever of its names it has; never both."""
    found = [table for name in ("db.t", NEW_NAME) if (table := _named(lake, name)) is not None]
    require(len(found) < 2, "the table has both names")
    return found[0] if found else None


def _named(lake: Lake, name: str) -> Table | None:
    try:
        return opened(lake, name)
    except UnknownName:
        return None


def on_disk(folder: Path) -> set[str]:
    """Every file of the tables of a lake."""
    return {
        os.path.join(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if not name.startswith("catalog.db")
    }


def reachable(table: Table, but: Collection[int] = ()) -> set[str]:
    """Every file the table leads to, over all its snapshots but some."""
    context = table.refresh().context
    metadata, io = context.metadata, context.io
    found = {context.iceberg.metadata_location, *(e.metadata_file for e in metadata.metadata_log)}
    for snapshot in (s for s in metadata.snapshots if s.snapshot_id not in but):
        manifests = manifests_of(io, metadata, snapshot)
        live = read_entries(io, manifests, context.specs, live_only=True)
        listing = {path} if (path := tree_root_location(snapshot)) else set()
        found |= listing | {m.file for m in manifests if not m.is_inline} | set(live["file_path"].to_pylist())
    return {_local(path) for path in found}


def _local(path: str) -> str:
    return path.removeprefix("file://")


class Unsound(AssertionError):
    """A promise that was broken, with what was found."""


def require(holds: bool, broken: str, *found: Any) -> None:
    if not holds:
        raise Unsound(": ".join([broken, *map(str, found)]))


def audit(folder: Path, before: State, after: State, *, acknowledged: bool, refused: bool = False) -> State:
    """Judge a lake whose table `db.t` was in one state, and was to come into another; the state it is in.

    `acknowledged`: the writer was told that it is done. `refused`: it was told that nothing was done.
    """
    lake = lake_in(folder)
    table = table_in(lake)
    now = _looked_at(table)
    require(now in (before, after), "neither before nor after", now)
    require(not acknowledged or now == after, "acknowledged and lost", now)
    require(not refused or now == before, "refused and done", now)
    if table is None and not before.name:
        table = _made_now(lake, folder, after)
    if table is not None:
        _goes_on(folder, table, now.rows.get("main") or rows_in(table, "main"))
    return now


def _made_now(lake: Lake, folder: Path, wanted: State) -> Table:
    """A table that could not be made, or brought in with its snapshots, can be now."""
    if wanted.snapshots:
        lake.register_table("db.t", newest_metadata(folder).as_uri())
    else:
        lake.create_table("db.t", COLUMNS, ["region"])
    return opened(lake)


def newest_metadata(folder: Path) -> Path:
    """The metadata file with the highest number, of the table `db.t` of a lake."""
    return max(folder.glob("db/t/metadata/*.metadata.json"))


def _looked_at(table: Table | None) -> State:
    if table is None:
        return State()
    found = table.verify()
    require(found.is_sound, "not sound", found)
    return State.of(table)


def _goes_on(folder: Path, table: Table, rows: Counter[str]) -> None:
    """The next commit works, and orphans can be removed without losing anything."""
    leftovers = on_disk(folder) - reachable(table)
    orphans = table.remove_orphan_files().older_than(int(time.time() * 1000) + HOUR).allow_young()
    found = {_local(path) for path in orphans.plan().files}
    require(found == leftovers, "orphans are not the leftovers", found ^ leftovers)
    table.append([NEXT_ROW])
    more = rows_in(table, "main") - rows
    require(sum(more.values()) == 1, "the next commit", more)
    orphans.dry_run(False).execute()
    now = reachable(table)
    require(on_disk(folder) == now, "after orphan removal", on_disk(folder) ^ now)
    require(rows_in(table, "main") == rows + more, "rows after orphan removal")
