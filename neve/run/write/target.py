"""The target of a write: the parts of a table that matter for new data files, and the options of this write.

A `WriteTarget` is sent to executors, so it holds no connection and no metadata tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from neve.errors import UnsupportedFeature
from neve.model.partition import Specs
from neve.model.properties import TableProperties
from neve.run.write.file_schema import arrow_file_schema, with_lineage_columns
from neve.run.write.metrics import LeafColumn, leaf_columns
from neve.run.write.parquet_options import check_compression
from neve.run.write.partitioning import Layout, Partitioner

Distribution = Literal["none", "hash", "range"]

_MAX_DIGITS = 20  # longer numbers in a snapshot summary are ignored


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of one write that override the table's properties."""

    target_file_size: int | None = None  # bytes at which a file is closed; None: write.target-file-size-bytes
    distribution: Distribution | None = None  # None: write.distribution-mode, or what suits the table
    fanout: bool | None = None  # keep several partitions open instead of sorting; None: write.spark.fanout.enabled
    open_files: int = 64  # files that a task keeps open at once; beyond it the least recently used one is closed
    buffered_bytes: int = 256 << 20  # Arrow bytes that a task holds for row groups that are not full
    is_sorted: bool = True  # sort rows by the table's sort order
    row_lineage: bool = False  # rows have _row_id and _last_updated_sequence_number, and files keep them


@dataclass(frozen=True)
class WriteTarget:
    """A table to write data files for, under one of its specs."""

    schema: Schema
    specs: Specs
    spec_id: int
    location: str
    format_version: int
    sort_order: SortOrder = UNSORTED_SORT_ORDER
    properties: Mapping[str, str] = field(default_factory=dict)
    io_properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold credentials
    options: WriteOptions = field(default_factory=WriteOptions)
    average_row_bytes: int = 0  # average size of a row in the existing files; 0: not known
    only_partition: pa.RecordBatch | None = None  # the tuple of all rows; None: it is computed for each row

    @classmethod
    def of(
        cls,
        metadata: TableMetadata,
        io_properties: Mapping[str, str],
        *,
        spec_id: int | None = None,
        options: WriteOptions | None = None,
    ) -> WriteTarget:
        """Return a target with the current schema, sort order and properties of a table.

        The spec is the table's default spec, unless specified. `io_properties` are those of `TableFacts`, which also
        name the FileIO implementation.
        """
        # The average size of a row is in the newest snapshot's summary; texts that are not plain numbers count as 0.
        snapshot = metadata.current_snapshot()
        summary = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary else {}
        texts = [summary.get(name, "") for name in ("total-files-size", "total-records")]
        size, rows = (int(text) if text.isdecimal() and len(text) < _MAX_DIGITS else 0 for text in texts)
        return cls(
            schema=metadata.schema(),
            specs=Specs.of(metadata),
            spec_id=metadata.default_spec_id if spec_id is None else spec_id,
            location=metadata.location,
            format_version=metadata.format_version,
            sort_order=metadata.sort_order_by_id(metadata.default_sort_order_id) or UNSORTED_SORT_ORDER,
            properties=dict(metadata.properties),
            io_properties=dict(io_properties),
            options=options or WriteOptions(),
            average_row_bytes=size // rows if rows else 0,
        )

    def __getstate__(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}  # without cached properties

    def with_options(self, **changes: object) -> WriteTarget:
        """Return the same target with some options changed."""
        return replace(self, options=replace(self.options, **changes))  # type: ignore[arg-type]

    def check(self) -> None:
        """Reject a target that cannot be written to, before any work is done."""
        if self.table_properties.file_format != "parquet":
            raise UnsupportedFeature(
                f"Cannot write data files as {self.table_properties.file_format}: this engine writes Parquet and reads "
                "the others. Set write.format.default to parquet."
            )
        check_compression(self.table_properties)
        if self.options.row_lineage and self.format_version < 3:
            raise UnsupportedFeature(f"Row lineage needs format version 3; the table is at {self.format_version}.")
        if not self.arrow_schema.names:
            raise UnsupportedFeature("Cannot write a data file without columns: every column is of type unknown.")
        self.partitioner.check()

    def open_io(self) -> FileIO:
        """Open the storage of the table in this process."""
        return load_file_io(dict(self.io_properties), self.location)

    @cached_property
    def table_properties(self) -> TableProperties:
        """The properties of the table, typed."""
        return TableProperties(self.properties)

    @cached_property
    def file_schema(self) -> Schema:
        """The columns of the files: those of the table, and the lineage columns if rows have them."""
        return with_lineage_columns(self.schema) if self.options.row_lineage else self.schema

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The file schema in Arrow, with field ids."""
        return arrow_file_schema(self.file_schema)

    @cached_property
    def leaves(self) -> tuple[LeafColumn, ...]:
        """The columns of the files as Parquet stores them, with the metrics to record for each."""
        return leaf_columns(self.file_schema, self.table_properties, self.sort_order)

    @cached_property
    def layout(self) -> Layout:
        """The paths of the files."""
        return Layout.of(self.location, self.table_properties)

    @property
    def partitioner(self) -> Partitioner:
        """The partitioner for rows of this target."""
        return Partitioner(self.schema, self.specs, self.spec_id, self.only_partition)

    @property
    def target_file_size(self) -> int:
        """Bytes at which a file is closed and the next one is started."""
        return self.options.target_file_size or self.table_properties.target_file_size

    @property
    def fanout(self) -> bool:
        """True if a task keeps several partitions open instead of sorting its rows by partition."""
        return self.table_properties.fanout if self.options.fanout is None else self.options.fanout

    @property
    def write_order(self) -> SortOrder:
        """The order in which rows are sorted before they are written."""
        return self.sort_order if self.options.is_sorted else UNSORTED_SORT_ORDER

    @property
    def distribution(self) -> Distribution:
        """The configured distribution, or range for a sorted table, hash for a partitioned one, and none otherwise."""
        configured = self.options.distribution or self.table_properties.distribution_mode
        suitable = "range" if self.write_order.fields else "hash" if self.partitioner.is_partitioned else "none"
        return configured or suitable  # type: ignore[return-value]
