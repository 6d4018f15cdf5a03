"""Iceberg's procedures: their arguments, and the operations that they are.

Arguments that only control how much another engine does at a time (`max_concurrent_deletes`, `stream_results`,
`use_caching`, `prefix_listing`) are accepted and have no effect. Two defaults differ from Iceberg's:
`rewrite_manifests` rewrites the manifests of every spec, and `remove_orphan_files` deletes nothing without
`dry_run => false`.

What a procedure of Iceberg returns as rows is the attribute `output_rows` of the result; the result of `ancestors_of`
is a table of rows itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from neve.catalog import register_table
from neve.catalog.entries import leave_note
from neve.errors import UserError
from neve.ops.context import LakeContext
from neve.ops.maintenance.compute_partition_stats import ComputePartitionStats
from neve.ops.maintenance.compute_table_stats import ComputeTableStats
from neve.ops.results import one_row
from neve.ops.write.cherry_pick import CherryPickSnapshot
from neve.ops.write.snapshot_delta import snapshot_delta
from neve.ops.write.snapshot_folder import snapshot_folder, snapshot_spark_table
from neve.plan.partition_folders import FILE_FORMATS
from neve.run.spark.catalog_tables import find_spark_table
from neve.run.spark.session import is_case_sensitive
from neve.sql.call_arguments import (
    BOOLEAN,
    FILES,
    INTEGER,
    INTEGER_ARRAY,
    STRING,
    STRING_ARRAY,
    STRING_MAP,
    TABLE,
    TIMESTAMP,
    Argument,
    ArgumentValues,
)
from neve.sql.reader import Reader
from neve.sql.statement import identifier
from neve.table import Table

_DELTA = "DELTA"


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure: its arguments after the table, in order, and what it does with them."""

    arguments: Mapping[str, Argument]
    run: Callable[[Any, ArgumentValues], Any]  # of a table and the other arguments
    required: tuple[str, ...] = ()
    makes_builder: bool = True  # it returns a verb to plan or execute; otherwise it acts at once
    adds_table: bool = False  # there is no table yet, so it is run on the lake

    @property
    def all_arguments(self) -> dict[str, Argument]:
        """All arguments in order, the table first if it has no other place."""
        return dict(self.arguments) if "table" in self.arguments else {"table": TABLE, **self.arguments}


@dataclass(repr=False)
class CalledTable(Table):
    """The table that a procedure changed or added."""

    output_rows: pa.Table = field(default_factory=lambda: pa.table({}))  # what Iceberg's procedure returns


def _rewrite_data_files(table: Table, values: ArgumentValues) -> Any:
    """Compact, or sort by columns, along a Z-order curve through columns, or in the sort order of the table."""
    rewrite = _configure(table.rewrite_data_files().options(values.get("options", {})), values, "where", "branch")
    if "where" in values:
        rewrite = rewrite.case_sensitive(is_case_sensitive(table.context.spark()))
    strategy, order = values.get("strategy", "sort" if "sort_order" in values else "binpack"), values.get("sort_order")
    if strategy not in ("binpack", "sort"):
        raise UserError(f"Argument 'strategy' is {strategy!r}; it must be 'binpack' or 'sort'.")
    if strategy == "binpack" and order is not None:
        raise UserError("Argument 'sort_order' needs the strategy 'sort'.")
    if strategy == "binpack":
        return rewrite
    if order is None:
        return rewrite.sort()
    reader = Reader.of(order)
    if reader.take_if_next("ZORDER"):
        columns = reader.bracketed_list(lambda: reader.text_until(",", ")", what="a column"))
        reader.expect_end()
        return rewrite.zorder(*columns)
    return rewrite.sort(*reader.comma_list(lambda: reader.text_until(",", what="a column")))


def _rewrite_manifests(table: Table, values: ArgumentValues) -> Any:
    rewrite = _configure(table.rewrite_manifests(), values, "branch", spec_id="spec")
    return rewrite.cluster_by(*values["sort_by"]) if "sort_by" in values else rewrite


def _remove_orphan_files(table: Table, values: ArgumentValues) -> Any:
    names = ("older_than", "location", "dry_run", "equal_schemes", "equal_authorities", "prefix_mismatch_mode")
    return _configure(table.remove_orphan_files(), values, *names, "allow_shared", "allow_unreadable", "allow_any_name")


def _add_files(table: Table, values: ArgumentValues) -> Any:
    """Add the files of a table of Spark, or of a folder, which is named as Spark names it: `parquet`.`/folder`."""
    options = {name: value for name, value in values.items() if name not in ("table", "source_table")}
    if (place := _format_and_folder(values, *FILE_FORMATS)) is not None:
        return table.add_files(place[1], file_format=place[0], **options)
    source = find_spark_table(table.context.spark(), values["source_table"], FILE_FORMATS)
    verb = table.add_files(source.folder, file_format=source.file_format, **options)
    return replace(verb, partition_folders=source.partition_folders)


