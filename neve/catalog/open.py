"""Open a catalog: a lake folder, a name from PyIceberg's configuration, or a catalog object someone already has."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog, list_catalogs, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NotInstalledError
from requests import RequestException
from sqlalchemy.exc import SQLAlchemyError

from neve.catalog.base import NeveCatalog
from neve.catalog.metastore import MetastoreCatalogMixin
from neve.catalog.rest import RestCatalogMixin
from neve.catalog.sql import EmbeddedCatalog, SqlCatalogMixin, cause_of
from neve.errors import TableError, UnknownName, UnsupportedFeature, UserError

_UNSAFE_IN_PATHS = "#?%"  # a file URI would be cut or decoded there, differently by each reader


def open_catalog(spec: str | Path | Catalog, **properties: str) -> NeveCatalog:
    """The catalog a caller means.

    A path (a `FieldPath`, text with a slash, or an existing folder) is a lake folder with its embedded catalog, and
    `properties` are those of its storage. Other text is the name of a catalog in PyIceberg's configuration, completed
    by `properties`. A catalog object is adopted.
    """
    if isinstance(spec, Catalog):
        return adopt_catalog(spec)
    if isinstance(spec, Path) or (not properties and _is_path(spec)):
        return _open_embedded(_lake_folder(spec), properties)
    if not properties and spec not in list_catalogs():
        raise UnknownName("catalog", spec, list_catalogs(), "PyIceberg's configuration")
    try:
        return adopt_catalog(load_catalog(spec, **properties))
    except (ValueError, NotInstalledError) as e:
        raise UserError(f"Cannot open catalog {spec!r}: {e}") from e
    except SQLAlchemyError as e:
        raise TableError(f"Cannot open catalog {spec!r}: {cause_of(e)}.") from e
    except RequestException as e:  # its text has the whole address in it
        raise TableError(f"Cannot reach catalog {spec!r}: {type(e).__name__}.") from e


def _open_embedded(folder: Path, properties: dict[str, str]) -> NeveCatalog:
    try:
        return EmbeddedCatalog(folder, **properties)
    except SQLAlchemyError as e:
        raise TableError(f"Cannot open the catalog of lake {str(folder)!r}: {cause_of(e)}.") from e
    except OSError as e:
        raise TableError(f"Cannot open lake {str(folder)!r}: {e.strerror}.") from e


def adopt_catalog(catalog: Catalog) -> NeveCatalog:
    """The same catalog, able to load and commit format versions 1 to 4; it shares all state with the object given."""
    if isinstance(catalog, NeveCatalog):
        return catalog
    kind = _adopted_class(type(catalog))
    adopted: NeveCatalog = object.__new__(kind)
    adopted.__dict__ = catalog.__dict__
    return adopted


@cache
def _adopted_class(kind: type[Catalog]) -> type[Any]:
    """A class that puts our methods before those of PyIceberg's class, which stays as it is."""
    for ours, theirs in (
        (SqlCatalogMixin, SqlCatalog),
        (RestCatalogMixin, RestCatalog),
        (MetastoreCatalogMixin, MetastoreCatalog),
    ):
        if issubclass(kind, theirs):
            return type(f"Neve{kind.__name__}", (ours, kind), {"__module__": __name__})
    raise UnsupportedFeature(f"Catalog class {kind.__name__} is not supported. Use a SQL, REST, Hive or Glue catalog.")


def _is_path(spec: str) -> bool:
    return "/" in spec or spec.startswith(".") or Path(spec).is_dir()


def _lake_folder(spec: str | Path) -> Path:
    text = str(spec)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/+", text)  # a Path has one slash where a URI has two
    if scheme is not None and scheme[1].lower() != "file":
        raise UserError(f"A lake folder must be local, but {text!r} is not. Use a catalog, with its warehouse there.")
    folder = Path(text if scheme is None else f"/{text[scheme.end() :]}").expanduser().absolute()
    if any(letter in str(folder) for letter in _UNSAFE_IN_PATHS):
        raise UserError(f"Lake folder {str(folder)!r} must not contain any of {' '.join(_UNSAFE_IN_PATHS)}.")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"Lake folder {str(folder)!r} is a file.")
    return folder
