"""Register the tables of the lake that SQL text reads as Spark views, each of one state of its table.

Spark cannot see the lake. Before a text goes to Spark, every table of the lake that it reads becomes a temporary view
with a unique name, and the text is rewritten to read the view. Names unknown to the lake are left to Spark: they are
the caller's own views and tables. The views can be dropped once Spark has analysed the text. What a query requires of
the rows of a table rules out files.

A name can choose the state: `db.t VERSION AS OF 3`, `VERSION AS OF 'audit'`, `TIMESTAMP AS OF …`, `db.t.branch_audit`,
`db.t.tag_v1`, `db.t.snapshot_id_3`, `db.t.at_timestamp_1767225600000`. The tables of `t.inspect` are available as
`db.t.files`, `db.t.snapshots` and so on. Metadata columns (`_file`, `_pos`, `_row_id` …) are available to a text that
names them.

>>> find = sibling_table_lookup(t.refresh().context)
>>> with register_views(find, t.context.spark, "id = (SELECT max(id) FROM db.sales)") as views:
...     t.to_spark().where(views.single_text).count(), [read.context.name for read in views.tables]
(1, ['db.sales'])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias
from uuid import uuid4

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from neve.catalog import NeveCatalog, identifier_of
from neve.errors import UnknownName, UserError
from neve.model.metadata_table_names import METADATA_TABLES, SNAPSHOT_TABLES
from neve.ops.context import TableContext
from neve.ops.inspect import Inspect
from neve.ops.inspect.position_deletes import PositionDeletes
from neve.ops.scan import Scan
from neve.plan.scan import METADATA_COLUMNS
from neve.predicate.column_names import quote_name
from neve.predicate.parse import pruning_expression
from neve.predicate.table_references import TableName, exclude_columns_from_star, replace_tables
from neve.run.read.types import ArrowFlavor
from neve.run.spark.input_rows import create_dataframe
from neve.run.spark.session import parses_text_differently, quiet_errors

TableLookup: TypeAlias = Callable[[tuple[str, ...]], TableContext | None]
"""Returns the table of a name, always in the same state, or None for a name that the lake does not have."""

_STATE_IN_NAME = re.compile(r"(?:branch|tag)_(?P<ref>.+)|snapshot_id_(?P<id>\d+)|at_timestamp_(?P<ms>\d+)")

State: TypeAlias = dict[str, Any]  # the argument of a scan that chooses a state of the table
RefuseTable: TypeAlias = Callable[[TableName], None]
"""Raises an error for a table of Spark that a text must not read."""


@dataclass(frozen=True)
class TableRead:
    """A table that a text reads, and in which state."""

    name: TableName  # as written in the text
    context: TableContext
    snapshot: Snapshot | None  # None: the table has no snapshot
    metadata_table: str | None = None  # read instead of the rows
    scan: Scan | None = None  # None: a metadata table is read

    @property
    def metadata_columns(self) -> tuple[str, ...]:
        """The metadata columns that the text names, except names of the table's own columns."""
        own = {name.lower() for name in self.context.metadata.schema().column_names}
        named = self.name.underscore_columns - own if self.metadata_table is None else ()
        return tuple(column for column in METADATA_COLUMNS if column in named)

    def explain(self) -> str:
        """Describe what is read of the table, and what is left out."""
        what = self.context.name if self.metadata_table is None else f"{self.context.name}.{self.metadata_table}"
        if self.scan is None:
            return f"Table {what}"
        restriction = self.name.restriction
        where = "true" if restriction is None else restriction.condition.sql("spark")
        return f"Table {what}\n{self.scan.plan().explain(where)}"

    def is_of(self, context: TableContext) -> bool:
        """Check whether rows of this table are read."""
        return self.metadata_table is None and self.context.metadata.table_uuid == context.metadata.table_uuid


@dataclass(frozen=True)
class Views(AbstractContextManager["Views"]):
    """Texts that read views instead of tables of the lake; the views exist until they are closed."""

    texts: tuple[str, ...]
    tables: tuple[TableRead, ...]
    view_names: tuple[str, ...]
    spark: Callable[[], SparkSession]

    @property
    def single_text(self) -> str:
        """The text, if there is only one."""
        (only,) = self.texts
        return only

    def close(self) -> None:
        """Drop the views."""
        _drop_views(self.spark, self.view_names)

    def __exit__(self, *_: object) -> None:
        self.close()


