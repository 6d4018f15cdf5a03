"""Tables of the lake inside SQL text: each stands in the text as a view of one state of it.

Spark knows nothing of the lake. Before a text is handed to it, every table of the lake that the text reads becomes a
temporary view of a name nobody else uses, and the text is rewritten to read that. Names the lake does not know are left
to Spark: they are the caller's own views and tables. Once Spark has analysed the text the views can go. What a query
requires of the rows of a table leaves out files of it.

A name may say which state it means: `db.t VERSION AS OF 3`, `VERSION AS OF 'audit'`, `TIMESTAMP AS OF …`,
`db.t.branch_audit`, `db.t.tag_v1`. What `t.inspect` shows is there as `db.t.files`, `db.t.snapshots` and so on.
Metadata columns (`_file`, `_pos`, `_row_id` …) are there for a text that names them.

>>> find = tables_beside(t.refresh().context)
>>> with views_of(find, t.context.spark, "id = (SELECT max(id) FROM db.sales)") as views:
...     t.to_spark().where(views.text).count(), [read.context.name for read in views.tables]
(1, ['db.sales'])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from types import TracebackType
from typing import TypeAlias
from uuid import uuid4

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from neve.catalog import NeveCatalog, identifier_of
from neve.errors import UnknownName, UserError
from neve.ops.context import TableContext
from neve.ops.inspect import Inspect
from neve.ops.scan import Scan
from neve.plan.scan import METADATA_COLUMNS
from neve.predicate.column_names import quote_name
from neve.predicate.parse import pruning_expression
from neve.predicate.table_references import TableName, exclude_columns_from_star, replace_tables
from neve.run.spark.input_rows import as_dataframe
from neve.run.spark.session import parses_text_differently

TableLookup: TypeAlias = Callable[[tuple[str, ...]], TableContext | None]
"""The table of a name, or None for a name the lake does not know; the same state however often it is asked."""

METADATA_TABLES = ("files", "entries", "manifests", "partitions", "specs", "snapshots", "history", "refs", "tree")
_SNAPSHOT_METADATA_TABLES = ("files", "entries", "manifests", "partitions", "tree")


@dataclass(frozen=True)
class TableRead:
    """A table that a text reads, and which state of it."""

    name: TableName  # as the text says it
    context: TableContext
    snapshot: Snapshot | None  # None: a table nobody has written to
    metadata_table: str | None = None  # read instead of the rows

    @property
    def metadata_columns(self) -> tuple[str, ...]:
        """The metadata columns that the text asks for; a column of the table's own of that name comes first."""
        own = {name.lower() for name in self.context.metadata.schema().column_names}
        asked = self.name.underscore_columns - own if self.metadata_table is None else ()
        return tuple(column for column in METADATA_COLUMNS if column in asked)

    def is_of(self, context: TableContext) -> bool:
        """Whether rows of this table are read."""
        return self.metadata_table is None and self.context.metadata.table_uuid == context.metadata.table_uuid


@dataclass(frozen=True)
class Views:
    """Texts that read views instead of tables of the lake; the views are there until they are closed."""

    texts: tuple[str, ...]
    tables: tuple[TableRead, ...]
    view_names: tuple[str, ...]
    spark: Callable[[], SparkSession]

    @property
    def single_text(self) -> str:
        """The text, when there is one."""
        (only,) = self.texts
        return only

    def close(self) -> None:
        """Drop the views."""
        _drop_views(self.spark, self.view_names)

    def __enter__(self) -> Views:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def register_views(find: TableLookup, spark: Callable[[], SparkSession], *texts: str) -> Views:
    """Register what the texts read of the lake as views; Spark is asked for only when there is something to read."""
    reads: dict[tuple[object, ...], tuple[str, TableRead]] = {}

    questionable = [text for text in texts if '"' in text or "\\" in text]

    def view(name: TableName) -> str | None:
        if any(parses_text_differently(spark(), text) for text in questionable):
            name = replace(name, restriction=None)  # Spark alone knows what the conditions mean
        state = (name.parts, name.version, name.timestamp, name.restriction, name.underscore_columns)
        if state not in reads and (found := _resolve_name(find, spark, name)) is not None:
            read, rows = found
            reads[state] = f"neve_{uuid4().hex}", read
            rows.createOrReplaceTempView(reads[state][0])
        return quote_name(reads[state][0]) if state in reads else None

    try:
        rewritten = tuple(replace_tables(text, view) for text in texts)
        shown = dict.fromkeys(column for _, read in reads.values() for column in read.metadata_columns)
        rewritten = tuple(exclude_columns_from_star(text, shown) for text in rewritten)
    except BaseException:
        _drop_views(spark, [name for name, _ in reads.values()])
        raise
    return Views(rewritten, tuple(read for _, read in reads.values()), tuple(n for n, _ in reads.values()), spark)


def _drop_views(spark: Callable[[], SparkSession], names: Iterable[str]) -> None:
    for name in names:
        spark().catalog.dropTempView(name)


