"""The valid tables that hostile ones are derived from: one small table per format version, with every kind of file.

`DamagedLake` maps the role of each file to its path. Damage is done in place, because tables refer to their files by
absolute paths, and `restore` brings every byte back.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyarrow import orc

import neve
from neve.commit.actions import Append
from tests.support.evolved_tables import Lived
from tests.support.metadata_tables import Kit
from tests.support.tables import local

CANARY = "never-to-be-seen-7f3a"
VERSIONS = (1, 2, 3, 4)
LARGEST = 256 << 20
MORE = [(30, "de", 1.25), (31, "fr", None), (32, None, 7.5)]
AVRO_ROW = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "long", "field-id": 1},
        {"name": "region", "type": ["null", "string"], "field-id": 2},
        {"name": "amount", "type": ["null", "double"], "field-id": 3},
    ],
}


@dataclass
class DamagedLake:
    """A lake with one table `db.t`, the roles of its files, and the original bytes of all files."""

    folder: Path
    version: int
    roles: dict[str, Path]
    rows: dict[str, list[Any]] = field(default_factory=dict)
    contents: dict[Path, bytes] = field(default_factory=dict)

    @property
    def outside(self) -> Path:
        """A folder next to the lake; nothing in it may change."""
        return self.folder.parent / "outside"

    @property
    def location(self) -> str:
        return f"file://{self.folder}/db/t"

    @property
    def link_target(self) -> Path:
        """The folder to which folders of the table are moved when a link replaces them."""
        return self.folder.parent / "behind"

    def path(self, role: str) -> Path:
        return self.roles[role]

    def table(self) -> neve.Table:
        return neve.connect(self.folder).table("db.t")

    # --- the bytes ---

    def record_contents(self) -> None:
        """Record the content of every file."""
        for root in (self.folder, self.outside):
            self.contents |= {p: p.read_bytes() for p in files_below(root)}

    def restore(self) -> None:
        """Undo every change: modified, removed and added files."""
        for root in (self.folder, self.outside):
            for path in files_below(root):
                if path not in self.contents or path.is_symlink():
                    path.unlink()
        shutil.rmtree(self.link_target, ignore_errors=True)
        for path, data in self.contents.items():
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True)
            if content(path) != data:
                _remove(path)
                path.write_bytes(data)

    def changed_outside(self) -> list[str]:
        """Return the files outside the lake that have changed."""
        found = {p: content(p) for p in files_below(self.outside) if not p.is_symlink()}
        original = {p: d for p, d in self.contents.items() if p.is_relative_to(self.outside)}
        wrong = [p for p in found.keys() | original.keys() if found.get(p) != original.get(p)]
        return [str(p) for p in (*wrong, *self._missing_behind_links())]

    def _missing_behind_links(self) -> Iterator[Path]:
        """Yield the files of folders behind a link that are changed or missing."""
        for folder in self.link_target.iterdir() if self.link_target.is_dir() else ():
            own = self.folder / "db/t" / folder.name
            moved = {folder / p.relative_to(own): d for p, d in self.contents.items() if p.is_relative_to(own)}
            yield from (path for path, data in moved.items() if content(path) != data)

    # --- the table metadata ---

    def edit_metadata(self, change: Any) -> None:
        """Change the parsed table metadata in place; a returned value replaces it."""
        path = self.path("metadata")
        parsed = json.loads(path.read_bytes())
        result = change(parsed)
        path.write_text(json.dumps(parsed if result is None else result))

    def changed_files(self) -> list[str]:
        """Return the names of the files of the lake that have changed."""
        found = {p: content(p) for p in files_below(self.folder)}
        original = {p: d for p, d in self.contents.items() if p.is_relative_to(self.folder)}
        return sorted({p.name for p in found.keys() | original.keys() if found.get(p) != original.get(p)})


def content(path: Path) -> bytes | None:
    """Return the bytes of a file; None if it is no regular file or too large to be one of ours."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
        return None
    return path.read_bytes()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def files_below(root: Path) -> Iterator[Path]:
    """Yield every file and every link; links are not followed."""
    for folder, folders, names in os.walk(root):
        yield from (Path(folder) / name for name in names)
        yield from (Path(folder) / name for name in folders if (Path(folder) / name).is_symlink())


