"""The connection to a lake or a catalog, as a value that is sent to the processes Spark starts.

Credentials are only in this value, not in the options of a query, because Spark shows options in plans and logs.
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
    """A lake. `Lake` itself is not imported here, because every planning process would then load all operations."""

    catalog: NeveCatalog


@dataclass(frozen=True)
class Connection:
    """A lake folder, or the name of a catalog with the properties that complete PyIceberg's configuration."""

    folder: str | None = None
    catalog: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold credentials
    time_zone: str = "UTC"  # for times in conditions

    @classmethod
    def of(cls, lake: HasCatalog | str | Path | None, time_zone: str) -> Connection:
        """Return the connection of a lake, or to a lake folder. With None, every query must name its own."""
        if lake is None:
            return cls(time_zone=time_zone)
        if isinstance(lake, str | Path):
            return cls(folder=str(Path(lake).absolute()), time_zone=time_zone)
        catalog, properties = lake.catalog, dict(lake.catalog.properties)
        if isinstance(catalog, EmbeddedCatalog):
            folder = properties.pop("warehouse").removeprefix("file://")
            properties.pop("uri", None)
            return cls(folder, properties=properties, time_zone=time_zone)
        return cls(catalog=catalog.name, properties=properties, time_zone=time_zone)

    def for_options(self, folder: str | None, catalog: str | None) -> Connection:
        """Return the connection that the options of a query select; this one if there are no such options."""
        if folder is not None and catalog is not None:
            raise UserError("Choose one of the options lake and catalog: each says where the table is.")
        if folder is not None:
            return replace(self, folder=folder, catalog=None, properties={})
        if catalog is not None and catalog != self.catalog:
            return replace(self, folder=None, catalog=catalog, properties={})
        return self

    def table(self, name: str) -> TableContext:
        """Load the current state of a table."""

        def no_session() -> NoReturn:
            raise UserError("A data source runs inside a query and cannot start another one.")

        catalog = self._open_catalog()
        return TableContext(catalog, load_table(catalog, name), no_session, time_zone=lambda: self.time_zone)

    def _open_catalog(self) -> NeveCatalog:
        if self.catalog is not None:
            return open_catalog(self.catalog, **self.properties)
        if self.folder is None:
            raise UserError(
                "Missing location of the table. Give the option lake (a folder) or catalog (a name in PyIceberg's "
                "configuration), or register the source with a lake: neve.register(spark, lake)."
            )
        if not Path(self.folder.removeprefix("file://")).is_dir():  # opening it would create an empty lake
            raise UserError(
                f"No lake folder {self.folder!r} on the driver. Create it with neve.connect({self.folder!r})."
            )
        return open_catalog(Path(self.folder), **self.properties)