def _snapshot(lake: LakeContext, values: ArgumentValues) -> CalledTable:
    """Make a table of the files of a table of Spark, or of a folder."""
    options = {name: value for name, value in values.items() if name not in ("table", "source_table")}
    name = identifier(lake, values["table"])
    place = _format_and_folder(values, *FILE_FORMATS, _DELTA)
    if place is None:
        source = find_spark_table(lake.spark(), values["source_table"], FILE_FORMATS)
        created, added = snapshot_spark_table(lake, source, name, **options)
    elif place[0] == _DELTA.lower():
        created, added = snapshot_delta(lake, place[1], name, **options)
    else:
        created, added = snapshot_folder(lake, place[1], name, file_format=place[0], **options)
    return CalledTable(created, one_row(imported_files_count=pa.scalar(added.files_added, pa.int64())))


def _format_and_folder(values: ArgumentValues, *formats: str) -> tuple[str, str] | None:
    """Return what a name such as `parquet`.`/folder` says; None for the name of a table."""
    source = values["source_table"]
    return (source[0].lower(), source[1]) if len(source) == 2 and source[0].upper() in formats else None


def _rewrite_table_path(table: Table, values: ArgumentValues) -> Any:
    rewrite = table.rewrite_table_path(values["source_prefix"], values["target_prefix"])
    return _configure(rewrite, values, "start_version", "end_version", "staging_location", "create_file_list")


def _moves_main(change: Callable[[Table, ArgumentValues], Table]) -> Callable[[Table, ArgumentValues], CalledTable]:
    """Return a procedure that changes the current snapshot, and tells which it was and which it is."""

    def run(table: Table, values: ArgumentValues) -> CalledTable:
        before = table.refresh().context.metadata.current_snapshot_id
        context = change(table, values).context
        after = context.metadata.current_snapshot_id
        ids = {"previous_snapshot_id": before, "current_snapshot_id": after}
        return CalledTable(context, one_row(**{name: pa.scalar(i, pa.int64()) for name, i in ids.items()}))

    return run


def _fast_forward(table: Table, values: ArgumentValues) -> CalledTable:
    branch, before = values["branch"], table.refresh().context.metadata.refs
    context = table.fast_forward(branch, values["to"]).context
    previous = before[branch].snapshot_id if branch in before else None
    row = one_row(
        branch_updated=pa.scalar(branch, pa.string()),
        previous_ref=pa.scalar(previous, pa.int64()),
        updated_ref=pa.scalar(context.metadata.refs[branch].snapshot_id, pa.int64()),
    )
    return CalledTable(context, row)


def _register_table(lake: LakeContext, values: ArgumentValues) -> CalledTable:
    registered = register_table(lake.catalog, identifier(lake, values["table"]), values["metadata_file"])
    leave_note(lake.catalog, registered)
    snapshot = registered.metadata.current_snapshot()
    summary: Any = None if snapshot is None else snapshot.summary
    totals = {} if summary is None else summary.additional_properties
    counts = {
        "current_snapshot_id": None if snapshot is None else snapshot.snapshot_id,
        "total_records_count": totals.get("total-records"),
        "total_data_files_count": totals.get("total-data-files"),
    }
    numbers = {name: pa.scalar(None if n is None else int(n), pa.int64()) for name, n in counts.items()}
    return CalledTable(lake.of_table(registered), one_row(**numbers))


def _rollback_to_timestamp(table: Table, values: ArgumentValues) -> Table:
    """Roll back to the last ancestor of the current snapshot before a time."""
    context = table.refresh().context
    lineage = context.ancestors(context.metadata.current_snapshot())
    before = [s.snapshot_id for s in lineage if s.timestamp_ms < values["timestamp"]]
    if not before:
        raise UserError(f"Table {table.name} had no snapshot before that time. {table.name}.history lists them.")
    return table.rollback(before[0])


def _ancestors_of(table: Table, values: ArgumentValues) -> pa.Table:
    """List a snapshot, by default the current one, and its ancestors, newest first."""
    context = table.refresh().context
    lineage = context.ancestors(context.snapshot(values.get("snapshot_id")))
    rows = [{"snapshot_id": s.snapshot_id, "timestamp": s.timestamp_ms} for s in lineage]
    schema = pa.schema({"snapshot_id": pa.int64(), "timestamp": pa.int64()})
    return pa.Table.from_pylist(rows, schema)


def _configure(builder: Any, values: ArgumentValues, *names: str, **renamed: str) -> Any:
    """Call the methods of a builder that are named like the given arguments; `renamed` maps arguments to methods."""
    for name, method in {**{n: n for n in names}, **renamed}.items():
        builder = getattr(builder, method)(values[name]) if name in values else builder
    return builder


_IGNORED_ARGUMENTS = {"max_concurrent_deletes": INTEGER, "stream_results": BOOLEAN}

