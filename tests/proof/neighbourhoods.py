"""Random layouts of tables that share metadata, files and folders, and random maintenance on each of them.

A neighbourhood is one or two lakes with a few tables: beside each other, inside each other, in the same folder, with
the same data or metadata folder, registered under two names, below symbolic links, among other people's files and among
files that killed writers left. Every file has an owner. What a table may lose is computed here with PyIceberg, which
reads the metadata on its own: the files that the table references and nobody else does, and strays in its own folders.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.table import StaticTable

import neve
from neve.errors import UserError

FAR = 2**50  # milliseconds: after every file
PEOPLES_FILES = (
    "thesis.docx",
    "photos/1.jpg",
    "data/notes.txt",
    "b.parquet",
    "archive/data/c.parquet",
    "metadata/readme.md",
)
STRAYS = ("data/00000-0-lost.parquet", "data/x=1/00001-lost-deletes.parquet", "metadata/lost-m0.avro")
LAYOUTS = ("apart", "inside", "inside, metadata elsewhere", "same data folder", "same folder", "below a link")


@dataclass
class Neighbour:
    """A table of a neighbourhood, and the rows it must have."""

    lake: neve.Lake
    name: str
    ids: list[int]

    @property
    def table(self) -> neve.Table:
        return self.lake.table(self.name)

    def reach(self, *, live_only: bool = False) -> set[Path]:
        """The files that the table references, by PyIceberg; those that were removed too, unless `live_only`."""
        location = self.table.context.iceberg.metadata_location
        table = StaticTable.from_metadata(location)
        paths = {location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        for snapshot in table.metadata.snapshots:
            paths.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                paths.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=live_only)
                paths |= {entry.data_file.file_path for entry in entries}
        return {real(path) for path in paths}

    def needed(self) -> set[Path]:
        """The files that readers open: live in a snapshot, and no old metadata."""
        log = self.table.context.metadata.metadata_log
        return self.reach(live_only=True) - {real(entry.metadata_file) for entry in log}


def real(path: str) -> Path:
    return Path(path.removeprefix("file://")).resolve()


@dataclass
class Neighbourhood:
    """Tables in one folder, built and maintained at random."""

    folder: Path
    seed: int
    tables: list[Neighbour] = field(default_factory=list)
    peoples_files: set[Path] = field(default_factory=set)
    strays: set[Path] = field(default_factory=set)  # files that killed writers left
    actions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.lakes = [neve.connect(self.folder / "lake")]
        if self.random.random() < 0.3:
            self.lakes.append(neve.connect(self.folder / "other"))
        for _ in range(self.random.randint(2, 4)):
            self.add_table()
        for _ in range(self.random.randint(0, 2)):
            self.register_again()
        self.scatter_files()

    # -- building ----------------------------------------------------------------------------------------------------

    def add_table(self) -> None:
        """Create a table somewhere, with a few commits, some of which others make obsolete."""
        lake, number = self.random.choice(self.lakes), len(self.tables)
        near = [
            other for other in self.tables if other.lake is lake
        ]  # lakes know each other's names, not their folders
        layout = self.random.choice(LAYOUTS) if near else "apart"
        location, properties = self.place(layout, number, near)
        version, name = self.random.choice((1, 2, 3)), f"db.t{number}"
        self.actions.append(f"create {name}, version {version}, {layout}")
        if self.random.random() < 0.3:
            properties |= {
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "1",
            }
        table = lake.create_table(name, "id bigint", location=location, format_version=version, properties=properties)
        neighbour = Neighbour(lake, name, [])
        for _ in range(self.random.randint(1, 3)):
            self.change(neighbour)
        assert table.name == name
        self.tables.append(neighbour)

    def place(self, layout: str, number: int, nearby: list[Neighbour]) -> tuple[str | None, dict[str, str]]:
        """Return the location and the properties of a table with a layout relative to another one."""
        if layout == "apart":
            return None, {}
        near = self.random.choice(nearby).table.context.metadata
        inside, elsewhere = f"{near.location}/t{number}", f"file://{self.folder}/elsewhere{number}"
        if layout == "same data folder":
            return None, {"write.data.path": near.properties.get("write.data.path", f"{near.location}/data")}
        if layout == "below a link":
            link = self.folder / f"link{number}"
            link.symlink_to(real(near.location), target_is_directory=True)
            return f"file://{link}/t{number}", {}
        if layout == "same folder":
            return near.location, {"write.metadata.path": elsewhere}
        return inside, {"write.metadata.path": elsewhere} if layout.endswith("elsewhere") else {}

    def register_again(self) -> None:
        """Register the metadata of a table under another name, in one of the lakes."""
        twin, lake = self.random.choice(self.tables), self.random.choice(self.lakes)
        name = f"db.again{len(self.tables)}"
        self.actions.append(f"register {twin.name} as {name}")
        lake.register_table(name, twin.table.context.iceberg.metadata_location)
        self.tables.append(Neighbour(lake, name, list(twin.ids)))

    def scatter_files(self) -> None:
        """Put other people's files and strays into the folders of tables."""
        for neighbour in self.tables:
            place = real(neighbour.table.context.metadata.location)
            chosen = self.random.sample(PEOPLES_FILES, self.random.randint(0, 2))
            self.peoples_files |= {write(place / name) for name in chosen}
            self.strays |= {write(place / name) for name in self.random.sample(STRAYS, self.random.randint(0, 2))}

    # -- acting ------------------------------------------------------------------------------------------------------

    def change(self, neighbour: Neighbour) -> None:
        """Append to a table, or overwrite it, so that its old files are only in old snapshots."""
        number = self.random.randint(0, 1000)
        if self.random.random() < 0.5:
            neighbour.table.append([{"id": number}])
            neighbour.ids.append(number)
        else:
            neighbour.table.overwrite([{"id": number}])
            neighbour.ids = [number]

    def act(self) -> str:
        """Run one random action on one table, and check that nobody else lost anything; return its outcome."""
        neighbour = self.random.choice(self.tables)
        name, action = self.random.choice(list(ACTIONS.items()))
        self.actions.append(f"{name} on {neighbour.name}")
        before = self.files()
        others = [other for other in self.tables if other is not neighbour]
        own, needed = neighbour.reach(), set().union(*(other.needed() for other in others))
        outcome = "done"
        try:
            action(self, neighbour)
        except UserError as e:
            outcome = "rejected"
            self.actions.append(f"  rejected: {e}")
        if name == "drop and purge" and outcome == "done":
            self.tables.remove(neighbour)
        lost = before - self.files()
        allowed = (own - needed) | self.strays
        assert lost <= allowed, f"foreign files deleted: {sorted(map(str, lost - allowed))}"
        assert outcome == "done" or not lost, f"deleted although it was rejected: {lost}"
        self.check()
        return outcome

    def check(self) -> None:
        """Check that every table has its rows and all its files, and that other people have theirs."""
        assert all(path.read_text() == "precious" for path in self.peoples_files)
        for neighbour in self.tables:
            found = sorted(neighbour.table.scan().to_arrow(engine="arrow")["id"].to_pylist())
            assert found == sorted(neighbour.ids), f"{neighbour.name} has {found}, not {sorted(neighbour.ids)}"
            missing = {path for path in neighbour.needed() if not path.exists()}
            assert not missing, f"{neighbour.name} has lost {sorted(map(str, missing))}"

    def files(self) -> set[Path]:
        """Every file in the neighbourhood, except the databases of the catalogs."""
        found = (Path(root, name) for root, _, names in os.walk(self.folder) for name in names)
        return {path.resolve() for path in found if not path.name.startswith("catalog.db")}

    def __repr__(self) -> str:
        return f"neighbourhood {self.seed}:\n  " + "\n  ".join(self.actions)

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("precious")
    os.utime(path, (0, 0))
    return path


