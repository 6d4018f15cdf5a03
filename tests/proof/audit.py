"""Check a table after a fault: a new process must find a sound table and must be able to commit to it.

A table is sound if every reachable file exists, parses and agrees with the metadata (`Table.verify`), if its rows are
those before or those after the operation, if the next commit works, and if orphan removal without a grace period
deletes exactly the unreachable files.
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
from tests.proof.statements_without_spark import COLUMNS, NO_WAIT, open_table

HOUR = 60 * 60 * 1000
NEXT_ROW = {"id": -1, "region": "eu", "n": 0}
NEW_NAME = "db.u"  # name of the table after the rename


def lake_in(folder: Path, catalog: type[EmbeddedCatalog] = EmbeddedCatalog) -> Lake:
    """Open a lake as a new process does. Its database does not wait for the disk."""
    lake = connect(catalog=catalog(folder), environment=NO_WAIT)
    listen(lake.catalog.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))  # type: ignore[attr-defined]
    return lake


@dataclass(frozen=True)
class State:
    """Visible state of a table, without values that differ between runs."""

    name: str = ""  # empty: there is no table
    rows: dict[str, Counter[str]] = field(default_factory=dict)  # of every branch and tag
    version: int = 0
    specs: int = 0
    columns: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    snapshots: int = 0
    statistics: int = 0  # files

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
            statistics=len(metadata.statistics) + len(metadata.partition_statistics),
        )


def rows_in(table: Table, ref: str) -> Counter[str]:
    """Return the rows of a branch or tag, with all its columns."""
    known = table.refresh().context.metadata.refs
    found = table.scan(ref=ref).to_arrow(engine="arrow") if ref in known else None
    return Counter(repr(row) for row in found.to_pylist()) if found is not None else Counter()


def table_in(lake: Lake) -> Table | None:
    """Return the table under its old or new name; having both names is an error."""
    found = [table for name in ("db.t", NEW_NAME) if (table := _open_if_exists(lake, name)) is not None]
    require(len(found) < 2, "the table has both names")
    return found[0] if found else None


def _open_if_exists(lake: Lake, name: str) -> Table | None:
    try:
        return open_table(lake, name)
    except UnknownName:
        return None


def files_on_disk(folder: Path) -> set[str]:
    """Return every file of the tables of a lake."""
    return {
        os.path.join(directory, name)
        for directory, _, names in os.walk(folder)
        for name in names
        if not name.startswith("catalog.db")
    }


def reachable_files(table: Table, except_snapshots: Collection[int] = ()) -> set[str]:
    """Return every file that the metadata and the snapshots reference, except what is only of the given snapshots."""
    context = table.refresh().context
    metadata, io = context.metadata, context.io
    found = {context.iceberg.metadata_location, *(e.metadata_file for e in metadata.metadata_log)}
    statistics = (*metadata.statistics, *metadata.partition_statistics)
    found |= {file.statistics_path for file in statistics if file.snapshot_id not in except_snapshots}
    for snapshot in (s for s in metadata.snapshots if s.snapshot_id not in except_snapshots):
        manifests = manifests_of(io, metadata, snapshot)
        live = read_entries(io, manifests, context.specs, live_only=True)
        listing = {path} if (path := tree_root_location(snapshot)) else set()
        found |= listing | {m.file for m in manifests if not m.is_inline} | set(live["file_path"].to_pylist())
    return {_local(path) for path in found}


def _local(path: str) -> str:
    return path.removeprefix("file://")


class Unsound(AssertionError):
    """A guarantee does not hold; the message has the values."""


def require(holds: bool, broken: str, *found: Any) -> None:
    if not holds:
        raise Unsound(": ".join([broken, *map(str, found)]))


def audit(folder: Path, before: State, after: State, *, acknowledged: bool, rejected: bool = False) -> State:
    """Check a lake whose table `db.t` was to change from state `before` to state `after`; return its current state.

    `acknowledged`: the writer got a success. `rejected`: the writer got an error, which means that nothing was done.
    """
    lake = lake_in(folder)
    table = table_in(lake)
    now = _verified_state(table)
    require(now in (before, after), "neither before nor after", now)
    require(not acknowledged or now == after, "acknowledged and lost", now)
    require(not rejected or now == before, "rejected and done", now)
    if table is None and not before.name:
        table = _create_again(lake, folder, after)
    if table is not None:
        _require_next_commit_and_cleanup(folder, table, now.rows.get("main") or rows_in(table, "main"))
    return now


def _create_again(lake: Lake, folder: Path, wanted: State) -> Table:
    """Create or register the table that the failed operation did not create."""
    if wanted.snapshots:
        lake.register_table("db.t", newest_metadata(folder).as_uri())
    else:
        lake.create_table("db.t", COLUMNS, ["region"])
    return open_table(lake)


def newest_metadata(folder: Path) -> Path:
    """Return the metadata file of the table `db.t` with the highest number."""
    return max(folder.glob("db/t/metadata/*.metadata.json"))


def _verified_state(table: Table | None) -> State:
    if table is None:
        return State()
    found = table.verify()
    require(found.is_sound, "not sound", found)
    return State.of(table)


def _require_next_commit_and_cleanup(folder: Path, table: Table, rows: Counter[str]) -> None:
    """Check that the next commit works and that orphan removal deletes exactly what nothing refers to, and no rows."""
    table.append([NEXT_ROW])
    in_an_hour = int(time.time() * 1000) + HOUR
    table.remove_orphan_files().older_than(in_an_hour).allow_young().dry_run(False).execute()
    now = reachable_files(table)
    require(files_on_disk(folder) == now, "after orphan removal", files_on_disk(folder) ^ now)
    found = rows_in(table, "main")
    require(not rows - found, "rows lost by the next commit or by orphan removal", rows - found)
    require(sum((found - rows).values()) == 1, "the next commit", found - rows)