def register_views(
    find: TableLookup,
    spark: Callable[[], SparkSession],
    *texts: str,
    refuse: RefuseTable = lambda name: None,
) -> Views:
    """Register the tables of the lake that the texts read as views; without such tables, Spark is not used.

    Spark looks up any other name, unless `refuse` raises an error for it.
    """
    reads: dict[tuple[object, ...], tuple[str, TableRead]] = {}

    ambiguous = [text for text in texts if re.search(r'["\\]|\$\{', text)]

    def view(name: TableName) -> str | None:
        if any(parses_text_differently(spark(), text) for text in ambiguous):
            name = replace(name, restriction=None)  # only Spark can evaluate the conditions
        state = (name.parts, name.version, name.timestamp, name.restriction, name.underscore_columns)
        if state not in reads and (resolved := _resolve_name(find, refuse, name)) is not None:
            read, rows = resolved
            reads[state] = f"neve_{uuid4().hex}", read
            rows.createOrReplaceTempView(reads[state][0])
        if state not in reads:
            refuse(name)
        return quote_name(reads[state][0]) if state in reads else None

    try:
        rewritten = tuple(replace_tables(text, view) for text in texts)
        hidden = dict.fromkeys(column for _, read in reads.values() for column in read.metadata_columns)
        rewritten = tuple(exclude_columns_from_star(text, hidden) for text in rewritten)
    except BaseException:
        _drop_views(spark, [name for name, _ in reads.values()])
        raise
    return Views(rewritten, tuple(read for _, read in reads.values()), tuple(n for n, _ in reads.values()), spark)


def _drop_views(spark: Callable[[], SparkSession], names: Iterable[str]) -> None:
    for name in names:
        spark().catalog.dropTempView(name)


def sibling_table_lookup(context: TableContext) -> TableLookup:
    """Look up tables in the catalog of a table; the table itself is found in the state of this context."""
    if context.lookup is None:
        return catalog_table_lookup(
            context.catalog, lambda loaded: replace(context, iceberg=loaded), [context], context.session.namespace
        )
    lookup = context.lookup

    def find(parts: tuple[str, ...]) -> TableContext | None:
        found = lookup(parts)
        if found is None or found.catalog is not context.catalog:
            return found
        return context if found.iceberg.name() == context.iceberg.name() else found

    return find


def catalog_table_lookup(
    catalog: NeveCatalog,
    context_of: Callable[[IcebergTable], TableContext],
    loaded_contexts: Iterable[TableContext] = (),
    namespace: tuple[str, ...] = (),
) -> TableLookup:
    """Look up tables in a catalog, each loaded once.

    A name may begin with the name of the catalog, and leave out `namespace`.
    """
    states = {context.iceberg.name(): context for context in loaded_contexts}

    @cache
    def find(parts: tuple[str, ...]) -> TableContext | None:
        if parts in states:
            return states[parts]
        if len(parts) == 1 and namespace:
            return find((*namespace, *parts))
        try:
            return context_of(catalog.load_table(identifier_of(parts)))
        except (UserError, NoSuchTableError, NoSuchNamespaceError):  # no table of the lake has this name
            return find(parts[1:]) if len(parts) > 2 and parts[0] == catalog.name else None

    return find


def _resolve_name(find: TableLookup, refuse: RefuseTable, name: TableName) -> tuple[TableRead, DataFrame] | None:
    if (context := find(name.parts)) is not None:
        is_hidden = len(name.parts) == 1 and is_temporary_view(context.spark(), name.parts[0])
        return None if is_hidden else _read_rows(context, _with_time(find, refuse, context, name))
    *parts, last = name.parts
    context = find(tuple(parts)) if parts else None
    if context is None:
        return None
    name = _with_time(find, refuse, context, name)
    if last in METADATA_TABLES:
        return _read_metadata_table(context, name, last)
    if (found := _STATE_IN_NAME.fullmatch(last)) is not None:
        return _read_rows(context, name, found)
    if len(parts) == 1:  # the namespace was left out, so it may be another name
        return None
    raise UnknownName("metadata table", last, METADATA_TABLES, f"table {context.name}")


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    """Return whether a name without a namespace is a temporary view, which hides tables of the same name."""
    try:
        with quiet_errors():
            return spark.catalog.getTable(quote_name(name)).isTemporary
    except PySparkException:
        return False


