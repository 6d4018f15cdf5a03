"""Compactions of small tables that exist in entry tables only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType
from pyspark.sql import SparkSession

from neve.model.partition import Specs
from neve.ops.context import TableContext
from neve.ops.maintenance.rewrite_data_files import RewriteDataFiles
from neve.plan.partition_filter import PartitionFilter
from neve.plan.rewrite import plan_rewrite
from neve.plan.rewrite_options import RewriteOptions
from neve.plan.rewrite_plan import FileGroup, RewritePlan, RewritePlanningResult, SpecMode
from neve.predicate import parse
from neve.tree.entries import Content, EntryTable
from tests.support.entry_tables import ALL_DETAIL, entries, spec
from tests.support.metadata_tables import Kit

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "ts", TimestampType(), required=False),
    NestedField(3, "region", StringType(), required=False),
    NestedField(4, "x", DoubleType(), required=False),
)
EVERYTHING = spec(0)
BY_REGION = spec(1, (1000, 3, "identity", "region"))
BY_REGION_AND_DAY = spec(2, (1000, 3, "identity", "region"), (1001, 2, "day", "ts_day"))
BY_MYSTERY = spec(3, (1002, 3, "mystery", "region_mystery"))

POSITIONS = {"content": Content.POSITION_DELETES}
VECTOR = {"content": Content.POSITION_DELETES, "file_format": "PUFFIN", "content_offset": 4}
EQUALITY = {"content": Content.EQUALITY_DELETES, "equality_ids": [1], "sequence_number": 2}

File = dict[str, Any]


def metadata_of(*specs: PartitionSpec, schemas: Sequence[Schema] = (SCHEMA,)) -> TableMetadataV2:
    """Metadata of a table whose current schema is the first, and whose default spec is the last."""
    return TableMetadataV2(
        location="here",
        last_column_id=9,
        schemas=list(schemas),
        current_schema_id=schemas[0].schema_id,
        partition_specs=list(specs),
        default_spec_id=specs[-1].spec_id,
        last_partition_id=1009,
        sort_orders=[],
    )


TABLE = metadata_of(EVERYTHING, BY_REGION, BY_REGION_AND_DAY)


def of_sizes(*sizes: int, **stated: Any) -> list[File]:
    """Files of some sizes, in one partition unless said; the n-th is called `f<n>`."""
    return [{"spec_id": 0, "file_path": f"f{n}", "file_size_in_bytes": size} | stated for n, size in enumerate(sizes)]


def options_of(options: dict[str, Any]) -> RewriteOptions:
    """Options by Python's spelling of their names, with a target of 1000 bytes: 750 to 1800 are a good size."""
    return RewriteOptions.of({name.replace("_", "-"): value for name, value in options.items()}, 1000)


def result(
    data: Sequence[File] | EntryTable,
    deletes: Sequence[File] | EntryTable = (),
    *,
    table: TableMetadataV2 = TABLE,
    where: Any = None,
    mode: SpecMode = SpecMode.CURRENT,
    strict: bool = False,
    **options: Any,
) -> RewritePlanningResult:
    """The plan of a compaction, with the statistics of its filter."""
    specs = Specs.of(table)
    named = [{"file_path": f"d{n}"} | delete for n, delete in enumerate(deletes)] if isinstance(deletes, list) else ()
    filter_ = PartitionFilter.of(parse(where, table.schema()).expression, specs, table.schema())
    return plan_rewrite(
        data if isinstance(data, EntryTable) else entries(specs, data, ALL_DETAIL),
        deletes if isinstance(deletes, EntryTable) else entries(specs, named, ALL_DETAIL),
        table,
        options_of(options),
        partitions=filter_.strict() if strict else filter_,
        spec_mode=mode,
        snapshot_id=7,
    )


def plan(*arguments: Any, **options: Any) -> RewritePlan:
    """The plan of a compaction."""
    return result(*arguments, **options).plan


def groups(made: RewritePlan) -> list[list[str]]:
    """The files of each group, in order."""
    return [group.files["file_path"].to_pylist() for group in made.groups]


def chosen(made: RewritePlan) -> set[str]:
    """The files that are rewritten."""
    return {path for group in groups(made) for path in group}


def reasons(made: RewritePlan) -> dict[str, str]:
    """Why each file was chosen or not."""
    told = made.reasons()
    return dict(zip(told["file_path"].to_pylist(), told["reason"].to_pylist(), strict=True))


def applied(group: FileGroup) -> set[tuple[str, str]]:
    """The data files of a group with the delete files that apply to each."""
    scan = group.scan
    files, deletes = (table["file_path"].to_pylist() for table in (scan.files, scan.deletes))
    return {(files[pair["file"]], deletes[pair["delete"]]) for pair in scan.attached.to_pylist()}


def described(made: RewritePlan) -> list[tuple[Any, ...]]:
    """All that is said of each group, without where in which manifest its files were read."""
    return [
        (
            group.group_id,
            group.partition,
            group.index_in_partition,
            group.output_spec_id,
            group.output_files,
            group.split_size,
            group.files["file_path"].to_pylist(),
            group.scan.deletes["file_path"].to_pylist(),
            group.scan.attached.to_pylist(),
        )
        for group in made.groups
    ]


class Asked(Exception):
    """Rows had to be read."""


def no_spark() -> SparkSession:
    """A session for what must not need one."""
    raise Asked


def rewrite_of(t: Kit) -> RewriteDataFiles:
    """A compaction of a table without rows."""
    return RewriteDataFiles(TableContext(t.catalog, t.table, no_spark))


def bytes_under(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
