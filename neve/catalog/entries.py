"""List what catalogs hold: every entry with its name, and the location of its metadata where that is known.

A lake folder has its catalog inside, so that lakes can ask each other. The catalog of a lake whose folder contains a
table is found from the table's location. A lake that registers a table elsewhere leaves a note beside the metadata of
the table, so that it can be asked before the table is cleaned up. A note of a lake that no longer lists the table means
nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Identifier

from neve.catalog.base import NeveCatalog
from neve.catalog.metadata_files import read_metadata
from neve.catalog.sql import DATABASE_NAME, EmbeddedCatalog, SqlCatalogMixin
from neve.catalog.tables import list_tables
from neve.errors import NeveError, TableError
from neve.io.files import read_file, write_new_file
from neve.io.parallel import map_in_threads
from neve.io.paths import is_inside, local_path, location_from_property, real_folder, real_path
from neve.model.metadata import TableMetadata, to_neve_metadata
from neve.model.properties import properties_of

_NOTE_PREFIX = ".neve-lake-"
_NOTE_DIGITS, _MAX_NOTE_BYTES = 16, 64 << 10
_LOCK_WAIT_SECONDS = 10
_MAX_LOADED, _LOADING_THREADS = 100, 16  # entries whose metadata location is only known once they are loaded
_LAKE_QUERY = "SELECT catalog_name, table_namespace, table_name, metadata_location FROM iceberg_tables"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A table as a catalog lists it."""

    name: str
    identifier: Identifier
    metadata_location: str | None = None  # None: it becomes known when the catalog loads the table
    problem: str = ""  # why a whole lake cannot be asked, which may list the table

    def load(self, catalog: NeveCatalog) -> Table:
        """Load the table; an entry of another catalog is read by the location of its metadata."""
        if self.problem:
            raise TableError(self.problem)
        if self.metadata_location is None:
            return catalog.load_table(self.identifier)
        io = catalog._load_file_io(EMPTY_DICT, self.metadata_location)
        metadata = read_metadata(io, self.metadata_location)
        return Table(self.identifier, metadata, self.metadata_location, io, catalog)


def leave_note(catalog: NeveCatalog, table: Table) -> None:
    """Note beside the metadata of a registered table that a lake lists it, unless the table is in the lake's folder."""
    if isinstance(catalog, EmbeddedCatalog) and not is_inside(table.metadata_location, catalog.properties["warehouse"]):
        database, folder = str(_database_of(catalog)), table.metadata_location.rpartition("/")[0]
        note = f"{folder}/{_NOTE_PREFIX}{sha256(database.encode()).hexdigest()[:_NOTE_DIGITS]}.json"
        with suppress(NeveError):  # it is there already, or this lake cannot write to the folder
            write_new_file(table.io, note, json.dumps({"catalog": database}).encode())


def folders_of(metadata: TableMetadata, metadata_location: str) -> tuple[str, ...]:
    """Return the folders that a table writes to: its location, that of its metadata, and those in its properties."""
    location, properties = metadata.location.rstrip("/"), properties_of(metadata.properties)
    requested = (path for path in (properties.data_path, properties.metadata_path) if path)
    others = (location_from_property(location, path) for path in requested)
    return tuple(dict.fromkeys((location, metadata_location.rpartition("/")[0], *others)))


def find_overlap(metadata: TableMetadata, metadata_location: str, folder: str) -> str | None:
    """Return the folder of a table that contains, equals or lies in another folder; None if none does."""
    other = real_folder(folder)
    for own in map(real_folder, folders_of(metadata, metadata_location)):
        if f"{own}/".startswith(f"{other}/") or f"{other}/".startswith(f"{own}/"):
            return own
    return None


def list_other_entries(catalog: NeveCatalog, table: Table, paths: Iterable[str] = ()) -> list[CatalogEntry]:
    """Return every entry except the one of the table: of its catalog, and of lakes that contain it or left a note.

    `paths` are the files beside the metadata of the table, with the notes.
    """
    own, in_lakes = table.name(), _list_lakes(catalog, table, paths)
    name = ".".join(own)
    if isinstance(catalog, SqlCatalogMixin):
        own = (*".".join(own[:-1]).split("."), own[-1])  # as the database has it
    else:
        in_lakes = [entry for entry in in_lakes if entry.identifier != own]  # a server of that lake
    return [entry for entry in list_entries(catalog) if (entry.name, entry.identifier) != (name, own)] + in_lakes


def find_entry(catalog: NeveCatalog, entry: CatalogEntry) -> str | None:
    """Return where the metadata of an entry of this catalog is now; None if that is not known."""
    listed = list_entries(catalog) if isinstance(catalog, SqlCatalogMixin) else []
    own = (each for each in listed if (each.name, each.identifier) == (entry.name, entry.identifier))
    return next((each.metadata_location for each in own), None)


