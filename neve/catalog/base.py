"""What every adopted catalog can do beyond PyIceberg's: swap metadata with a definite answer, and settle a lost one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AssertCreate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from neve.catalog.swap import MaybeSwapped, NotSwapped, RequirementFailed, Swapped, SwapStatus
from neve.errors import NeveError
from neve.io.files import delete_files
from neve.model.metadata import TableMetadata, to_neve_metadata

if TYPE_CHECKING:
    import pyarrow as pa


class NeveCatalog(Catalog):
    """A PyIceberg catalog that loads and commits format versions 1 to 4.

    A mixin: it stands before PyIceberg's class. Tables it loads carry metadata of `neve.model.metadata`, and the
    transactions PyIceberg runs on them end here.
    """

    @abstractmethod
    def swap(self, table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> Swapped:
        """Apply updates to the current metadata and make the result current.

        `table` may be stale: the requirements decide whether its updates still fit. When it is current, its metadata
        is not read again. Raises NotSwapped (nothing landed) or MaybeSwapped (ask `swap_status`).
        """

    @abstractmethod
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

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """PyIceberg's way to create a table; `format-version` among the properties may be 1 to 4."""
        kept = {key: str(value) for key, value in properties.items()}
        version = int(kept.pop("format-version", "2"))
        converted = self._convert_schema_if_needed(schema, version)  # type: ignore[arg-type]
        parts = self.identifier_to_tuple(identifier)
        return self.create(parts, converted, partition_spec, sort_order, location, kept, version)

    def swap_status(self, lost_swap: MaybeSwapped) -> SwapStatus:
        """What became of a swap whose answer was lost. LANDED and NEVER are proofs."""
        try:
            table = self.load_table(lost_swap.identifier)
        except (NoSuchTableError, NeveError, OSError):
            return SwapStatus.OPEN
        return lost_swap.swap_status_in(to_neve_metadata(table.metadata), table.metadata_location, is_final=False)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """PyIceberg's way in. What was written for an attempt that did not land is removed: its caller would not."""
        try:
            done = self.swap(table, requirements, updates)
            metadata, location = done.metadata, done.metadata_location
        except NotSwapped as e:
            delete_files(table.io, [] if e.location is None else [e.location])
            raise
        except MaybeSwapped as e:
            if self.swap_status(e) is not SwapStatus.LANDED:
                raise
            current = self.load_table(table.name())
            metadata, location = to_neve_metadata(current.metadata), current.metadata_location
        # The response model knows versions 1 to 3 only, so it is built without validation.
        return CommitTableResponse.model_construct(metadata=metadata, metadata_location=location)


def check_requirements(requirements: Sequence[Any], metadata: TableMetadata | None, identifier: Identifier) -> None:
    """Refuse a commit that was made for another state of the table."""
    if metadata is None and not any(isinstance(requirement, AssertCreate) for requirement in requirements):
        raise RequirementFailed(f"Table {'.'.join(identifier)} does not exist any more.")
    for requirement in requirements:
        try:
            requirement.validate(metadata)
        except CommitFailedException as e:
            raise RequirementFailed(f"Table {'.'.join(identifier)}: {e}") from e
