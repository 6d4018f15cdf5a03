"""CALL: maintenance operations under the names of Iceberg's procedures.

Arguments are given by name, or by position in the order of the reference. Arguments that only control how much another
engine does at a time (`max_concurrent_deletes`, `stream_results`, `use_caching`, `prefix_listing`) are accepted and
have no effect. Two defaults differ from Iceberg's: `rewrite_manifests` rewrites the manifests of every spec, and
`remove_orphan_files` deletes nothing without `dry_run => false`.

What a procedure of Iceberg returns as rows is the attribute `output_rows` of the result; the result of `ancestors_of`
is a table of rows itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any

import pyarrow as pa
from sqlglot import exp

from neve.catalog import register_table
from neve.catalog.entries import leave_note
from neve.errors import UserError
from neve.ops.context import LakeContext
from neve.ops.maintenance.compute_partition_stats import ComputePartitionStats
from neve.ops.maintenance.compute_table_stats import ComputeTableStats
from neve.ops.results import one_row
from neve.ops.write.cherry_pick import CherryPickSnapshot
from neve.ops.write.snapshot_delta import snapshot_delta
from neve.ops.write.snapshot_folder import snapshot_folder
from neve.plan.partition_folders import FILE_FORMATS
from neve.predicate.constants import ConstantKind, parse_constant, parse_instant, parse_time_zone
from neve.predicate.sql_text import SqlToken, parse_sql, syntax_error
from neve.run.spark.session import is_case_sensitive
from neve.sql.reader import Reader
from neve.sql.statement import Name, StatementOptions, identifier, table_and_branch
from neve.table import Table

ArgumentValues = Mapping[str, Any]
ArgumentReader = Callable[[exp.Expression, tzinfo], Any]  # returns None if the value has another type


@dataclass(frozen=True, slots=True)
class Argument:
    """The type of an argument: how its value is read, and how errors describe it."""

    convert: ArgumentReader
    description: str

    def value(self, name: str, node: exp.Expression, zone: tzinfo) -> Any:
        """Return the value of the argument; NULL counts as not given."""
        if isinstance(node, exp.Null):
            return None
        value = self.convert(node, zone)
        if value is None:
            raise UserError(f"Argument {name!r} is {node.sql('spark')}; it must be {self.description}.")
        return value


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
        return dict(self.arguments) if "table" in self.arguments else {"table": _TABLE, **self.arguments}


@dataclass(repr=False)
class CalledTable(Table):
    """The table that a procedure changed or added."""

    output_rows: pa.Table = field(default_factory=lambda: pa.table({}))  # what Iceberg's procedure returns


@dataclass(frozen=True)
class Call:
    """`CALL system.rewrite_data_files(table => 'db.t', where => 'id > 5')`."""

    procedure: str
    arguments: Mapping[str, exp.Expression]
    catalog: tuple[str, SqlToken] | None = None  # the text of the statement, and the name before `system`

    def run(self, lake: LakeContext, options: StatementOptions) -> Any:
        """Run the procedure; returns the result of the verb, or the table."""
        result = self._invoke(lake, options)
        return result.execute() if PROCEDURES[self.procedure].makes_builder else result

    def builder(self, lake: LakeContext, options: StatementOptions) -> Any:
        """Return the verb of the API for this procedure, not yet executed; None if there is none."""
        return self._invoke(lake, options) if PROCEDURES[self.procedure].makes_builder else None

    def _invoke(self, lake: LakeContext, options: StatementOptions) -> Any:
        options.require_only("CALL")
        if self.catalog is not None:
            (text, word), name = self.catalog, lake.name
            if word.name != name:  # its tables are not in this lake
                problem = f"unknown catalog {word.name!r}: the catalog of this lake is {name!r}, and may be left out"
                raise syntax_error("SQL", text, word.start, word.end, problem, verb="run")
        procedure, zone = PROCEDURES[self.procedure], parse_time_zone(lake.time_zone())
        values = {n: procedure.all_arguments[n].value(n, node, zone) for n, node in self.arguments.items()}
        values = {name: value for name, value in values.items() if value is not None}
        for name in ("table", *procedure.required):
            if name not in values:
                raise UserError(f"CALL {self.procedure} needs the argument {name!r}.")
        if procedure.adds_table:
            return procedure.run(lake, values)
        # A name is of the procedure's own catalog, whichever is the current one.
        table, branch = table_and_branch(replace(lake, lookup=None), identifier(lake, values["table"]))
        if branch is not None:  # of a name such as db.t.branch_audit
            if "branch" not in procedure.arguments:
                raise UserError(f"CALL {self.procedure} works on the whole table, not on branch {branch!r}.")
            if values.setdefault("branch", branch) != branch:
                argument = values["branch"]
                raise UserError(f"The table name gives branch {branch!r}, the argument {argument!r}. Give only one.")
        return procedure.run(table, values)


# -- parsing --------------------------------------------------------------------------------------------------------


def parse_call(reader: Reader) -> Call:
    """Parse a CALL."""
    reader.expect("CALL")
    *qualifiers, name = reader.dotted_name_words("the name of a procedure")
    if not qualifiers or qualifiers[-1].name.lower() != "system":
        raise reader.syntax_error(f"call the procedure as system.{name.name}", name)
    if len(qualifiers) > 2:
        raise reader.syntax_error(f"only the name of a catalog may come before system.{name.name}", qualifiers[1])
    procedure = name.name.lower()
    if procedure not in PROCEDURES:
        raise reader.syntax_error(f"unknown procedure {name.name!r}: expected one of {', '.join(PROCEDURES)}", name)
    catalog = (reader.text, qualifiers[0]) if len(qualifiers) > 1 else None
    return Call(procedure, _parse_arguments(reader, procedure), catalog)


def _parse_arguments(reader: Reader, procedure: str) -> dict[str, exp.Expression]:
    """Parse arguments in parentheses: first those by position, then those by name."""
    parameters = tuple(PROCEDURES[procedure].all_arguments)
    takes = f"{procedure} takes {', '.join(parameters)}"
    arguments: dict[str, exp.Expression] = {}
    reader.expect("(")
    while not reader.sees(")"):
        if arguments:
            reader.expect(",")
        start = reader.word
        if reader.position + 1 < len(reader.words) and reader.words[reader.position + 1].matches("=>"):
            word = reader.name_word("the name of an argument")
            name = word.name.lower()
            if name not in parameters:
                raise reader.syntax_error(f"unknown argument {word.name!r}: {takes}", word)
            reader.expect("=>")
        elif tuple(arguments) != parameters[: len(arguments)]:
            raise reader.syntax_error("an argument after a named argument needs a name too")
        elif len(arguments) == len(parameters):
            raise reader.syntax_error(f"too many arguments: {takes}")
        else:
            name = parameters[len(arguments)]
        if name in arguments:
            raise reader.syntax_error(f"argument {name!r} is given twice", start)
        roots = parse_sql(reader.text_until(",", ")", what="a value"))
        if len(roots) != 1:
            raise reader.syntax_error("expected one value", start)
        arguments[name] = roots[0]
    reader.expect(")")
    return arguments


# -- types of arguments ---------------------------------------------------------------------------------------------


def _scalar_reader(*kinds: ConstantKind) -> ArgumentReader:
    def read(node: exp.Expression, zone: tzinfo) -> Any:
        constant = parse_constant(node, zone)
        return constant.value if constant is not None and constant.kind in kinds else None

    return read


def _array_reader(read_item: ArgumentReader) -> ArgumentReader:
    def read(node: exp.Expression, zone: tzinfo) -> Any:
        if not isinstance(node, exp.Array):
            return None
        values = [read_item(item, zone) for item in node.expressions]
        return None if None in values else values

    return read


def _read_string_map(node: exp.Expression, zone: tzinfo) -> Any:
    """Read a map of strings; other constants become strings too, since options are strings."""
    if not isinstance(node, exp.VarMap):
        return None
    sides = (node.args["keys"], node.args["values"])
    keys, values = ([_constant_text(item, zone) for item in side.expressions] for side in sides)
    return None if None in (*keys, *values) or len(keys) != len(values) else dict(zip(keys, values, strict=True))


def _constant_text(node: exp.Expression, zone: tzinfo) -> str | None:
    constant = parse_constant(node, zone)
    kinds = (ConstantKind.STRING, ConstantKind.INTEGER, ConstantKind.BOOLEAN, ConstantKind.DECIMAL)
    if constant is None or constant.kind not in kinds:
        return None
    return str(constant.value).lower() if constant.kind is ConstantKind.BOOLEAN else str(constant.value)


def _read_milliseconds(node: exp.Expression, zone: tzinfo) -> int | None:
    """Read a timestamp, or a string with a timestamp in the time zone of the session."""
    constant = parse_constant(node, zone)
    if constant is not None and constant.kind is ConstantKind.STRING:
        constant = parse_instant(constant.value, zone)
    return int(constant.value) // 1000 if constant is not None and constant.kind is ConstantKind.INSTANT else None


def _read_table_name(node: exp.Expression, zone: tzinfo) -> Name | None:
    constant = parse_constant(node, zone)
    if constant is None or constant.kind is not ConstantKind.STRING:
        return None
    reader = Reader.of(str(constant.value))
    name = reader.table_name()
    reader.expect_end()
    return name


_DELTA = "DELTA"
_STRING = Argument(_scalar_reader(ConstantKind.STRING), "a string")
_INTEGER = Argument(_scalar_reader(ConstantKind.INTEGER), "a whole number")
_BOOLEAN = Argument(_scalar_reader(ConstantKind.BOOLEAN), "true or false")
_TIMESTAMP = Argument(_read_milliseconds, "a timestamp such as TIMESTAMP '2026-01-31 00:00:00'")
_TABLE = Argument(_read_table_name, "the name of a table in quotes")
_FILES = Argument(_read_table_name, "a folder such as '`parquet`.`/folder`'")
_INTEGER_ARRAY = Argument(_array_reader(_INTEGER.convert), "whole numbers such as array(1, 2)")
_STRING_ARRAY = Argument(_array_reader(_STRING.convert), "strings such as array('a', 'b')")
_STRING_MAP = Argument(_read_string_map, "pairs such as map('name', 'value')")


# -- procedures -----------------------------------------------------------------------------------------------------


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
    """Add the files of a folder, which is named as Spark names it: `parquet`.`/folder`."""
    file_format, folder = _format_and_folder("add_files", values, *FILE_FORMATS)
    options = {name: value for name, value in values.items() if name not in ("table", "source_table")}
    return table.add_files(folder, file_format=file_format, **options)


def _snapshot(lake: LakeContext, values: ArgumentValues) -> CalledTable:
    """Make a table of the files of a folder."""
    file_format, folder = _format_and_folder("snapshot", values, *FILE_FORMATS, _DELTA)
    options = {name: value for name, value in values.items() if name not in ("table", "source_table")}
    name = identifier(lake, values["table"])
    if file_format == _DELTA.lower():
        created, added = snapshot_delta(lake, folder, name, **options)
    else:
        created, added = snapshot_folder(lake, folder, name, file_format=file_format, **options)
    return CalledTable(created, one_row(imported_files_count=pa.scalar(added.files_added, pa.int64())))


def _format_and_folder(procedure: str, values: ArgumentValues, *formats: str) -> tuple[str, str]:
    file_format, *folder = values["source_table"]
    if len(folder) != 1 or file_format.upper() not in formats:
        *others, last = (name.lower() for name in formats)
        raise UserError(
            f"CALL {procedure} adds the files of a folder, not those of table {'.'.join((file_format, *folder))}: give "
            f"source_table => '`parquet`.`/folder`', with {', '.join(others)} or {last}."
        )
    return file_format.lower(), folder[0]


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
    schema = pa.schema({"snapshot_id": pa.int64(), "timestamp": pa.timestamp("ms", "UTC")})
    return pa.Table.from_pylist(rows, schema)


def _configure(builder: Any, values: ArgumentValues, *names: str, **renamed: str) -> Any:
    """Call the methods of a builder that are named like the given arguments; `renamed` maps arguments to methods."""
    for name, method in {**{n: n for n in names}, **renamed}.items():
        builder = getattr(builder, method)(values[name]) if name in values else builder
    return builder


_IGNORED_ARGUMENTS = {"max_concurrent_deletes": _INTEGER, "stream_results": _BOOLEAN}

# Arguments in the order of Iceberg's reference: they may be given by position.
PROCEDURES: dict[str, Procedure] = {
    "rewrite_data_files": Procedure(
        {
            "strategy": _STRING,
            "sort_order": _STRING,
            "options": _STRING_MAP,
            "where": _STRING,
            "branch": _STRING,
        },
        _rewrite_data_files,
    ),
    "rewrite_position_delete_files": Procedure(
        {"options": _STRING_MAP, "where": _STRING, "branch": _STRING},
        lambda table, values: _configure(
            table.rewrite_position_deletes().options(values.get("options", {})), values, "where", "branch"
        ),
    ),
    "rewrite_manifests": Procedure(
        {
            "use_caching": _BOOLEAN,
            "spec_id": _INTEGER,
            "sort_by": _STRING_ARRAY,
            "branch": _STRING,
        },
        _rewrite_manifests,
    ),
    "expire_snapshots": Procedure(
        {
            "older_than": _TIMESTAMP,
            "retain_last": _INTEGER,
            **_IGNORED_ARGUMENTS,
            "snapshot_ids": _INTEGER_ARRAY,
            "clean_expired_metadata": _BOOLEAN,
            "allow_shared": _BOOLEAN,
            "allow_unreadable": _BOOLEAN,
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
            "older_than": _TIMESTAMP,
            "location": _STRING,
            "dry_run": _BOOLEAN,
            **_IGNORED_ARGUMENTS,
            "equal_schemes": _STRING_MAP,
            "equal_authorities": _STRING_MAP,
            "prefix_mismatch_mode": _STRING,
            "prefix_listing": _BOOLEAN,
            "allow_shared": _BOOLEAN,
            "allow_unreadable": _BOOLEAN,
            "allow_any_name": _BOOLEAN,
        },
        _remove_orphan_files,
    ),
    "remove_dangling_deletes": Procedure(
        {"branch": _STRING}, lambda table, values: _configure(table.remove_dangling_deletes(), values, "branch")
    ),
    "rewrite_table_path": Procedure(
        {
            "source_prefix": _STRING,
            "target_prefix": _STRING,
            "start_version": _STRING,
            "end_version": _STRING,
            "staging_location": _STRING,
            "create_file_list": _BOOLEAN,
        },
        _rewrite_table_path,
        ("source_prefix", "target_prefix"),
    ),
    "rollback_to_snapshot": Procedure(
        {"snapshot_id": _INTEGER},
        _moves_main(lambda table, values: table.rollback(values["snapshot_id"])),
        ("snapshot_id",),
        makes_builder=False,
    ),
    "rollback_to_timestamp": Procedure(
        {"timestamp": _TIMESTAMP}, _moves_main(_rollback_to_timestamp), ("timestamp",), makes_builder=False
    ),
    "set_current_snapshot": Procedure(
        {"snapshot_id": _INTEGER, "ref": _STRING},
        _moves_main(lambda table, values: table.set_current_snapshot(values.get("snapshot_id"), ref=values.get("ref"))),
        makes_builder=False,
    ),
    "fast_forward": Procedure(
        {"branch": _STRING, "to": _STRING},
        _fast_forward,
        ("branch", "to"),
        makes_builder=False,
    ),
    "cherrypick_snapshot": Procedure(
        {"snapshot_id": _INTEGER},
        lambda table, values: CherryPickSnapshot(table.context, values["snapshot_id"]),
        ("snapshot_id",),
    ),
    "publish_changes": Procedure(
        {"wap_id": _STRING},
        lambda table, values: CherryPickSnapshot(table.context, wap_id=values["wap_id"]),
        ("wap_id",),
    ),
    "compute_table_stats": Procedure(
        {"snapshot_id": _INTEGER, "columns": _STRING_ARRAY},
        lambda table, values: ComputeTableStats(table.context, values.get("columns", ()), values.get("snapshot_id")),
    ),
    "compute_partition_stats": Procedure(
        {"snapshot_id": _INTEGER}, lambda table, values: ComputePartitionStats(table.context, values.get("snapshot_id"))
    ),
    "ancestors_of": Procedure({"snapshot_id": _INTEGER}, _ancestors_of, makes_builder=False),
    "add_files": Procedure(
        {
            "source_table": _FILES,
            "partition_filter": _STRING_MAP,
            "check_duplicate_files": _BOOLEAN,
            "parallelism": _INTEGER,
        },
        _add_files,
        ("source_table",),
    ),
    "snapshot": Procedure(
        {
            "source_table": _FILES,
            "table": _TABLE,
            "location": _STRING,
            "properties": _STRING_MAP,
            "parallelism": _INTEGER,
        },
        _snapshot,
        ("source_table",),
        makes_builder=False,
        adds_table=True,
    ),
    "register_table": Procedure(
        {"metadata_file": _STRING}, _register_table, ("metadata_file",), makes_builder=False, adds_table=True
    ),
}
