"""The honest tables that hostile ones are made of: one for each format version, small, with every kind of file.

A place is a lake whose files are known by what they are for. Damage is done in place, since tables name their files by
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
from tests.support.evolved_tables import Lived, local
from tests.support.metadata_tables import Kit

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
class Place:
    """A lake with one table `db.t`, the roles its files have, and the bytes of all of them."""

    folder: Path
    version: int
    roles: dict[str, Path]
    rows: dict[str, list[Any]] = field(default_factory=dict)
    whole: dict[Path, bytes] = field(default_factory=dict)

    @property
    def outside(self) -> Path:
        """A folder beside the lake: nothing in it may ever change."""
        return self.folder.parent / "outside"

    @property
    def location(self) -> str:
        return f"file://{self.folder}/db/t"

    @property
    def behind(self) -> Path:
        """Where folders of the table are moved to when a link takes their place."""
        return self.folder.parent / "behind"

    def path(self, role: str) -> Path:
        return self.roles[role]

    def table(self) -> neve.Table:
        return neve.connect(self.folder).table("db.t")

    # --- the bytes ---

    def keep(self) -> None:
        """Remember every file as it is."""
        for root in (self.folder, self.outside):
            self.whole |= {p: p.read_bytes() for p in files_below(root)}

    def restore(self) -> None:
        """Bring everything back: what was changed, removed or added."""
        for root in (self.folder, self.outside):
            for path in files_below(root):
                if path not in self.whole or path.is_symlink():
                    path.unlink()
        shutil.rmtree(self.behind, ignore_errors=True)
        for path, data in self.whole.items():
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True)
            if content(path) != data:
                _remove(path)
                path.write_bytes(data)

    def touched_outside(self) -> list[str]:
        """Files outside the lake that are not what they were."""
        found = {p: content(p) for p in files_below(self.outside) if not p.is_symlink()}
        kept = {p: d for p, d in self.whole.items() if p.is_relative_to(self.outside)}
        wrong = [p for p in found.keys() | kept.keys() if found.get(p) != kept.get(p)]
        return [str(p) for p in (*wrong, *self._gone_behind_links())]

    def _gone_behind_links(self) -> Iterator[Path]:
        """Files of folders that were moved behind a link, and are there no more."""
        for folder in self.behind.iterdir() if self.behind.is_dir() else ():
            own = self.folder / "db/t" / folder.name
            moved = {folder / p.relative_to(own): d for p, d in self.whole.items() if p.is_relative_to(own)}
            yield from (path for path, data in moved.items() if content(path) != data)

    # --- the table metadata ---

    def edit_metadata(self, change: Any) -> None:
        """Change the parsed table metadata in place; a returned value replaces it."""
        path = self.path("metadata")
        parsed = json.loads(path.read_bytes())
        made = change(parsed)
        path.write_text(json.dumps(parsed if made is None else made))

    def changed_files(self) -> list[str]:
        """The names of the files of the lake that are not what they were."""
        found = {p: content(p) for p in files_below(self.folder)}
        kept = {p: d for p, d in self.whole.items() if p.is_relative_to(self.folder)}
        return sorted({p.name for p in found.keys() | kept.keys() if found.get(p) != kept.get(p)})


def content(path: Path) -> bytes | None:
    """The bytes of a file; nothing for what is none, or too large to be one of ours."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
        return None
    return path.read_bytes()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def files_below(root: Path) -> Iterator[Path]:
    """Every file and every link; links are not followed."""
    for folder, folders, names in os.walk(root):
        yield from (Path(folder) / name for name in names)
        yield from (Path(folder) / name for name in folders if (Path(folder) / name).is_symlink())


def build(folder: Path, version: int) -> Place:
    """A table that has lived, in a folder of its own, with its baseline rows."""
    shutil.rmtree(folder, ignore_errors=True)
    lived = Lived.create(folder / "lake", version)
    roles = {}
    if version == 2:
        roles |= _foreign_formats(lived)
    if version == 3:
        lived.delete_equal([20, 99])
    place = Place(folder / "lake", version, roles | _roles(lived))
    place.outside.mkdir()
    (place.outside / "precious.parquet").write_bytes(place.path("data").read_bytes())
    (place.outside / "keys.txt").write_text("do not touch")
    _settle(lived.kit)
    place.keep()
    return place


def _settle(kit: Kit) -> None:
    """Close the catalog, and let all of it be in one file."""
    with kit.catalog.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    kit.catalog.engine.dispose()


def _foreign_formats(lived: Lived) -> dict[str, Path]:
    """Data files of the other two formats."""
    kit, made = lived.kit, {}
    for suffix, write in (("orc", _write_orc), ("avro", _write_avro)):
        path = local(kit.path(f"more-{suffix}", suffix))
        write(path)
        entry = kit.data(f"more-{suffix}", spec=2, rows=len(MORE), file_format=suffix.upper())
        stated = entry.with_columns(
            file_path=[kit.path(f"more-{suffix}", suffix)], file_size_in_bytes=[path.stat().st_size]
        )
        kit.ok(Append(stated, fast=True))
        made[suffix] = path
    return made


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


def _roles(lived: Lived) -> dict[str, Path]:
    """What each file of the table is for; a version has only some of them."""
    kit = lived.kit
    head, manifests, live = kit.head(), kit.manifests(), kit.live()
    roles = {
        "metadata": local(kit.table.metadata_location),
        "list": local(head.tree_root_location),
        "old list": local(kit.metadata.snapshots[0].tree_root_location),
        "data": local(lived.files(0)[0]),
        "data of another spec": local(lived.files(1)[0]),
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


def save(place: Place, path: Path) -> None:
    path.write_bytes(pickle.dumps(place))


def load(path: Path) -> Place:
    found: Place = pickle.loads(path.read_bytes())
    return found