def sibling_table_lookup(context: TableContext) -> TableLookup:
    """The tables of the catalog that a table is in; the table itself is found in the state given."""
    return catalog_table_lookup(context.catalog, lambda loaded: replace(context, iceberg=loaded), [context])


def catalog_table_lookup(
    catalog: NeveCatalog,
    context_of: Callable[[IcebergTable], TableContext],
    loaded_contexts: Iterable[TableContext] = (),
) -> TableLookup:
    """The tables of a catalog; a name may begin with that of the catalog. Each is loaded once."""
    states = {context.iceberg.name(): context for context in loaded_contexts}

    @cache
    def find(parts: tuple[str, ...]) -> TableContext | None:
        if parts in states:
            return states[parts]
        loaded = _load_or_none(catalog, parts)
        if loaded is not None:
            return context_of(loaded)
        return find(parts[1:]) if len(parts) > 2 and parts[0] == catalog.name else None

    return find


def _load_or_none(catalog: NeveCatalog, parts: tuple[str, ...]) -> IcebergTable | None:
    try:
        return catalog.load_table(identifier_of(parts))
    except (UserError, NoSuchTableError, NoSuchNamespaceError):  # a name that no table of the lake can have
        return None


def _resolve_name(
    find: TableLookup, spark: Callable[[], SparkSession], name: TableName
) -> tuple[TableRead, DataFrame] | None:
    if (context := find(name.parts)) is not None:
        return _read_rows(context, spark, name)
    *parts, last = name.parts
    context = find(tuple(parts)) if len(parts) > 1 else None
    if context is None:
        return None
    if last in METADATA_TABLES:
        return _read_metadata_table(context, spark, name, last)
    kind, _, ref = last.partition("_")
    if kind not in {"branch", "tag"} or not ref:
        raise UnknownName("metadata table", last, METADATA_TABLES, f"table {context.name}")
    return _read_rows(context, spark, name, ref)


def _read_rows(
    context: TableContext, spark: Callable[[], SparkSession], name: TableName, ref: str | None = None
) -> tuple[TableRead, DataFrame]:
    snapshot_id, said_ref, as_of = _requested_state(context, spark, name)
    if ref is not None and (name.version, name.timestamp) != (None, None):
        raise UserError(f"Cannot read {name.name} as of another version: the name already says which one.")
    scan = Scan.of(context, snapshot_id=snapshot_id, ref=ref or said_ref, as_of=as_of)
    read = TableRead(name, context, scan.snapshot)
    if read.metadata_columns and name.joins_naturally:
        raise UserError(
            f"A NATURAL JOIN would join by {', '.join(read.metadata_columns)} too. Name the columns to join by."
        )
    columns = (*(f.name for f in scan.schema.fields), *read.metadata_columns) if read.metadata_columns else None
    return read, replace(scan, where=_pruning_filter(scan, name), columns=columns).to_spark()


def _pruning_filter(scan: Scan, name: TableName) -> BooleanExpression | None:
    """What is known of the rows that the text can use, so that files without any are left out."""
    if name.restriction is None:
        return None
    try:
        found = pruning_expression(
            name.restriction.condition,
            scan.schema,
            time_zone=scan.context.time_zone(),
            alias=name.qualifier,
            has_other_tables=name.restriction.has_other_tables,
        )
    except UserError:  # what is wrong with it Spark will say
        return None
    return None if isinstance(found, AlwaysTrue) else found


def _read_metadata_table(
    context: TableContext, spark: Callable[[], SparkSession], name: TableName, metadata_table: str
) -> tuple[TableRead, DataFrame]:
    snapshot = context.snapshot(*_requested_state(context, spark, name))
    chosen = (
        {"snapshot_id": snapshot.snapshot_id}
        if snapshot is not None and metadata_table in _SNAPSHOT_METADATA_TABLES
        else {}
    )
    found = getattr(Inspect(context), metadata_table)(**chosen)
    return TableRead(name, context, snapshot, metadata_table), as_dataframe(spark(), found, context.metadata.schema())


def _requested_state(
    context: TableContext, spark: Callable[[], SparkSession], name: TableName
) -> tuple[int | None, str | None, int | None]:
    """Snapshot id, reference and time in milliseconds: at most one is said."""
    if name.timestamp is not None:
        return None, None, _evaluate_timestamp(spark(), name.timestamp)
    if isinstance(name.version, str) and name.version not in context.metadata.refs and name.version.isdecimal():
        return int(name.version), None, None
    return (None, name.version, None) if isinstance(name.version, str) else (name.version, None, None)


def _evaluate_timestamp(spark: SparkSession, expression: str) -> int:
    """The time an expression says, on the clock of the session."""
    try:
        row = spark.sql(f"SELECT unix_millis(CAST({expression} AS TIMESTAMP))").first()
    except PySparkException as e:
        raise UserError(f"Cannot read TIMESTAMP AS OF {expression}: it is not a time.") from e
    if row is None or row[0] is None:
        raise UserError(f"Cannot read TIMESTAMP AS OF {expression}: it is null.")
    return int(row[0])
