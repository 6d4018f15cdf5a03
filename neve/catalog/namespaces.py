"""Create, change, drop and list namespaces. Errors for unknown names suggest existing ones."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping

from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.typedef import EMPTY_DICT, Identifier

from neve.catalog.base import NeveCatalog
from neve.errors import UnknownName, UserError

_MARKER = "exists"  # the property by which a SQL catalog remembers a namespace without other properties


def create_namespace(catalog: NeveCatalog, namespace: Identifier, properties: Mapping[str, str] = EMPTY_DICT) -> None:
    """Create a namespace; one that exists is an error."""
    refuse_wrong_parts(namespace, "Namespace")
    taken = UserError(f"Namespace {'.'.join(namespace)} already exists. Use it, or choose another name.")
    if catalog.namespace_exists(namespace):
        raise taken
    try:
        catalog.create_namespace(namespace, dict(properties))
    except NamespaceAlreadyExistsError as e:
        raise taken from e


def ensure_namespace(catalog: NeveCatalog, namespace: Identifier) -> None:
    """Create a namespace and its parents if they do not exist."""
    if catalog.namespace_exists(namespace):
        return
    if len(namespace) > 1:
        ensure_namespace(catalog, namespace[:-1])
    try:
        catalog.create_namespace(namespace)
    except Exception:  # each catalog has its own error for "another process was faster"
        if not catalog.namespace_exists(namespace):
            raise


def drop_namespace(catalog: NeveCatalog, namespace: Identifier) -> None:
    """Drop a namespace; one that holds tables or other namespaces is an error."""
    with translate_missing_namespace(catalog, namespace):
        inside = sorted(map(".".join, [*catalog.list_tables(namespace), *_namespaces_in(catalog, namespace)]))
        if inside:
            shown = f"{', '.join(inside[:3])}{', …' if len(inside) > 3 else ''}"
            raise UserError(f"Cannot drop namespace {'.'.join(namespace)}: drop {shown} in it first.")
        try:
            catalog.drop_namespace(namespace)
        except NamespaceNotEmptyError as e:  # it holds views, or another process was faster
            raise UserError(
                f"Cannot drop namespace {'.'.join(namespace)}: it is not empty. SHOW TABLES and SHOW VIEWS list what "
                "is in it."
            ) from e


def namespace_properties(catalog: NeveCatalog, namespace: Identifier) -> dict[str, str]:
    """Return the properties of a namespace."""
    with translate_missing_namespace(catalog, namespace):
        properties = catalog.load_namespace_properties(namespace)
    return {name: value for name, value in sorted(properties.items()) if name != _MARKER}


def change_namespace(
    catalog: NeveCatalog,
    namespace: Identifier,
    updates: Mapping[str, str] = EMPTY_DICT,
    removals: Collection[str] = (),
) -> None:
    """Set and remove properties of a namespace; one to remove that is not set is left alone."""
    with translate_missing_namespace(catalog, namespace):
        catalog.update_namespace_properties(namespace, set(removals), dict(updates))


def list_namespaces(catalog: NeveCatalog, parent: Identifier = ()) -> list[Identifier]:
    """Return the namespaces directly inside one, or those at the top, sorted by name."""
    with translate_missing_namespace(catalog, parent):
        if parent and not catalog.namespace_exists(parent):
            raise NoSuchNamespaceError(".".join(parent))
    return _namespaces_in(catalog, parent)


def all_namespaces(catalog: NeveCatalog, parent: Identifier = ()) -> Iterator[Identifier]:
    """Yield the namespaces inside one at any depth, or those of the whole catalog, each before those inside it."""
    for namespace in _namespaces_in(catalog, parent):
        yield namespace
        yield from all_namespaces(catalog, namespace)


def _namespaces_in(catalog: NeveCatalog, parent: Identifier) -> list[Identifier]:
    with contextlib.suppress(NoSuchNamespaceError):  # how a catalog with one level reports it
        return sorted(n for n in catalog.list_namespaces(parent) if len(n) > len(parent))
    return []


def refuse_wrong_parts(parts: Identifier, what: str) -> None:
    """Reject a part of a name that would be no folder, or another one than it says."""
    for part in parts:
        if not part or part in (".", "..") or not part.isprintable() or "/" in part or "\\" in part:
            raise UserError(f"{what} name {'.'.join(parts)!r} has a part {part!r} that cannot be a name.")


@contextlib.contextmanager
def translate_missing_namespace(catalog: NeveCatalog, namespace: Identifier) -> Iterator[None]:
    """Report a namespace that does not exist by an error that suggests similar names."""
    try:
        yield
    except (NoSuchNamespaceError, NoSuchTableError) as e:
        raise UnknownName("namespace", ".".join(namespace), map(".".join, all_namespaces(catalog))) from e
