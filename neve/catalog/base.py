"""The base of all catalogs: swap metadata with a definite outcome, and find out how a swap with a lost answer ended."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AssertCreate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from neve.catalog.swap import MaybeSwapped, NotSwapped, RequirementFailed, Swapped, SwapStatus
from neve.errors import NeveError, UserError
from neve.io.files import delete_files
from neve.io.paths import why_not_a_place
from neve.model.metadata import TableMetadata, to_neve_metadata
from neve.model.new_table import with_fresh_ids

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class NewTable:
    """The properties of a table to create; the catalog chooses the location if it is None."""

    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder
    location: str | None
    properties: dict[str, str]
    format_version: int
    keeps_ids: bool = False  # the columns have the ids that data files have already

    @property
    def numbered_schema(self) -> Schema:
        """The columns with the ids that the table is to have."""
        return self.schema if self.keeps_ids else with_fresh_ids(self.schema)

    def __post_init__(self) -> None:
        if self.location is not None and (reason := why_not_a_place(self.location)):
            raise UserError(f"Cannot create a table at {self.location!r}: {reason}.")


class NeveCatalog(Catalog):
    """A PyIceberg catalog that loads and commits format versions 1 to 4.

    This is a mixin that precedes PyIceberg's class. Its tables have metadata of `neve.model.metadata`, and transactions
    that PyIceberg runs on them are committed here.
    """

    exchanges_metadata: ClassVar[bool] = False  # a client may choose the metadata file of a table

    @abstractmethod
    def swap(self, table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> Swapped:
        """Apply updates to the current metadata and make the result current.

        `table` may be stale: the requirements decide whether the updates still fit. If it is current, its metadata is
        not read again. Raises NotSwapped (nothing landed) or MaybeSwapped (call `swap_status`).
        """

    @abstractmethod
    def create(self, identifier: Identifier, table: NewTable) -> Table:
        """Create a table in an existing namespace."""

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Create a table through PyIceberg's API; the property `format-version` may be 1 to 4."""
        texts = {key: str(value) for key, value in properties.items()}
        version = int(texts.pop("format-version", "2"))
        converted = self._convert_schema_if_needed(schema, version)  # type: ignore[arg-type]
        table = NewTable(converted, partition_spec, sort_order, location, texts, version)
        return self.create(self.identifier_to_tuple(identifier), table)

    def refresh_table(self, table: Table) -> Table:
        """Return the newest state of a table."""
        return self.load_table(table.name())

    def swap_status(self, lost_swap: MaybeSwapped) -> SwapStatus:
        """Find out how a swap with a lost answer ended. LANDED and NEVER are proofs."""
        try:
            table = self.load_table(lost_swap.identifier)
        except (NoSuchTableError, NeveError, OSError):
            return SwapStatus.OPEN
        return lost_swap.swap_status_in(to_neve_metadata(table.metadata), table.metadata_location, is_final=False)

    def point_to(self, table: Table, metadata_location: str) -> None:
        """Make another metadata file the current one of a table, unless a concurrent writer has changed the table.

        Only for catalogs that exchange metadata. Raises NotSwapped (nothing landed) or MaybeSwapped.
        """
        raise NotImplementedError

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit through PyIceberg's API. Deletes the metadata file of a failed attempt, as PyIceberg does not."""
        try:
            swapped = self.swap(table, requirements, updates)
            metadata, location = swapped.metadata, swapped.metadata_location
        except NotSwapped as e:
            delete_files(table.io, [] if e.location is None else [e.location])
            raise
        except MaybeSwapped as e:
            if self.swap_status(e) is not SwapStatus.LANDED:
                raise
            current = self.load_table(table.name())
            metadata, location = to_neve_metadata(current.metadata), current.metadata_location
        # The response model accepts versions 1 to 3 only, so it is built without validation.
        return CommitTableResponse.model_construct(metadata=metadata, metadata_location=location)


def check_requirements(requirements: Sequence[Any], metadata: TableMetadata | None, identifier: Identifier) -> None:
    """Reject a commit that was made for another state of the table."""
    if metadata is None and not any(isinstance(requirement, AssertCreate) for requirement in requirements):
        raise RequirementFailed(f"Table {'.'.join(identifier)} does not exist any more.")
    for requirement in requirements:
        try:
            requirement.validate(metadata)
        except CommitFailedException as e:
            raise RequirementFailed(f"Table {'.'.join(identifier)}: {e}") from e