def _options(neighbourhood: Neighbourhood, verb: Any) -> Any:
    return verb.allow_shared() if neighbourhood.random.random() < 0.5 else verb


def _expire(neighbourhood: Neighbourhood, neighbour: Neighbour) -> None:
    verb = neighbour.table.expire_snapshots().older_than(FAR).retain_last(1)
    _options(neighbourhood, verb).execute()


def _orphans(neighbourhood: Neighbourhood, neighbour: Neighbour) -> None:
    _options(neighbourhood, neighbour.table.remove_orphan_files().older_than(FAR).allow_young()).dry_run(
        False
    ).execute()


def _orphans_in_data_folder(neighbourhood: Neighbourhood, neighbour: Neighbour) -> None:
    metadata = neighbour.table.context.metadata
    folder = metadata.properties.get("write.data.path", f"{metadata.location}/data")
    verb = neighbour.table.remove_orphan_files().older_than(FAR).allow_young().location(folder)
    _options(neighbourhood, verb).dry_run(False).execute()


def _purge(neighbourhood: Neighbourhood, neighbour: Neighbour) -> None:
    neighbour.lake.drop_table(neighbour.name, purge=True)


ACTIONS: dict[str, Callable[[Neighbourhood, Neighbour], None]] = {
    "change rows": Neighbourhood.change,
    "change rows again": Neighbourhood.change,
    "expire": _expire,
    "remove orphans": _orphans,
    "remove orphans in the data folder": _orphans_in_data_folder,
    "drop and purge": _purge,
}


def play(folder: Path, seed: int, steps: int) -> Iterator[str]:
    """Build a neighbourhood, run random actions on it, and yield the outcome of each."""
    neighbourhood = Neighbourhood(folder, seed)
    try:
        neighbourhood.check()
        for _ in range(steps):
            if neighbourhood.tables:
                yield neighbourhood.act()
    except Exception as e:
        raise AssertionError(f"{neighbourhood!r}\n{type(e).__name__}: {e}") from e
    finally:
        neighbourhood.remove()
