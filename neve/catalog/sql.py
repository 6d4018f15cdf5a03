"""SQL catalogs: a row holds the location of the current metadata, and a compare-and-swap changes it.

They work on any database that SQLAlchemy supports; SQLite and PostgreSQL are tested. The embedded catalog is one SQLite
file in the lake folder, and safe for concurrent processes.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from pyiceberg.catalog import Catalog, MetastoreCatalog, PropertiesUpdateSummary
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.catalog.sql import SqlCatalog as IcebergSqlCatalog
from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy import URL, ColumnElement, Executable, create_engine, insert, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from neve.catalog.base import NeveCatalog, NewTable, check_requirements
from neve.catalog.metadata_files import (
    StagedMetadata,
    free_location,
    next_metadata_location,
    read_metadata,
    stage_updates,
    write_metadata,
)
from neve.catalog.swap import (
    CatalogUnavailable,
    LostRace,
    MaybeSwapped,
    NotSwapped,
    RequirementFailed,
    Swapped,
    SwapStatus,
)
from neve.errors import CommitUnknown, NeveError, TableError, UserError
from neve.io.files import delete_files
from neve.model.metadata import TableMetadata, to_neve_metadata
from neve.model.new_table import new_metadata
from neve.model.properties import properties_of

T = TypeVar("T")
_LOCK_WAIT_SECONDS = 60
DATABASE_NAME = "catalog.db"  # in a lake folder
_LOCATION_QUERY = (
    "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)


class SqlCatalogMixin(NeveCatalog, IcebergSqlCatalog):
    """The methods of a SQL catalog that differ from PyIceberg's; they precede those of the adopted class."""

    exchanges_metadata = True

    def swap(self, table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> Swapped:
        """Write new metadata and point the row to it, if the row still points to the base."""
        identifier = table.name()
        try:
            base_location = _read_with_reconnect(lambda: self._current_location(identifier))
        except SQLAlchemyError as e:
            raise CatalogUnavailable(f"Cannot ask catalog {self.name!r}: {cause_of(e)}. Nothing landed.") from e
        base: TableMetadata | None = None  # of a table that does not exist yet
        if base_location is not None and base_location == table.metadata_location:
            base = table.metadata if isinstance(table.metadata, TableMetadata) else None
        if base_location is not None and base is None:
            base = read_metadata(self._load_file_io(EMPTY_DICT, base_location), base_location)
        check_requirements(requirements, base, identifier)
        if base is not None and base.location != table.metadata.location:
            # The new manifests were made of those at the former location, where nothing may be tomorrow.
            raise RequirementFailed(f"Table {'.'.join(identifier)} was moved to {base.location}.")
        staged = stage_updates(base, base_location, updates)
        if staged.metadata is base:  # the updates changed nothing, so that there is nothing to write
            return Swapped(base, staged.metadata, staged.location)
        io = self._load_file_io(EMPTY_DICT, staged.location)
        try:
            write_metadata(io, staged.location, staged.metadata)
        except (OSError, TableError) as e:
            raise CatalogUnavailable(f"{e}. Nothing landed.", staged.location) from e
        self._swap_location(identifier, staged, updates)
        return Swapped(base, staged.metadata, staged.location)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table with metadata of `neve.model.metadata`."""
        return self._read_database(lambda: super(SqlCatalogMixin, self).load_table(identifier), "a table")

    def refresh_table(self, table: Table) -> Table:
        """Return the newest state of a table; its metadata is not read again if it has not changed."""
        location = self._read_database(lambda: self._current_location(table.name()), "a table")
        is_ours = isinstance(table.metadata, TableMetadata)
        return table if is_ours and location == table.metadata_location else self.load_table(table.name())

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        """Check whether a namespace exists."""
        return self._read_database(lambda: super(SqlCatalogMixin, self).namespace_exists(namespace), "a namespace")

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Return the namespaces inside one, or those at the top."""
        return self._read_database(lambda: super(SqlCatalogMixin, self).list_namespaces(namespace), "its namespaces")

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the tables of a namespace."""
        return self._read_database(lambda: super(SqlCatalogMixin, self).list_tables(namespace), "its tables")

    def _read_database(self, read: Callable[[], T], subject: str) -> T:
        try:
            return _read_with_reconnect(read)
        except SQLAlchemyError as e:
            raise TableError(f"Cannot ask catalog {self.name!r} for {subject}: {cause_of(e)}.") from e

    def swap_status(self, lost_swap: MaybeSwapped) -> SwapStatus:
        """Find out how a swap ended; reading under the lock waits for one that is still running."""
        try:
            location = _read_with_reconnect(lambda: self._current_location(lost_swap.identifier, locked=True))
            if location is None:
                return SwapStatus.OPEN
            if location == lost_swap.base_location:
                return SwapStatus.NEVER
            metadata = read_metadata(self._load_file_io(EMPTY_DICT, location), location)
        except (SQLAlchemyError, NeveError, OSError):
            return SwapStatus.OPEN
        return lost_swap.swap_status_in(metadata, location, is_final=True)

    def point_to(self, table: Table, metadata_location: str) -> None:
        """Make another metadata file the current one of a table, unless a concurrent writer has changed the table."""
        base = to_neve_metadata(table.metadata)
        staged = StagedMetadata(base, table.metadata_location, base, metadata_location)
        self._swap_location(table.name(), staged)

    def create(self, identifier: Identifier, table: NewTable) -> Table:
        """Create a table in an existing namespace."""
        namespace, name = _row_key(identifier)
        if self._read_database(lambda: self._current_location(identifier), "a table") is not None:
            raise TableAlreadyExistsError(f"Table {namespace}.{name} already exists")
        location, properties = self._resolve_table_location(table.location, namespace, name), table.properties
        properties_of(properties).check()
        metadata = new_metadata(
            table.schema,
            table.spec,
            table.sort_order,
            location,
            properties,
            table.format_version,
            numbered=table.numbered_schema,
        )
        staged = StagedMetadata(None, None, metadata, next_metadata_location(metadata))
        io = self._load_file_io(EMPTY_DICT, staged.location)
        write_metadata(io, staged.location, staged.metadata)
        try:
            self._swap_location(identifier, staged)
        except NotSwapped as e:
            delete_files(io, [staged.location])  # nobody else knows its random name
            if not isinstance(e, LostRace):
                raise
            raise TableAlreadyExistsError(f"Table {namespace}.{name} already exists") from e
        return self._make_table(identifier, staged.metadata, staged.location)

    def _resolve_table_location(self, location: str | None, database_name: str, table_name: str) -> str:
        """Return the location of a new table; a default location that another table uses is avoided."""
        resolved: str = super()._resolve_table_location(location, database_name, table_name)
        if location:
            return resolved
        return free_location(self._load_file_io(EMPTY_DICT, resolved), resolved, self._has_table_in)

    def _has_table_in(self, location: str) -> bool:
        """Check by the last two folders of a location whether a table of any catalog in this database may be there."""
        folders = f"/{'/'.join(location.rstrip('/').split('/')[-2:])}/"
        query = select(IcebergTables).where(IcebergTables.metadata_location.contains(folders, autoescape=True))

        def first_match() -> IcebergTables | None:
            with self._session() as session:
                return session.scalars(query.limit(1)).first()

        return self._read_database(first_match, "the locations of its tables") is not None

    def list_rows(self) -> list[tuple[str, str, str, str]]:
        """Return catalog, namespace, name and metadata location of the tables of all catalogs in this database."""
        columns = (IcebergTables.catalog_name, IcebergTables.table_namespace, IcebergTables.table_name)
        query, kind = select(*columns, IcebergTables.metadata_location), self._iceberg_type_filter()

        def read_rows() -> list[Any]:
            with self._session() as session:
                return [tuple(row) for row in session.execute(query if kind is None else query.where(kind))]

        return self._read_database(read_rows, "its tables")

    def drop_table(self, identifier: str | Identifier) -> None:
        """Remove a table from the catalog."""
        with self._translate_write_errors("drop of table", identifier):
            super().drop_table(identifier)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Rename a table."""
        with self._translate_write_errors("rename of table", from_identifier):
            return super().rename_table(from_identifier, to_identifier)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        """Register an existing metadata file as a table."""
        options = {"overwrite": True} if overwrite else {}  # older versions of PyIceberg do not accept it
        with self._translate_write_errors("registration of table", identifier):
            return super().register_table(identifier, metadata_location, **options)

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """Create a namespace. A property of its own keeps it when all others are removed, as Iceberg does it."""
        with self._translate_write_errors("creation of namespace", namespace):
            super().create_namespace(namespace, {**properties, "exists": "true"})

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """Return the properties of a namespace."""
        return self._read_database(
            lambda: super(SqlCatalogMixin, self).load_namespace_properties(namespace), "a namespace"
        )

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        """Set and remove properties of a namespace."""
        with self._translate_write_errors("change of namespace", namespace):
            return super().update_namespace_properties(namespace, removals, updates)

    def drop_namespace(self, namespace: str | Identifier) -> None:
        """Drop a namespace; PyIceberg's check does not see views."""
        inside = IcebergTables.table_namespace == Catalog.namespace_to_string(Catalog.identifier_to_tuple(namespace))
        query = select(IcebergTables.table_name).where(IcebergTables.catalog_name == self.name, inside)
        with self._translate_write_errors("drop of namespace", namespace):
            with self._session() as session:
                if (name := session.scalar(query.limit(1))) is not None:
                    raise NamespaceNotEmptyError(f"Namespace {namespace} holds {name}")
            super().drop_namespace(namespace)

    @contextlib.contextmanager
    def _translate_write_errors(self, action: str, name: str | Identifier) -> Iterator[None]:
        """Turn database errors into CommitUnknown: the change may have been made."""
        try:
            yield
        except SQLAlchemyError as e:
            shown = ".".join(Catalog.identifier_to_tuple(name))
            message = f"Cannot tell whether the {action} {shown} was done: {cause_of(e)}. Check before you try again."
            raise CommitUnknown(message) from e

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        if not (location := orm_table.metadata_location):
            raise NoSuchTableError(f"Table {orm_table.table_name} has no metadata location in the catalog")
        metadata = read_metadata(self._load_file_io(EMPTY_DICT, location), location)
        identifier = (*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return self._make_table(identifier, metadata, location)

    def _make_table(self, identifier: Identifier, metadata: TableMetadata, location: str) -> Table:
        # Only properties of the catalog: those of the table come from storage and must not choose code or endpoints.
        return Table(identifier, metadata, location, self._load_file_io(EMPTY_DICT, location), self)

    def _current_location(self, identifier: Identifier, locked: bool = False) -> str | None:
        query = select(IcebergTables.metadata_location).where(*self._row_conditions(identifier))
        kind = self._iceberg_type_filter()
        query = query if kind is None else query.where(kind)
        with self._session(locked) as session:
            location: str | None = session.scalar(query.with_for_update() if locked else query)
            return location

    def _row_conditions(self, identifier: Identifier) -> list[ColumnElement[bool]]:
        columns = (IcebergTables.catalog_name, IcebergTables.table_namespace, IcebergTables.table_name)
        return [column == value for column, value in zip(columns, (self.name, *_row_key(identifier)), strict=True)]

    @contextlib.contextmanager
    def _session(self, locked: bool = False) -> Iterator[Session]:
        """Open a session. A locked one is the only writer (SQLite), or waits for a row up to a limit (PostgreSQL)."""
        session = Session(self.engine)
        try:
            if locked and self.engine.dialect.name == "sqlite":
                session.connection().exec_driver_sql("BEGIN IMMEDIATE")
            elif locked and self.engine.dialect.name == "postgresql":
                session.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_WAIT_SECONDS}s'"))
            yield session
        finally:
            with contextlib.suppress(SQLAlchemyError):  # an error while closing must not hide the outcome
                session.close()

    def _swap_location(self, identifier: Identifier, staged: StagedMetadata, updates: Sequence[Any] = ()) -> None:
        """Point the row of the table to the staged metadata, or insert the row; raise unless it landed."""
        if staged.base_location:
            row_has_base = IcebergTables.metadata_location == staged.base_location
            statement: Executable = (
                update(IcebergTables)
                .where(*self._row_conditions(identifier), row_has_base)
                .values(metadata_location=staged.location, previous_metadata_location=staged.base_location)
            )
        else:
            row = self._create_table_row(*_row_key(identifier), staged.location)
            statement = insert(IcebergTables).values(**row)
        shown = ".".join(identifier)
        try:
            with self._session(locked=True) as session:
                if cast(Any, session.execute(statement)).rowcount < 1:
                    raise LostRace(f"Another writer changed {shown} first. Refresh and try again.", staged.location)
                self._commit_session(session, identifier, staged, updates)
        except IntegrityError as e:
            raise LostRace(f"Another writer created {shown} first.", staged.location) from e
        except SQLAlchemyError as e:  # COMMIT was not sent, so the database rolls back
            if _is_conflict(e):
                raise LostRace(f"Table {shown}: {cause_of(e)}. Refresh and try again.", staged.location) from e
            message = f"Catalog {self.name!r} failed before committing {shown}: {cause_of(e)}. Nothing landed."
            raise CatalogUnavailable(message, staged.location) from e

    def _commit_session(
        self, session: Session, identifier: Identifier, staged: StagedMetadata, updates: Sequence[Any]
    ) -> None:
        try:
            session.commit()
        except SQLAlchemyError as e:
            shown = ".".join(identifier)
            # SQLITE_BUSY: no lock, so the transaction is still open
            is_busy = getattr(getattr(e, "orig", None), "sqlite_errorname", "").startswith("SQLITE_BUSY")
            if is_busy or _is_conflict(e):
                raise LostRace(f"Table {shown}: {cause_of(e)}. Refresh and try again.", staged.location) from e
            message = f"The answer to the commit of {shown} was lost: {cause_of(e)}. It may be at {staged.location}."
            base, base_location = staged.base, staged.base_location
            raise MaybeSwapped(message, identifier, base, base_location, staged.location, updates) from e


class SqlCatalog(SqlCatalogMixin):
    """A SQL catalog to name in PyIceberg's configuration: `py-catalog-impl: neve.catalog.SqlCatalog`."""


class EmbeddedCatalog(SqlCatalogMixin):
    """The catalog inside a lake folder: `catalog.db` beside the tables. Its properties are those of the storage."""

    def __init__(self, folder: Path, **properties: str) -> None:
        if rejected := sorted({"type", "uri", "warehouse", "py-catalog-impl"} & properties.keys()):
            raise UserError(
                f"A lake folder has its own catalog, and {folder} cannot be opened with {', '.join(rejected)}. "
                "Give a name to open another catalog: connect(catalog='name', uri=…)."
            )
        folder.mkdir(parents=True, exist_ok=True)
        database = folder / DATABASE_NAME
        locations = {"uri": f"sqlite:///{database}", "warehouse": f"file://{folder}"}
        MetastoreCatalog.__init__(self, "neve", **properties, **locations)
        # No pool: a connection kept across fork() would corrupt SQLite's locks.
        self.engine = create_engine(
            URL.create("sqlite", database=str(database)),
            poolclass=NullPool,
            connect_args={"timeout": _LOCK_WAIT_SECONDS},
        )
        self._init_catalog()

    def _current_location(self, identifier: Identifier, locked: bool = False) -> str | None:
        try:
            return super()._current_location(identifier, locked)
        except OperationalError as e:
            # SQLite cannot even read on a full disk, where it has no room for its index of the write-ahead log. If the
            # log is empty, nobody writes, and the database file is complete without it.
            database = Path(str(self.engine.url.database))
            log = database.with_name(f"{database.name}-wal")
            is_locked = getattr(e.orig, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
            if is_locked or (log.exists() and log.stat().st_size):
                raise
            with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?immutable=1", uri=True)) as connection:
                row = connection.execute(_LOCATION_QUERY, (self.name, *_row_key(identifier))).fetchone()
            return None if row is None else str(row[0])

    def _init_catalog(self) -> None:
        with self.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        with self._session(locked=True):  # only one process at a time creates the tables
            pass
        try:
            super()._init_catalog()
        except OperationalError:  # another process created them between check and creation
            super()._init_catalog()


def _row_key(identifier: Identifier) -> tuple[str, str]:
    return Catalog.namespace_to_string(Catalog.namespace_from(identifier)), Catalog.table_name_from(identifier)


def _read_with_reconnect(read: Callable[[], T]) -> T:
    """Read, and once more if the connection from the pool is dead."""
    try:
        return read()
    except DBAPIError as e:
        if not e.connection_invalidated:
            raise
        return read()


def _is_conflict(error: SQLAlchemyError) -> bool:
    """Check whether the database rolled back because of another transaction (SQLSTATE class 40)."""
    return (getattr(getattr(error, "orig", None), "pgcode", None) or "").startswith("40")


def cause_of(error: SQLAlchemyError) -> str:
    """Return the reason of an error, without the statement and its parameters."""
    return str(getattr(error, "orig", None) or type(error).__name__).strip()
