"""Create, load, drop, rename, register and list tables by name. Errors for unknown names suggest existing ones."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.typedef import EMPTY_DICT, Identifier

from neve.catalog.base import NeveCatalog, NewTable
from neve.catalog.metadata_files import free_location, read_metadata
from neve.catalog.namespaces import all_namespaces, ensure_namespace, refuse_wrong_parts, translate_missing_namespace
from neve.catalog.rest import RestCatalogMixin
from neve.errors import UnknownName, UnsupportedFeature, UserError
from neve.model.properties import properties_of


def create_table(
    catalog: NeveCatalog,
    identifier: str | Identifier,
    schema: Schema,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    sort_order: SortOrder = UNSORTED_SORT_ORDER,
    location: str | None = None,
    properties: Mapping[str, str] = EMPTY_DICT,
    format_version: int | None = None,
    *,
    keeps_ids: bool = False,
) -> Table:
    """Create a table, and its namespace if that does not exist. `format_version` is 1 to 4, by default 2.

    With `keeps_ids`, the columns of the schema keep their ids; a catalog that numbers them itself is an error.
    """
    parts = identifier_of(identifier)
    texts = {key: str(value) for key, value in properties.items()}
    version = properties_of(texts).format_version if format_version is None else format_version
    texts.pop("format-version", None)
    ensure_namespace(catalog, parts[:-1])
    location = absolute_location(location) if location else _default_location(catalog, parts)
    with _translate_taken_name(parts, "Load it, or choose another name."):
        created = catalog.create(parts, NewTable(schema, spec, sort_order, location, texts, version, keeps_ids))
    if keeps_ids and created.schema().as_struct() != schema.as_struct():
        catalog.drop_table(parts)
        raise UnsupportedFeature(
            f"Cannot create table {'.'.join(parts)}: the catalog numbers columns itself, and the data files have field "
            "ids of their own. Create the table in another catalog, and register its metadata file here."
        )
    return created


def load_table(catalog: NeveCatalog, identifier: str | Identifier) -> Table:
    """Load a table; raises `UnknownName` with the nearest names if it does not exist."""
    parts = identifier_of(identifier)
    with _translate_missing_table(catalog, parts):
        return catalog.load_table(parts)


def refresh_table(catalog: NeveCatalog, table: Table) -> Table:
    """Return the newest state of a table; raises what `load_table` raises."""
    with _translate_missing_table(catalog, table.name()):
        return catalog.refresh_table(table)


def drop_table(catalog: NeveCatalog, identifier: str | Identifier) -> None:
    """Remove a table from the catalog. Its files stay."""
    parts = identifier_of(identifier)
    with _translate_missing_table(catalog, parts):
        catalog.drop_table(parts)


def rename_table(catalog: NeveCatalog, identifier: str | Identifier, new_identifier: str | Identifier) -> Table:
    """Rename a table; its location stays."""
    parts, new_parts = identifier_of(identifier), identifier_of(new_identifier)
    with _translate_missing_table(catalog, parts):  # before the new namespace is created
        if parts not in catalog.list_tables(parts[:-1]):
            catalog.load_table(parts)  # some catalogs ignore the case of names
    ensure_namespace(catalog, new_parts[:-1])
    with _translate_taken_name(new_parts), _translate_missing_table(catalog, parts):
        return catalog.rename_table(parts, new_parts)


def register_table(catalog: NeveCatalog, identifier: str | Identifier, metadata_location: str) -> Table:
    """Register an existing metadata file as a table, after checking that it can be read."""
    parts, metadata_location = identifier_of(identifier), absolute_location(metadata_location)
    read_metadata(catalog._load_file_io(EMPTY_DICT, metadata_location), metadata_location)
    ensure_namespace(catalog, parts[:-1])
    with _translate_taken_name(parts):
        return catalog.register_table(parts, metadata_location)


def absolute_location(location: str) -> str:
    """Make a location independent of the current folder of the process."""
    is_relative = re.match(r"/|file:|[A-Za-z][A-Za-z0-9+.-]+:/", location) is None
    return f"file://{Path(location).expanduser().resolve()}" if is_relative else location


def list_tables(catalog: NeveCatalog, namespace: str | Identifier | None = None) -> list[Identifier]:
    """Return the tables of one namespace, or of all, sorted by name."""
    if namespace is not None:
        parts = tuple(namespace.split(".")) if isinstance(namespace, str) else namespace
        with translate_missing_namespace(catalog, parts):
            return sorted(catalog.list_tables(parts))
    return sorted({table for each in all_namespaces(catalog) for table in catalog.list_tables(each)})


def identifier_of(identifier: str | Identifier) -> Identifier:
    """Split a table name: 'db.events' or ('db', 'events'), at least a namespace and a name."""
    parts = identifier.split(".") if isinstance(identifier, str) else identifier
    if not isinstance(parts, tuple | list) or not all(isinstance(part, str) for part in parts):
        raise UserError(f"Give a table by its name, as in 'db.events', not {identifier!r}.")
    shown = ".".join(parts)
    if len(parts) < 2:
        raise UserError(f"Table name {shown!r} needs a namespace, as in 'db.{shown or 'events'}'.")
    refuse_wrong_parts(tuple(parts), "Table")
    return tuple(parts)


def _default_location(catalog: NeveCatalog, parts: Identifier) -> str | None:
    """Return a location for a name with characters that are special in paths; None: the catalog chooses."""
    warehouse = catalog.properties.get("warehouse")
    folders = []
    for part in parts:
        cleaned = re.sub(r"[^\w.-]", "_", part)
        folders.append(part if cleaned == part else f"{cleaned}-{hashlib.sha256(part.encode()).hexdigest()[:8]}")
    if isinstance(catalog, RestCatalogMixin) or warehouse is None or tuple(folders) == parts:
        return None
    location = f"{warehouse.rstrip('/')}/{'.'.join(folders[:-1])}/{folders[-1]}"
    return free_location(catalog._load_file_io(EMPTY_DICT, location), location)


@contextlib.contextmanager
def _translate_missing_table(catalog: NeveCatalog, parts: Identifier) -> Iterator[None]:
    try:
        yield
    except (NoSuchTableError, NoSuchNamespaceError) as e:
        names = map(".".join, list_tables(catalog))
        raise UnknownName("table", ".".join(parts), names, f"catalog {catalog.name!r}") from e


@contextlib.contextmanager
def _translate_taken_name(parts: Identifier, advice: str = "Choose another name.") -> Iterator[None]:
    try:
        yield
    except TableAlreadyExistsError as e:
        raise UserError(f"Table {'.'.join(parts)} already exists. {advice}") from e
