"""The views of a catalog: create, replace, load, drop, rename and list them by name.

SQL catalogs keep a view in the same table as tables, marked as a view and pointing to its metadata file, as Iceberg's
JDBC catalog does. REST catalogs keep them on the server. Other catalogs have no views.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Protocol, cast

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.typedef import EMPTY_DICT, Identifier
from sqlalchemy import Executable, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from neve.catalog.base import NeveCatalog
from neve.catalog.metadata_files import free_location, version_of
from neve.catalog.namespaces import all_namespaces, ensure_namespace, translate_missing_namespace
from neve.catalog.rest import RestCatalogMixin
from neve.catalog.rest_views import RestViews, has_view_endpoints
from neve.catalog.sql import SqlCatalogMixin
from neve.catalog.tables import identifier_of
from neve.errors import CommitConflict, MissingFile, UnknownName, UnsupportedFeature, UserError
from neve.io.files import delete_files, read_file, write_new_file
from neve.model.view import (
    MAX_VIEW_BYTES,
    StoredView,
    ViewDefinition,
    ViewMetadata,
    new_view,
    parse_view,
    serialise_view,
)

_VIEW = "VIEW"  # in the column that says what a row is


class ViewStore(Protocol):
    """Where a catalog keeps its views. A name is at most one thing: a table or a view."""

    def load(self, identifier: Identifier) -> StoredView | None:
        """Return a view, or None."""

    def names_in(self, namespace: Identifier) -> list[Identifier]:
        """Return the views of a namespace."""

    def create(self, identifier: Identifier, definition: ViewDefinition) -> StoredView:
        """Create a view."""

    def replace(self, view: StoredView, metadata: ViewMetadata) -> StoredView:
        """Replace the metadata of a view, unless another writer has replaced it."""

    def drop(self, view: StoredView) -> None:
        """Remove a view from the catalog."""

    def rename(self, view: StoredView, new_identifier: Identifier) -> None:
        """Rename a view."""


@dataclass(frozen=True, slots=True)
class SqlViews:
    """The views of a SQL catalog."""

    catalog: SqlCatalogMixin

    def load(self, identifier: Identifier) -> StoredView | None:
        """Read the metadata file that the row of a view points to."""
        query = select(IcebergTables.metadata_location).where(*self._conditions(identifier))

        def read_location() -> str | None:
            with self.catalog._session() as session:
                location: str | None = session.scalar(query)
                return location

        location = self.catalog._read_database(read_location, "a view")
        return None if location is None else StoredView(identifier, self._read(location), location)

    def names_in(self, namespace: Identifier) -> list[Identifier]:
        """Return the views whose rows are in a namespace."""
        inside = Catalog.namespace_to_string(namespace)
        conditions = (IcebergTables.table_namespace == inside, IcebergTables.iceberg_type == _VIEW)
        query = select(IcebergTables.table_name).where(IcebergTables.catalog_name == self.catalog.name, *conditions)

        def read_names() -> list[str]:
            with self.catalog._session() as session:
                return [str(name) for name in session.scalars(query)]

        return [(*namespace, name) for name in self.catalog._read_database(read_names, "its views")]

    def create(self, identifier: Identifier, definition: ViewDefinition) -> StoredView:
        """Write the metadata and insert a row; a name that is taken is an error."""
        namespace, name = Catalog.namespace_to_string(identifier[:-1]), identifier[-1]
        default = self.catalog._resolve_table_location(None, namespace, name)
        io = self.catalog._load_file_io(EMPTY_DICT, default)
        view = self._write(identifier, new_view(definition, free_location(io, default)))
        row = {**self.catalog._create_table_row(namespace, name, view.metadata_location), "iceberg_type": _VIEW}
        try:
            self._execute(insert(IcebergTables).values(**row), view, "creation of view", identifier)
        except UserError:
            delete_files(io, [view.metadata_location])
            raise
        return view

    def replace(self, view: StoredView, metadata: ViewMetadata) -> StoredView:
        """Write the metadata and point the row to it, if it still points to the metadata that was replaced."""
        changed = self._write(view.identifier, metadata, view.metadata_location)
        statement = (
            update(IcebergTables)
            .where(*self._conditions(view.identifier), IcebergTables.metadata_location == view.metadata_location)
            .values(metadata_location=changed.metadata_location, previous_metadata_location=view.metadata_location)
        )
        if not self._execute(statement, view, "change of view"):
            delete_files(self.catalog._load_file_io(EMPTY_DICT, metadata.location), [changed.metadata_location])
            raise CommitConflict(f"Another writer changed view {view.name} first. Try again.")
        return changed

    def drop(self, view: StoredView) -> None:
        """Delete the row."""
        self._execute(delete(IcebergTables).where(*self._conditions(view.identifier)), view, "drop of view")

    def rename(self, view: StoredView, new_identifier: Identifier) -> None:
        """Change the name in the row; a name that is taken is an error."""
        namespace = Catalog.namespace_to_string(new_identifier[:-1])
        statement = update(IcebergTables).where(*self._conditions(view.identifier))
        statement = statement.values(table_namespace=namespace, table_name=new_identifier[-1])
        self._execute(statement, view, "rename of view", new_identifier)

    def _conditions(self, identifier: Identifier) -> list[Any]:
        return [*self.catalog._row_conditions(identifier), IcebergTables.iceberg_type == _VIEW]

    def _execute(self, statement: Executable, view: StoredView, action: str, new_name: Identifier = ()) -> int:
        """Run a statement in a transaction, and return how many rows it changed; a name that is taken is an error."""
        catalog = self.catalog
        with catalog._translate_write_errors(action, view.identifier), catalog._session(locked=True) as session:
            try:
                changed = cast(Any, session.execute(statement)).rowcount
            except IntegrityError as e:
                raise UserError(f"There is already a table or view {'.'.join(new_name)}. Choose another name.") from e
            session.commit()
            return int(changed)

    def _read(self, location: str) -> ViewMetadata:
        try:
            raw = read_file(self.catalog._load_file_io(EMPTY_DICT, location), location, MAX_VIEW_BYTES)
        except MissingFile as e:
            raise MissingFile(location, "the catalog") from e
        return parse_view(raw, location)

    def _write(self, identifier: Identifier, metadata: ViewMetadata, previous: str | None = None) -> StoredView:
        """Write metadata beside the metadata before it: the location in a file may be anything."""
        folder = f"{metadata.location}/metadata" if previous is None else previous.rpartition("/")[0]
        version = 0 if previous is None else (version_of(previous) or 0) + 1
        location = f"{folder}/{version:05d}-{uuid.uuid4()}.metadata.json"
        write_new_file(self.catalog._load_file_io(EMPTY_DICT, location), location, serialise_view(metadata))
        return StoredView(identifier, metadata, location)


def views_of(catalog: NeveCatalog) -> ViewStore | None:
    """Return where a catalog keeps its views; None if it can have none."""
    if isinstance(catalog, SqlCatalogMixin):
        return SqlViews(catalog) if catalog._schema_version != "v0" else None
    if isinstance(catalog, RestCatalogMixin) and has_view_endpoints(catalog):
        return RestViews(catalog)
    return None


def find_view(catalog: NeveCatalog, identifier: Identifier) -> StoredView | None:
    """Return a view, or None."""
    store = views_of(catalog)
    return None if store is None or len(identifier) < 2 else store.load(identifier)


def load_view(catalog: NeveCatalog, name: str | Identifier) -> StoredView:
    """Load a view; raises `UnknownName` with the nearest names if it does not exist."""
    identifier = identifier_of(name)
    if (view := find_view(catalog, identifier)) is None:
        known = map(".".join, list_views(catalog))
        raise UnknownName("view", ".".join(identifier), known, f"catalog {catalog.name!r}")
    return view


def list_views(catalog: NeveCatalog, namespace: str | Identifier | None = None) -> list[Identifier]:
    """Return the views of one namespace, or of all, sorted by name."""
    store = views_of(catalog)
    if namespace is None:
        return sorted(name for each in all_namespaces(catalog) for name in (store.names_in(each) if store else ()))
    parts = tuple(namespace.split(".")) if isinstance(namespace, str) else namespace
    with translate_missing_namespace(catalog, parts):
        if not catalog.namespace_exists(parts):
            raise NoSuchNamespaceError(".".join(parts))
        return sorted(store.names_in(parts)) if store else []


def create_view(catalog: NeveCatalog, name: str | Identifier, definition: ViewDefinition) -> StoredView:
    """Create a view, and its namespace if that does not exist."""
    identifier, store = identifier_of(name), _require_store(catalog)
    ensure_namespace(catalog, identifier[:-1])
    return store.create(identifier, definition)


def replace_view(catalog: NeveCatalog, view: StoredView, metadata: ViewMetadata) -> StoredView:
    """Replace the metadata of a view that was loaded; if another writer was faster, that is a conflict."""
    return view if metadata == view.metadata else _require_store(catalog).replace(view, metadata)


def drop_view(catalog: NeveCatalog, name: str | Identifier) -> None:
    """Remove a view from the catalog. Its metadata files stay, as those of a table do."""
    _require_store(catalog).drop(load_view(catalog, name))


def rename_view(catalog: NeveCatalog, name: str | Identifier, new_name: str | Identifier) -> None:
    """Rename a view; its location stays."""
    view, new_identifier = load_view(catalog, name), identifier_of(new_name)
    ensure_namespace(catalog, new_identifier[:-1])
    _require_store(catalog).rename(view, new_identifier)


def _require_store(catalog: NeveCatalog) -> ViewStore:
    if (store := views_of(catalog)) is not None:
        return store
    if isinstance(catalog, SqlCatalogMixin):
        raise UserError(
            f"Catalog {catalog.name!r} has no room for views: its database has an old layout. Open it once with "
            "schema_version='v1'."
        )
    raise UnsupportedFeature(
        f"Catalog {catalog.name!r} keeps no views. Use a SQL catalog, or a REST catalog that offers views."
    )