def _read_rows(
    context: TableContext, name: TableName, state_in_name: re.Match[str] | None = None
) -> tuple[TableRead, DataFrame]:
    if state_in_name is not None and (name.version, name.timestamp) != (None, None):
        raise UserError(f"Cannot read {name.name} as of another version: the name already says which one.")
    scan = Scan.of(context, **(_requested_state(context, name) if state_in_name is None else _state_of(state_in_name)))
    read = TableRead(name, context, scan.snapshot)
    if read.metadata_columns and name.joins_naturally:
        raise UserError(
            f"A NATURAL JOIN would join by {', '.join(read.metadata_columns)} too. Name the columns to join by."
        )
    columns = (*(f.name for f in scan.schema.fields), *read.metadata_columns) if read.metadata_columns else None
    scan = replace(scan, where=_pruning_filter(scan, name), columns=columns)
    return replace(read, scan=scan), scan.to_spark()


def _read_metadata_table(context: TableContext, name: TableName, table: str) -> tuple[TableRead, DataFrame]:
    if table not in SNAPSHOT_TABLES and (name.version, name.timestamp) != (None, None):
        raise UserError(
            f"Cannot read {name.name} as of another version: it is a table of all snapshots. "
            f"These are of one snapshot: {', '.join(SNAPSHOT_TABLES)}."
        )
    snapshot = context.snapshot(**_requested_state(context, name))
    read = TableRead(name, context, snapshot, table)
    if table == "position_deletes":  # they may be many
        return read, PositionDeletes.of(context, snapshot).to_spark()
    arguments = {} if snapshot is None or table not in SNAPSHOT_TABLES else {"snapshot_id": snapshot.snapshot_id}
    rows = getattr(Inspect(context, ArrowFlavor.SPARK), table)(**arguments)
    return read, create_dataframe(context.spark(), rows)


def _pruning_filter(scan: Scan, name: TableName) -> BooleanExpression | None:
    """Return what the text requires of the rows, so that files without such rows are left out."""
    if name.restriction is None:
        return None
    try:
        condition = pruning_expression(
            name.restriction.condition,
            scan.schema,
            time_zone=scan.context.time_zone(),
            alias=name.qualifier,
            has_other_tables=name.restriction.has_other_tables,
        )
    except UserError:  # Spark reports what is wrong with it
        return None
    return None if isinstance(condition, AlwaysTrue) else condition


def _with_time(find: TableLookup, refuse: RefuseTable, context: TableContext, name: TableName) -> TableName:
    """Return a name with its TIMESTAMP AS OF in milliseconds; a subquery in it is a query like any other."""
    if name.timestamp is None:
        return name
    text = f"SELECT unix_millis(CAST({name.timestamp} AS TIMESTAMP))"  # in the time zone of the session
    try:
        with register_views(find, context.spark, text, refuse=refuse) as views:
            row = context.spark().sql(views.single_text).first()
    except PySparkException as e:
        raise UserError(f"Cannot read TIMESTAMP AS OF {name.timestamp}: it is not a time.") from e
    if row is None or row[0] is None:
        raise UserError(f"Cannot read TIMESTAMP AS OF {name.timestamp}: it is null.")
    return replace(name, timestamp=str(row[0]))


def _state_of(name: re.Match[str]) -> State:
    ref, snapshot_id, milliseconds = name.group("ref", "id", "ms")
    if ref is not None:
        return {"ref": ref}
    return {"snapshot_id": int(snapshot_id)} if snapshot_id is not None else {"as_of": int(milliseconds)}


def _requested_state(context: TableContext, name: TableName) -> State:
    """Return the snapshot id, the reference, or the time in milliseconds that a query asks for."""
    if name.timestamp is not None:
        return {"as_of": int(name.timestamp)}
    if isinstance(name.version, str) and name.version not in context.metadata.refs and name.version.isdecimal():
        return {"snapshot_id": int(name.version)}
    return {"ref": name.version} if isinstance(name.version, str) else {"snapshot_id": name.version}
