"""What a copy of a table must show, and how a list of files is carried out without the package."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import neve
from neve import Lake, Table
from tests.support.tables import local

Row = dict[str, Any]


def evolved(lake: Lake, version: int, name: str = "db.t") -> Table:
    """A table with two specs, deletes of each spec, a branch, a tag and a renamed column."""
    properties = {} if version == 1 else {"write.delete.mode": "merge-on-read"}
    t = lake.create_table(name, "id bigint, region string", ["region"], format_version=version, properties=properties)
    t.append(rows(range(6)))
    if version > 1:
        t.delete().where("id in (1, 4)").execute()
    t.create_tag("early").create_branch("side").append(rows([50]), branch="side")
    t.evolve_partitions(add=["bucket(2, id)"])
    t.append(rows(range(6, 12)))
    if version > 1:
        t.delete().where("id = 7").execute()
    return t.refresh()


def rows(ids: Any) -> list[Row]:
    return [{"id": i, "region": ("eu", "us")[i % 2]} for i in ids]


def history(table: Table) -> dict[Any, list[Any]]:
    """The rows of every snapshot, branch and tag."""
    metadata = table.refresh().context.metadata
    found: dict[Any, list[Any]] = {}
    for snapshot in metadata.snapshots:
        found[snapshot.snapshot_id] = _sorted(table.scan(snapshot_id=snapshot.snapshot_id))
    for name in metadata.refs:
        found[name] = _sorted(table.scan(ref=name))
    return found


def _sorted(scan: Any) -> list[Any]:
    return sorted(map(str, scan.to_arrow(engine="arrow").to_pylist()))


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def listed(location: str) -> list[tuple[str, str]]:
    with local(location).open(newline="") as file:
        return [(source, target) for source, target in csv.reader(file)]


def carry_out(location: str) -> list[str]:
    """Copy what a list names, with plain Python; return the targets."""
    for source, target in listed(location):
        local(target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(local(source), local(target))
    return [target for _, target in listed(location)]


def registered(folder: Path, metadata_location: str) -> Table:
    """The copy in a lake of its own."""
    return neve.connect(folder).register_table("db.copy", metadata_location)
