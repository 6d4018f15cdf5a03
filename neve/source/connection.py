"""Where tables are found, as a value that travels to the processes Spark starts.

Credentials lie in it and nowhere else: not in the options of a query, which Spark shows in plans and logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn, Protocol

from neve.catalog import load_table, open_catalog
from neve.catalog.base import NeveCatalog
from neve.catalog.sql import EmbeddedCatalog
from neve.errors import UserError
from neve.ops.context import TableContext


class HasCatalog(Protocol):
    """A lake. `Lake` itself is not imported here: every process that plans would load all operations with it."""

    catalog: NeveCatalog


@dataclass(frozen=True)
class Connection:
    """A lake folder, or a catalog by name with the properties that complete PyIceberg's configuration."""

    folder: str | None = None
    catalog: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold credentials
    time_zone: str = "UTC"  # on whose clock times in conditions are read

    @classmethod
    def of(cls, lake: HasCatalog | str | Path | None, time_zone: str) -> Connection:
        """The connection of a lake, or to a lake folder; None: every query names its own."""
        if lake is None:
            return cls(time_zone=time_zone)
        if isinstance(lake, str | Path):
            return cls(folder=str(Path(lake).absolute()), time_zone=time_zone)
        known = lake.catalog
        if isinstance(known, EmbeddedCatalog):
            storage = {key: value for key, value in known.properties.items() if key not in ("uri", "warehouse")}
            return cls(known.properties["warehouse"].removeprefix("file://"), properties=storage, time_zone=time_zone)
        return cls(catalog=known.name, properties=dict(known.properties), time_zone=time_zone)

    def for_options(self, folder: str | None, catalog: str | None) -> Connection:
        """The connection that the options of a query ask for; without any, this one."""
        if folder is not None and catalog is not None:
            raise UserError("Choose one of the options lake and catalog: each names the place of the table by itself.")
        if folder is not None:
            return replace(self, folder=folder, catalog=None, properties={})
        if catalog is not None and catalog != self.catalog:
            return replace(self, folder=None, catalog=catalog, properties={})
        return self

    def table(self, name: str) -> TableContext:
        """The table of a name, as it is now."""
        catalog = self._open_catalog()
        return TableContext(catalog, load_table(catalog, name), _no_session, time_zone=lambda: self.time_zone)

    def _open_catalog(self) -> NeveCatalog:
        if self.catalog is not None:
            return open_catalog(self.catalog, **self.properties)
        if self.folder is None:
            raise UserError(
                "Cannot tell where the table is. Give the option lake (a folder) or catalog (a name in PyIceberg's "
                "configuration), or register the source with a lake: neve.register(spark, lake)."
            )
        if not Path(self.folder.removeprefix("file://")).is_dir():  # opening it would make an empty one
            raise UserError(
                f"No lake folder {self.folder!r} on the driver. Create it with neve.connect({self.folder!r})."
            )
        return open_catalog(Path(self.folder), **self.properties)


def _no_session() -> NoReturn:
    raise UserError("A data source runs inside a query and cannot start another one.")