def list_entries(catalog: NeveCatalog) -> list[CatalogEntry]:
    """Return every entry of a catalog, and of other catalogs in its database."""
    if not isinstance(catalog, SqlCatalogMixin):
        return [CatalogEntry(".".join(identifier), identifier) for identifier in list_tables(catalog)]
    names = {catalog.name: ""}
    return [_entry_of_row(row, names.get(row[0], f" of catalog {row[0]}")) for row in catalog.list_rows()]


def select_metadata_in_use(catalog: NeveCatalog, table: Table, locations: Collection[str]) -> frozenset[str]:
    """Return which of these metadata files of a table are current for another entry, of its catalog or of a lake.

    All of them count as current if too many entries would have to be loaded to learn it.
    """
    folder = local_path(table.metadata_location.rpartition("/")[0])
    notes = [] if folder is None else map(str, Path(folder).glob(f"{_NOTE_PREFIX}*"))
    entries = [*list_entries(catalog), *_list_lakes(catalog, table, notes)]
    current = [entry.metadata_location for entry in entries if entry.metadata_location is not None]
    unknown = [entry for entry in entries if entry.metadata_location is None]
    if len(unknown) > _MAX_LOADED:
        return frozenset(locations)
    current += map_in_threads(lambda entry: _load_location(entry, catalog), unknown, _LOADING_THREADS)
    names = {path.rpartition("/")[2] for path in locations}
    in_use = {real_path(path) for path in current if path.rpartition("/")[2] in names}
    return frozenset(path for path in locations if real_path(path) in in_use)


def _load_location(entry: CatalogEntry, catalog: NeveCatalog) -> str:
    try:
        return str(entry.load(catalog).metadata_location)
    except NoSuchTableError:  # it was dropped meanwhile
        return ""


def _list_lakes(catalog: NeveCatalog, table: Table, paths: Iterable[str]) -> list[CatalogEntry]:
    """Return the entries of all lakes whose folders contain a table or that left a note, except the catalog itself."""
    folders = map(local_path, folders_of(to_neve_metadata(table.metadata), table.metadata_location))
    above = {folder / DATABASE_NAME for f in folders if f is not None for folder in Path(f).resolve().parents}
    # Only local notes: what is in remote storage must not choose files of this machine.
    notes = [p for p in paths if p.rpartition("/")[2].startswith(_NOTE_PREFIX) and local_path(p) is not None]
    noted, unreadable = set[Path](), list[CatalogEntry]()
    for note in notes:
        try:
            noted |= _databases_in_note(read_file(table.io, note, _MAX_NOTE_BYTES))
        except NeveError as e:
            unreadable.append(_problem_entry("the lake of a note", f"Cannot read {note}: {e}"))
    own = _database_of(catalog)
    lakes = (_entries_of_lake(file, is_noted=file in noted) for file in sorted(above | noted) if file != own)
    return [*unreadable, *(entry for entries in lakes for entry in entries)]


def _databases_in_note(data: bytes) -> set[Path]:
    """Return the database that a note names; none if it is no note of ours, since storage is not trusted."""
    try:
        database = Path(json.loads(data)["catalog"])
    except (ValueError, KeyError, TypeError):
        return set()
    return {database} if database.is_absolute() and database.name == DATABASE_NAME else set()


def _database_of(catalog: NeveCatalog) -> Path | None:
    database = catalog.engine.url.database if isinstance(catalog, SqlCatalogMixin) else None
    return None if database is None else Path(database).resolve()


def _entries_of_lake(database: Path, *, is_noted: bool) -> list[CatalogEntry]:
    """Return the entries of a lake; a file of its name that no note names may be something else."""
    name = f"the lake {database.parent}"
    try:
        if not is_noted and not database.is_file():
            return []
        uri = f"{database.as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, _LOCK_WAIT_SECONDS, uri=True)) as connection:
            rows = connection.execute(_LAKE_QUERY).fetchall()
    except (sqlite3.Error, OSError) as e:
        is_another = getattr(e, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB or "no such table" in str(e)
        if is_another and not is_noted:
            return []
        advice = f" If that lake is gone, delete the files {_NOTE_PREFIX}* beside the metadata." if is_noted else ""
        return [_problem_entry(name, f"Cannot ask {name}: {e}.{advice}")]
    return [_entry_of_row(row, f" of {name}") for row in rows]


def _problem_entry(name: str, problem: str) -> CatalogEntry:
    return CatalogEntry(name, (), problem=problem)


def _entry_of_row(row: tuple[str, str, str, str], whose: str) -> CatalogEntry:
    _, namespace, name, metadata_location = row
    return CatalogEntry(f"{namespace}.{name}{whose}", (*namespace.split("."), name), metadata_location)