# Arguments in the order of Iceberg's reference: they may be given by position.
PROCEDURES: dict[str, Procedure] = {
    "rewrite_data_files": Procedure(
        {
            "strategy": STRING,
            "sort_order": STRING,
            "options": STRING_MAP,
            "where": STRING,
            "branch": STRING,
        },
        _rewrite_data_files,
    ),
    "rewrite_position_delete_files": Procedure(
        {"options": STRING_MAP, "where": STRING, "branch": STRING},
        lambda table, values: _configure(
            table.rewrite_position_deletes().options(values.get("options", {})), values, "where", "branch"
        ),
    ),
    "rewrite_manifests": Procedure(
        {
            "use_caching": BOOLEAN,
            "spec_id": INTEGER,
            "sort_by": STRING_ARRAY,
            "branch": STRING,
        },
        _rewrite_manifests,
    ),
    "expire_snapshots": Procedure(
        {
            "older_than": TIMESTAMP,
            "retain_last": INTEGER,
            **_IGNORED_ARGUMENTS,
            "snapshot_ids": INTEGER_ARRAY,
            "clean_expired_metadata": BOOLEAN,
            "allow_shared": BOOLEAN,
            "allow_unreadable": BOOLEAN,
        },
        lambda table, values: _configure(
            table.expire_snapshots(),
            values,
            "older_than",
            "retain_last",
            "clean_expired_metadata",
            "allow_shared",
            "allow_unreadable",
        ).snapshot_ids(*values.get("snapshot_ids", ())),
    ),
    "remove_orphan_files": Procedure(
        {
            "older_than": TIMESTAMP,
            "location": STRING,
            "dry_run": BOOLEAN,
            **_IGNORED_ARGUMENTS,
            "equal_schemes": STRING_MAP,
            "equal_authorities": STRING_MAP,
            "prefix_mismatch_mode": STRING,
            "prefix_listing": BOOLEAN,
            "allow_shared": BOOLEAN,
            "allow_unreadable": BOOLEAN,
            "allow_any_name": BOOLEAN,
        },
        _remove_orphan_files,
    ),
    "remove_dangling_deletes": Procedure(
        {"branch": STRING}, lambda table, values: _configure(table.remove_dangling_deletes(), values, "branch")
    ),
    "rewrite_table_path": Procedure(
        {
            "source_prefix": STRING,
            "target_prefix": STRING,
            "start_version": STRING,
            "end_version": STRING,
            "staging_location": STRING,
            "create_file_list": BOOLEAN,
        },
        _rewrite_table_path,
        ("source_prefix", "target_prefix"),
    ),
    "rollback_to_snapshot": Procedure(
        {"snapshot_id": INTEGER},
        _moves_main(lambda table, values: table.rollback(values["snapshot_id"])),
        ("snapshot_id",),
        makes_builder=False,
    ),
    "rollback_to_timestamp": Procedure(
        {"timestamp": TIMESTAMP}, _moves_main(_rollback_to_timestamp), ("timestamp",), makes_builder=False
    ),
    "set_current_snapshot": Procedure(
        {"snapshot_id": INTEGER, "ref": STRING},
        _moves_main(lambda table, values: table.set_current_snapshot(values.get("snapshot_id"), ref=values.get("ref"))),
        makes_builder=False,
    ),
    "fast_forward": Procedure(
        {"branch": STRING, "to": STRING},
        _fast_forward,
        ("branch", "to"),
        makes_builder=False,
    ),
    "cherrypick_snapshot": Procedure(
        {"snapshot_id": INTEGER},
        lambda table, values: CherryPickSnapshot(table.context, values["snapshot_id"]),
        ("snapshot_id",),
    ),
    "publish_changes": Procedure(
        {"wap_id": STRING},
        lambda table, values: CherryPickSnapshot(table.context, wap_id=values["wap_id"]),
        ("wap_id",),
    ),
    "compute_table_stats": Procedure(
        {"snapshot_id": INTEGER, "columns": STRING_ARRAY},
        lambda table, values: ComputeTableStats(table.context, values.get("columns", ()), values.get("snapshot_id")),
    ),
    "compute_partition_stats": Procedure(
        {"snapshot_id": INTEGER}, lambda table, values: ComputePartitionStats(table.context, values.get("snapshot_id"))
    ),
    "ancestors_of": Procedure({"snapshot_id": INTEGER}, _ancestors_of, makes_builder=False),
    "add_files": Procedure(
        {
            "source_table": FILES,
            "partition_filter": STRING_MAP,
            "check_duplicate_files": BOOLEAN,
            "parallelism": INTEGER,
        },
        _add_files,
        ("source_table",),
    ),
    "snapshot": Procedure(
        {
            "source_table": FILES,
            "table": TABLE,
            "location": STRING,
            "properties": STRING_MAP,
            "parallelism": INTEGER,
        },
        _snapshot,
        ("source_table",),
        makes_builder=False,
        adds_table=True,
    ),
    "register_table": Procedure(
        {"metadata_file": STRING}, _register_table, ("metadata_file",), makes_builder=False, adds_table=True
    ),
}