def build(folder: Path, version: int) -> DamagedLake:
    """Build an evolved table in its own folder."""
    shutil.rmtree(folder, ignore_errors=True)
    evolved = Lived.create(folder / "lake", version)
    roles = {}
    if version == 2:
        roles |= _foreign_formats(evolved)
    if version == 3:
        evolved.delete_equal([20, 99])
    lake = DamagedLake(folder / "lake", version, roles | _roles(evolved))
    lake.outside.mkdir()
    (lake.outside / "precious.parquet").write_bytes(lake.path("data").read_bytes())
    (lake.outside / "keys.txt").write_text("do not touch")
    _close_catalog(evolved.kit)
    lake.record_contents()
    return lake


def _close_catalog(kit: Kit) -> None:
    """Close the catalog, with all its content in one file."""
    with kit.catalog.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    kit.catalog.engine.dispose()


def _foreign_formats(evolved: Lived) -> dict[str, Path]:
    """Write data files in ORC and Avro and append them to the table."""
    kit, result = evolved.kit, {}
    for suffix, write in (("orc", _write_orc), ("avro", _write_avro)):
        path = local(kit.path(f"more-{suffix}", suffix))
        write(path)
        entry = kit.data(f"more-{suffix}", spec=2, rows=len(MORE), file_format=suffix.upper())
        stated = entry.with_columns(
            file_path=[kit.path(f"more-{suffix}", suffix)], file_size_in_bytes=[path.stat().st_size]
        )
        kit.ok(Append(stated, fast=True))
        result[suffix] = path
    return result


def _write_orc(path: Path) -> None:
    fields = [
        pa.field(name, kind, True, {"iceberg.id": str(i)})
        for i, (name, kind) in enumerate((("id", pa.int64()), ("region", pa.string()), ("amount", pa.float64())), 1)
    ]
    columns = [list(column) for column in zip(*MORE, strict=True)]
    orc.write_table(pa.table(columns, schema=pa.schema(fields)), path, compression="zlib")


def _write_avro(path: Path) -> None:
    with path.open("wb") as out:
        rows = [dict(zip(("id", "region", "amount"), row, strict=True)) for row in MORE]
        fastavro.writer(out, AVRO_ROW, rows, codec="deflate")


def _roles(evolved: Lived) -> dict[str, Path]:
    """Return the file of each role; a format version has only some of the roles."""
    kit = evolved.kit
    head, manifests, live = kit.head(), kit.manifests(), kit.live()
    roles = {
        "metadata": local(kit.table.metadata_location),
        "list": local(head.tree_root_location),
        "old list": local(kit.metadata.snapshots[0].tree_root_location),
        "data": local(evolved.files(0)[0]),
        "data of another spec": local(evolved.files(1)[0]),
    }
    stored = [m for m in manifests if not m.is_inline]
    roles |= {"manifest": local(next(m.file for m in stored if not m.is_deletes))} if stored else {}
    for m in stored:
        if m.is_deletes and local(m.file) not in roles.values():
            roles.setdefault("delete manifest", local(m.file))
    for row in live.columns.to_pylist():
        kind = {1: "positions", 2: "equality"}.get(row["content"])
        if kind:
            roles.setdefault("vector" if row["file_format"] == "PUFFIN" else kind, local(row["file_path"]))
    return roles


def save(lake: DamagedLake, path: Path) -> None:
    path.write_bytes(pickle.dumps(lake))


def load(path: Path) -> DamagedLake:
    found: DamagedLake = pickle.loads(path.read_bytes())
    return found
