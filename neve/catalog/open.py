"""Open a catalog: a lake folder, a name from PyIceberg's configuration, or an existing catalog object.

Metastores that PyIceberg supports (Hive, Glue, …) keep its compare-and-swap and get our metadata, for format versions 1
to 3. PyIceberg's commit loads, applies updates, writes and swaps in one method. `MetastoreCatalogMixin` replaces the
two steps in the middle. It remembers what they did during a call, so that the error for a lost answer can name the
metadata file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, CatalogType, MetastoreCatalog, infer_catalog_type, list_catalogs, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NotInstalledError
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.utils.config import Config, merge_config
from requests import RequestException
from sqlalchemy.exc import SQLAlchemyError

from neve.catalog.base import NeveCatalog, NewTable, check_requirements
from neve.catalog.metadata_files import StagedMetadata, read_metadata, stage_updates, write_metadata
from neve.catalog.rest import RestCatalog as NeveRestCatalog
from neve.catalog.rest import RestCatalogMixin
from neve.catalog.sql import EmbeddedCatalog, SqlCatalogMixin, cause_of
from neve.catalog.swap import CatalogUnavailable, LostRace, MaybeSwapped, Swapped
from neve.errors import NeveError, TableError, UnknownName, UnsupportedFeature, UserError
from neve.model.metadata import to_neve_metadata

_UNSAFE_IN_PATHS = "#?%"  # a file URI would be cut or decoded there, differently by each reader


def open_catalog(spec: str | Path | Catalog, **properties: str) -> NeveCatalog:
    """Open the catalog that `spec` stands for.

    A path (a `Path`, text with a slash, or an existing folder) is a lake folder with its embedded catalog, and
    `properties` are those of its storage. Other text is the name of a catalog in PyIceberg's configuration, completed
    by `properties`. A catalog object is adopted.
    """
    if isinstance(spec, Catalog):
        return adopt_catalog(spec)
    if isinstance(spec, Path) or (
        not properties and ("/" in spec or spec.startswith(".") or Path(spec).is_dir())  # text that is a path
    ):
        folder = _lake_folder(spec)
        try:
            return EmbeddedCatalog(folder, **properties)
        except SQLAlchemyError as e:
            raise TableError(f"Cannot open the catalog of lake {str(folder)!r}: {cause_of(e)}.") from e
        except OSError as e:
            raise TableError(f"Cannot open lake {str(folder)!r}: {e.strerror}.") from e
    if not properties and spec not in list_catalogs():
        raise UnknownName("catalog", spec, list_catalogs(), "PyIceberg's configuration")
    try:
        return _load_configured_catalog(spec, properties)
    except (ValueError, NotInstalledError) as e:
        raise UserError(f"Cannot open catalog {spec!r}: {e}") from e
    except SQLAlchemyError as e:
        raise TableError(f"Cannot open catalog {spec!r}: {cause_of(e)}.") from e
    except RequestException as e:  # its text contains the whole address, and maybe secrets
        raise TableError(f"Cannot reach catalog {spec!r}: {type(e).__name__}.") from e


def _load_configured_catalog(name: str, properties: Mapping[str, str]) -> NeveCatalog:
    """Load a catalog by PyIceberg's configuration; a REST catalog as our class, which checks what the server sends."""
    configured = merge_config(Config().get_catalog_config(name) or {}, dict(properties))
    kind = configured.get("type") or ("" if "py-catalog-impl" in configured else infer_catalog_type(name, configured))
    if str(getattr(kind, "value", kind)).lower() != CatalogType.REST.value or "uri" not in configured:
        return adopt_catalog(load_catalog(name, **properties))
    return NeveRestCatalog(name, **configured)  # type: ignore[arg-type]


def adopt_catalog(catalog: Catalog) -> NeveCatalog:
    """Return a catalog that loads and commits format versions 1 to 4, and shares all state with the given object."""
    if isinstance(catalog, NeveCatalog):
        return catalog
    adopted: NeveCatalog = object.__new__(_adopted_class(type(catalog)))
    adopted.__dict__ = catalog.__dict__
    return adopted


@cache
def _adopted_class(kind: type[Catalog]) -> type[Any]:
    """Return a class with our methods before those of PyIceberg's class, which is not changed."""
    for ours, theirs in (
        (SqlCatalogMixin, SqlCatalog),
        (RestCatalogMixin, RestCatalog),
        (MetastoreCatalogMixin, MetastoreCatalog),
    ):
        if issubclass(kind, theirs):
            return type(f"Neve{kind.__name__}", (ours, kind), {"__module__": __name__})
    raise UnsupportedFeature(f"Catalog class {kind.__name__} is not supported. Use a SQL, REST, Hive or Glue catalog.")


