"""Metastores PyIceberg knows (Hive, Glue, …): its own compare-and-swap, our metadata. Format versions 1 to 3.

PyIceberg's commit loads, folds, writes and swaps in one method. The two steps in the middle are replaced here; what
they did is remembered for the length of a call, so that a lost answer can name the file it was about.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from neve.catalog.base import NeveCatalog, check_requirements
from neve.catalog.metadata_files import StagedMetadata, read_metadata, stage_updates, write_metadata
from neve.catalog.swap import CatalogUnavailable, LostRace, MaybeSwapped, Swapped
from neve.errors import NeveError, TableError, UnsupportedFeature
from neve.model.metadata import to_neve_metadata


@dataclass
class _Attempt:
    staged: StagedMetadata | None = None


_ATTEMPT: ContextVar[_Attempt | None] = ContextVar("attempt", default=None)


class MetastoreCatalogMixin(NeveCatalog, MetastoreCatalog):
    """The part of a metastore catalog that differs from PyIceberg's; put before its class when one is adopted."""

    def swap(self, table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> Swapped:
        """Let the metastore compare and swap, and say how it ended."""
        attempt = _Attempt()
        token = _ATTEMPT.set(attempt)
        try:
            done = _pyiceberg_methods(self).commit_table(table, tuple(requirements), tuple(updates))
        except NeveError:
            raise
        except NotImplementedError as e:
            raise UnsupportedFeature(f"Catalog {self.name!r} ({type(self).__name__}) cannot commit.") from e
        except Exception as e:
            raise self._commit_error(e, table.name(), attempt.staged, updates) from e
        finally:
            _ATTEMPT.reset(token)
        base = attempt.staged.base if attempt.staged else None
        return Swapped(base, to_neve_metadata(done.metadata), done.metadata_location)

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table with metadata as this engine reads it."""
        return self._with_our_metadata(_pyiceberg_methods(self).load_table(identifier))

    def create(
        self,
        identifier: Identifier,
        schema: Schema,
        spec: PartitionSpec,
        sort_order: SortOrder,
        location: str | None,
        properties: dict[str, str],
        format_version: int,
    ) -> Table:
        """Create a table in a namespace that exists."""
        _check_version(format_version, self)
        asked = {**properties, "format-version": str(format_version)}
        _pyiceberg_methods(self).create_table(identifier, schema, location, spec, sort_order, asked)
        return self.load_table(identifier)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        # PyIceberg hands over properties of the table: they come from storage and must not choose code or endpoints.
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
        if (attempt := _ATTEMPT.get()) is not None:
            attempt.staged = staged
        io = self._load_file_io(EMPTY_DICT, staged.location)
        return StagedTable(table_identifier, staged.metadata, staged.location, io, self)

    def _write_metadata(self, metadata: Any, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        try:
            write_metadata(io, metadata_path, to_neve_metadata(metadata))
        except TableError as e:
            raise CatalogUnavailable(f"{e}. Nothing landed.", metadata_path) from e

    _write_metadata_no_exist_check = _write_metadata  # Glue's name for the same on S3 Tables

    def _commit_error(
        self, error: Exception, identifier: Identifier, staged: StagedMetadata | None, updates: Sequence[Any]
    ) -> CatalogUnavailable | LostRace | MaybeSwapped:
        shown = ".".join(identifier)
        if isinstance(error, CommitFailedException):
            return LostRace(f"Table {shown} was not changed: {error}", staged.location if staged else None)
        if staged is None:
            return CatalogUnavailable(f"Catalog {self.name!r} failed before committing {shown}: {error}")
        message = f"The answer to the commit of {shown} was lost: {error}. It may have landed at {staged.location}."
        return MaybeSwapped(message, identifier, staged.base, staged.base_location, staged.location, updates)


def _pyiceberg_methods(catalog: NeveCatalog) -> Any:
    """The methods of PyIceberg's class, which stands behind ours."""
    return super(NeveCatalog, catalog)


def _check_version(format_version: int, catalog: NeveCatalog) -> None:
    if format_version > 3:
        raise UnsupportedFeature(
            f"Catalog {catalog.name!r} ({type(catalog).__name__}) holds format versions 1 to 3, not {format_version}. "
            "Use a SQL or REST catalog."
        )
