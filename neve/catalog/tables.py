"""Tables by name: create, load, drop, rename, register, list. Names are checked; errors say what is there instead."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyiceberg.exceptions import (
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.typedef import EMPTY_DICT, Identifier

from neve.catalog.base import NeveCatalog
from neve.catalog.metadata_files import free_location, read_metadata
from neve.catalog.rest import RestCatalogMixin
from neve.errors import UnknownName, UserError
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
) -> Table:
    """Create a table, and its namespace when that does not exist. `format_version` is 1 to 4, 2 when not given."""
    parts = identifier_of(identifier)
    kept = {key: str(value) for key, value in properties.items()}
    version = properties_of(kept).format_version if format_version is None else format_version
    kept.pop("format-version", None)
    _ensure_namespace(catalog, parts[:-1])
    where = _absolute_location(location) if location else _default_location(catalog, parts)
    try:
        return catalog.create(parts, schema, spec, sort_order, where, kept, version)
    except TableAlreadyExistsError as e:
        raise UserError(f"Table {_dotted_name(parts)} already exists. Load it, or choose another name.") from e


def load_table(catalog: NeveCatalog, identifier: str | Identifier) -> Table:
    """The table of this name; `UnknownName` with the nearest names when there is none."""
    parts = identifier_of(identifier)
    with _translate_missing_table(catalog, parts):
        return catalog.load_table(parts)


def drop_table(catalog: NeveCatalog, identifier: str | Identifier) -> None:
    """Forget a table. Its files stay."""
    parts = identifier_of(identifier)
    with _translate_missing_table(catalog, parts):
        catalog.drop_table(parts)


def rename_table(catalog: NeveCatalog, identifier: str | Identifier, new_identifier: str | Identifier) -> Table:
    """Give a table another name; its location stays."""
    parts, new_parts = identifier_of(identifier), identifier_of(new_identifier)
    with _translate_missing_table(catalog, parts):  # before a namespace is made for it
        if parts not in catalog.list_tables(parts[:-1]):
            catalog.load_table(parts)  # some catalogs know names in other cases too
    _ensure_namespace(catalog, new_parts[:-1])
    try:
        with _translate_missing_table(catalog, parts):
            return catalog.rename_table(parts, new_parts)
    except TableAlreadyExistsError as e:
        raise UserError(f"Table {_dotted_name(new_parts)} already exists. Choose another name.") from e


def register_table(catalog: NeveCatalog, identifier: str | Identifier, metadata_location: str) -> Table:
    """Make an existing metadata file a table of this catalog, after checking that it can be read."""
    parts, metadata_location = identifier_of(identifier), _absolute_location(metadata_location)
    read_metadata(catalog._load_file_io(EMPTY_DICT, metadata_location), metadata_location)
    _ensure_namespace(catalog, parts[:-1])
    try:
        return catalog.register_table(parts, metadata_location)
    except TableAlreadyExistsError as e:
        raise UserError(f"Table {_dotted_name(parts)} already exists. Choose another name.") from e


def _absolute_location(location: str) -> str:
    """A place that means the same wherever a process is started."""
    is_relative = re.match(r"/|file:|[A-Za-z][A-Za-z0-9+.-]+:/", location) is None
    return f"file://{Path(location).expanduser().resolve()}" if is_relative else location


def list_tables(catalog: NeveCatalog, namespace: str | Identifier | None = None) -> list[Identifier]:
    """The tables of one namespace, or of all, in order."""
    if namespace is not None:
        parts = tuple(namespace.split(".")) if isinstance(namespace, str) else namespace
        try:
            return sorted(catalog.list_tables(parts))
        except NoSuchNamespaceError as e:
            raise UnknownName("namespace", _dotted_name(parts), map(_dotted_name, _all_namespaces(catalog))) from e
    return sorted({table for found in _all_namespaces(catalog) for table in catalog.list_tables(found)})


def identifier_of(identifier: str | Identifier) -> Identifier:
    """The parts of a table name: 'db.events' or ('db', 'events'), at least a namespace and a name."""
    if not isinstance(identifier, str) and not (
        isinstance(identifier, tuple | list) and all(isinstance(part, str) for part in identifier)
    ):
        raise UserError(f"Give a table by its name, as in 'db.events', not as {identifier!r}.")
    parts = tuple(identifier.split(".")) if isinstance(identifier, str) else tuple(identifier)
    if len(parts) < 2:
        raise UserError(
            f"Table name {_dotted_name(parts)!r} needs a namespace, as in 'db.{_dotted_name(parts) or 'events'}'."
        )
    for part in parts:
        if not part or part in (".", "..") or not part.isprintable() or "/" in part or "\\" in part:
            raise UserError(f"Table name {_dotted_name(parts)!r} has a part {part!r} that cannot be a name.")
    return parts


def _all_namespaces(catalog: NeveCatalog, parent: Identifier = ()) -> Iterator[Identifier]:
    for namespace in sorted(catalog.list_namespaces(parent)):
        if len(namespace) > len(parent):
            yield namespace
            with contextlib.suppress(NoSuchNamespaceError):  # a catalog of one level says so this way
                yield from _all_namespaces(catalog, namespace)


def _ensure_namespace(catalog: NeveCatalog, namespace: Identifier) -> None:
    """Create the namespace, and those around it, where they do not exist."""
    if catalog.namespace_exists(namespace):
        return
    if len(namespace) > 1:
        _ensure_namespace(catalog, namespace[:-1])
    try:
        catalog.create_namespace(namespace)
    except Exception:  # each catalog has its own word for "another process was faster"
        if not catalog.namespace_exists(namespace):
            raise


def _default_location(catalog: NeveCatalog, parts: Identifier) -> str | None:
    """Where a table goes when its name has letters that paths treat differently; None: where the catalog puts it."""
    warehouse = catalog.properties.get("warehouse")
    safe = [_safe(part) for part in parts]
    if isinstance(catalog, RestCatalogMixin) or warehouse is None or tuple(safe) == parts:
        return None
    where = f"{warehouse.rstrip('/')}/{'.'.join(safe[:-1])}/{safe[-1]}"
    return free_location(catalog._load_file_io(EMPTY_DICT, where), where)


def _safe(part: str) -> str:
    cleaned = re.sub(r"[^\w.-]", "_", part)
    return part if cleaned == part else f"{cleaned}-{hashlib.sha256(part.encode()).hexdigest()[:8]}"


@contextlib.contextmanager
def _translate_missing_table(catalog: NeveCatalog, parts: Identifier) -> Iterator[None]:
    try:
        yield
    except (NoSuchTableError, NoSuchNamespaceError) as e:
        names = [_dotted_name(table) for table in list_tables(catalog)]
        raise UnknownName("table", _dotted_name(parts), names, f"catalog {catalog.name!r}") from e


def _dotted_name(parts: Identifier) -> str:
    return ".".join(parts)