def _lake_folder(spec: str | Path) -> Path:
    text = str(spec)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/+", text)  # a Path has one slash where a URI has two
    if scheme is not None and scheme[1].lower() != "file":
        raise UserError(f"A lake folder must be local, but {text!r} is not. Use a catalog with its warehouse there.")
    folder = Path(text if scheme is None else f"/{text[scheme.end() :]}").expanduser().absolute()
    if any(character in str(folder) for character in _UNSAFE_IN_PATHS):
        raise UserError(f"Lake folder {str(folder)!r} must not contain any of {' '.join(_UNSAFE_IN_PATHS)}.")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"Lake folder {str(folder)!r} is a file.")
    return folder


_STAGED: ContextVar[list[StagedMetadata] | None] = ContextVar("staged", default=None)


class MetastoreCatalogMixin(NeveCatalog, MetastoreCatalog):
    """The methods of a metastore catalog that differ from PyIceberg's; they precede those of the adopted class."""

    def swap(self, table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> Swapped:
        """Let the metastore compare and swap, and report the outcome."""
        attempts: list[StagedMetadata] = []
        identifier, shown = table.name(), ".".join(table.name())
        token = _STAGED.set(attempts)
        try:
            response = _pyiceberg_methods(self).commit_table(table, tuple(requirements), tuple(updates))
        except NeveError:
            raise
        except NotImplementedError as e:
            raise UnsupportedFeature(f"Catalog {self.name!r} ({type(self).__name__}) cannot commit.") from e
        except CommitFailedException as e:
            location = attempts[-1].location if attempts else None
            raise LostRace(f"Table {shown} was not changed: {e}", location) from e
        except Exception as e:
            if not attempts:
                raise CatalogUnavailable(f"Catalog {self.name!r} failed before committing {shown}: {e}") from e
            staged = attempts[-1]
            message = f"The answer to the commit of {shown} was lost: {e}. It may have landed at {staged.location}."
            base, base_location = staged.base, staged.base_location
            raise MaybeSwapped(message, identifier, base, base_location, staged.location, updates) from e
        finally:
            _STAGED.reset(token)
        old_metadata = attempts[-1].base if attempts else None
        return Swapped(old_metadata, to_neve_metadata(response.metadata), response.metadata_location)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table with metadata of `neve.model.metadata`."""
        return self._with_our_metadata(_pyiceberg_methods(self).load_table(identifier))

    def create(self, identifier: Identifier, table: NewTable) -> Table:
        """Create a table in an existing namespace."""
        _check_version(table.format_version, self)
        properties = {**table.properties, "format-version": str(table.format_version)}
        arguments = (table.schema, table.location, table.spec, table.sort_order, properties)
        _pyiceberg_methods(self).create_table(identifier, *arguments)
        return self.load_table(identifier)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        # PyIceberg passes properties of the table: they come from storage and must not choose code or endpoints.
        return super()._load_file_io(EMPTY_DICT, location)

    def _with_our_metadata(self, table: Table) -> Table:
        location = table.metadata_location
        io = self._load_file_io(EMPTY_DICT, location)
        return Table(table.name(), read_metadata(io, location), location, io, self)

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        current = self._with_our_metadata(current_table) if current_table else None
        base: Any = current.metadata if current else None
        check_requirements(requirements, base, table_identifier)
        staged = stage_updates(base, current.metadata_location if current else None, updates)
        _check_version(staged.metadata.format_version, self)
        if (attempts := _STAGED.get()) is not None:
            attempts.append(staged)
        io = self._load_file_io(EMPTY_DICT, staged.location)
        return StagedTable(table_identifier, staged.metadata, staged.location, io, self)

    def _write_metadata(self, metadata: Any, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        try:
            write_metadata(io, metadata_path, to_neve_metadata(metadata))
        except TableError as e:
            raise CatalogUnavailable(f"{e}. Nothing landed.", metadata_path) from e

    _write_metadata_no_exist_check = _write_metadata  # Glue's name for the same on S3 Tables


def _pyiceberg_methods(catalog: NeveCatalog) -> Any:
    """Return the methods of PyIceberg's class, which follows ours in the method resolution order."""
    return super(NeveCatalog, catalog)


def _check_version(format_version: int, catalog: NeveCatalog) -> None:
    if format_version > 3:
        raise UnsupportedFeature(
            f"Catalog {catalog.name!r} ({type(catalog).__name__}) holds format versions 1 to 3, not {format_version}. "
            "Use a SQL or REST catalog."
        )
