"""Read tables of attached lakes into DataFrames, and write DataFrames to them, through Spark's own readers and writers.

A reader or writer of Spark gets a class of ours, derived from its own. It notes what is chosen before the call that
names the table, and if that table is in a lake, runs the read or write as a statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from neve.errors import UserError
from neve.predicate.column_names import quote_name
from neve.run.spark.session import is_classic, spark_itself
from neve.run.spark.types import spark_schema
from neve.session_catalog.session_lakes import SessionLakes, parse_name
from neve.session_catalog.statements import RunInSpark, as_table_query, run_query
from neve.sql import run
from neve.sql.statement import Name, StatementOptions, table_and_branch
from neve.table import Table

T = TypeVar("T")

_ICEBERG = "iceberg"
_SNAPSHOT_PROPERTY = "snapshot-property."
# Options of Iceberg and Spark for one write, which a new table does not keep.
_WRITE_OPTIONS = frozenset(
    re.findall(
        r"\S+",
        """path branch isolation-level validate-from-snapshot-id mergeschema merge-schema check-nullability
        check-ordering fanout-enabled use-table-distribution-and-ordering overwrite-mode write-format
        target-file-size-bytes distribution-mode compression-codec compression-level compression-strategy
        delete-granularity""",
    )
)
_MODES = ("append", "overwrite", "error", "errorifexists", "default", "ignore")


def read_table(
    lakes: SessionLakes, in_spark: RunInSpark, name: object, options: Mapping[str, Any] | None = None
) -> DataFrame | None:
    """Return the rows of a table, or of one of its metadata tables, under the last part of its name.

    A temporary view of a lake is read like a table. None: the name belongs to Spark.
    """
    parts = parse_name(name) or ("",)
    is_view = len(parts) == 1 and parts[0].lower() in lakes.views and not options
    place = parts if is_view else lakes.place_of_text(name)
    if place is None:
        return None
    with spark_itself():
        text = as_table_query(".".join(map(quote_name, place)), options or {})
        return run_query(lakes, in_spark, text).alias(place[-1])


@dataclass
class TableWrite:
    """A write of a DataFrame to a table of a lake, as it is composed call by call."""

    lakes: SessionLakes
    rows: DataFrame
    place: Name
    options: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()

    def append(self) -> None:
        """Append the rows by name."""
        with self._table() as (table, target):
            table.append(self.rows, **target)

    def overwrite_partitions(self) -> None:
        """Replace the partitions that the rows belong to."""
        with self._table() as (table, target):
            table.overwrite_partitions(self.rows, isolation=self._option("isolation-level"), **target)

    def overwrite(self, condition: Any) -> None:
        """Replace the files that hold only rows for which a condition is true."""
        with self._table() as (table, target):
            where = self._condition_text(condition, spark_schema(table.schema))
            table.overwrite(self.rows, where=where, isolation=self._option("isolation-level"), **target)

    def insert(self, *, overwrites: bool) -> None:
        """Insert the rows by position; `overwrites`: replace the partitions that they belong to."""
        isolation = {"isolation": self._option("isolation-level")} if overwrites else {}
        options = {"branch": self._option("branch"), "snapshot_properties": self._snapshot_properties, **isolation}
        self._run(f"INSERT {'OVERWRITE' if overwrites else 'INTO'} {self._name}", **options)

    def create(self, statement: str = "CREATE TABLE") -> None:
        """Create or replace the table with the columns and rows of the DataFrame."""
        if self._option("branch") is not None or self._names_branch:
            raise UserError(
                f"Cannot create or replace a branch of a table with {statement} {'.'.join(self.place)}: all branches "
                "have the columns of their table. Append to the branch, or overwrite its partitions."
            )
        clauses = [f"{statement} {self._name} USING iceberg"]
        if self.partition_by:
            clauses.append(f"PARTITIONED BY ({', '.join(self.partition_by)})")
        if (location := self._option("path")) is not None:
            clauses.append(f"LOCATION {_string(location)}")
        if properties := {**self.properties, **self._table_options}:
            pairs = (f"{_string(name)} = {_string(value)}" for name, value in properties.items())
            clauses.append(f"TBLPROPERTIES ({', '.join(pairs)})")
        self._run(" ".join([*clauses, "AS"]), snapshot_properties=self._snapshot_properties)

    def save(self, mode: str) -> None:
        """Create the table, or do with an existing one what a mode of `saveAsTable` says."""
        mode = mode.lower()
        if mode not in _MODES:
            raise UserError(f"Unknown save mode {mode!r}. The modes are append, overwrite, error and ignore.")
        if mode == "overwrite":
            self.create("CREATE OR REPLACE TABLE")
        elif self.lakes.table_lookup()(self.place) is None and not self._names_branch:
            self.create()
        elif mode == "append":
            self.append()
        elif mode != "ignore":
            raise UserError(
                f"Table {'.'.join(self.place)} exists already. Choose the mode append, overwrite or ignore."
            )

    def _condition_text(self, condition: Any, schema: StructType) -> str:
        """Return a condition as SQL text; Spark resolves a Column, to which operators are functions."""
        if isinstance(condition, str):
            return condition
        if not is_classic(self.lakes.spark):
            raise UserError("Give the condition of overwrite as SQL text: over Spark Connect, a Column has none.")
        frame: Any = self.lakes.spark.createDataFrame([], schema).where(condition)
        return str(frame._jdf.queryExecution().analyzed().condition().sql())

    @contextmanager
    def _table(self) -> Iterator[tuple[Table, dict[str, Any]]]:
        """Open the table, and return it with the branch to write to and the properties of the snapshot."""
        with spark_itself():
            table, named_branch = table_and_branch(self.lakes.context_of(self.place), self.place)
            branch = StatementOptions(branch=self._option("branch")).on_branch(named_branch).branch or "main"
            yield table, {"branch": branch, "snapshot_properties": self._snapshot_properties}

    def _run(self, statement: str, **options: Any) -> None:
        view = f"neve_{uuid4().hex}"
        context = self.lakes.context_of(self.place)
        with spark_itself():
            self.rows.createOrReplaceTempView(view)
            try:
                run(context, f"{statement} SELECT * FROM {view}", **options)  # noqa: S608
            finally:
                self.lakes.spark.catalog.dropTempView(view)

    @property
    def _name(self) -> str:
        return ".".join(map(quote_name, self.place))

    @property
    def _names_branch(self) -> bool:
        """Whether the name ends with a branch of a table, as in `lake.db.t.branch_audit`."""
        find, is_branch = self.lakes.table_lookup(), self.place[-1].startswith("branch_")
        return is_branch and find(self.place) is None and find(self.place[:-1]) is not None

    def _option(self, name: str) -> str | None:
        """Return an option; as in Spark, case does not matter."""
        return {key.lower(): value for key, value in self.options.items()}.get(name)

    @property
    def _snapshot_properties(self) -> dict[str, str]:
        length = len(_SNAPSHOT_PROPERTY)
        return {n[length:]: v for n, v in self.options.items() if n.lower().startswith(_SNAPSHOT_PROPERTY)}

    @property
    def _table_options(self) -> dict[str, str]:
        """Options of a write that creates a table are properties of the table, unless they are about the write."""
        others = {n: v for n, v in self.options.items() if n.lower() not in _WRITE_OPTIONS}
        return {n: v for n, v in others.items() if not n.lower().startswith(_SNAPSHOT_PROPERTY)}


class TableWriter:
    """What `df.writeTo("lake.db.t")` returns: the methods of Spark's `DataFrameWriterV2`."""

    def __init__(self, write: TableWrite) -> None:
        self._write = write

    def using(self, provider: str) -> TableWriter:
        """Set the format, which can only be Iceberg."""
        if provider.lower() != _ICEBERG:
            raise UserError(
                f"Cannot write table {'.'.join(self._write.place)} as {provider}: a lake holds Iceberg tables."
            )
        return self

    def option(self, key: str, value: Any) -> TableWriter:
        """Set an option of the write."""
        self._write.options[key] = _option_text(value)
        return self

    def options(self, **options: Any) -> TableWriter:
        """Set several options of the write."""
        self._write.options |= {key: _option_text(value) for key, value in options.items()}
        return self

    def tableProperty(self, property: str, value: str) -> TableWriter:  # noqa: N802, A002
        """Set a property of the table to create."""
        self._write.properties[property] = value
        return self

    def partitionedBy(self, col: Any, *cols: Any) -> TableWriter:  # noqa: N802
        """Partition the table to create by columns and transforms of columns."""
        self._write.partition_by = tuple(map(_partition_text, (col, *cols)))
        return self

    def create(self) -> None:
        """Create the table with these rows."""
        self._write.create()

    def replace(self) -> None:
        """Replace the table, which must exist, by a new one with these rows; its history stays."""
        self._write.create("REPLACE TABLE")

    def createOrReplace(self) -> None:  # noqa: N802
        """Create the table with these rows, or replace it."""
        self._write.create("CREATE OR REPLACE TABLE")

    def append(self) -> None:
        """Append the rows."""
        self._write.append()

    def overwrite(self, condition: Any) -> None:
        """Replace the files that hold only rows for which the condition is true."""
        self._write.overwrite(condition)

    def overwritePartitions(self) -> None:  # noqa: N802
        """Replace the partitions that the rows belong to."""
        self._write.overwrite_partitions()


class _NotedChoices:
    """Notes the choices that are made on a reader or writer of Spark, and makes them there too."""

    def format(self, source: str) -> Any:
        self.__dict__["_neve_format"] = source
        return super().format(source)  # type: ignore[misc]

    def option(self, key: str, value: Any) -> Any:
        self._neve_options[key] = value
        return super().option(key, value)  # type: ignore[misc]

    def options(self, **options: Any) -> Any:
        self._neve_options.update(options)
        return super().options(**options)  # type: ignore[misc]

    @property
    def _neve_options(self) -> dict[str, Any]:
        options: dict[str, Any] = self.__dict__.setdefault("_neve_noted_options", {})
        return options

    @property
    def _neve_lakes(self) -> SessionLakes:
        lakes: SessionLakes = self.__dict__["_neve_session_lakes"]
        return lakes


class _LakeReader(_NotedChoices):
    """A reader of Spark that finds tables of lakes by name."""

    def table(self, tableName: str) -> DataFrame:  # noqa: N803
        frame = self._neve_read(tableName, self._neve_options)
        return super().table(tableName) if frame is None else frame  # type: ignore[misc]

    def load(self, path: Any = None, format: str | None = None, schema: Any = None, **options: Any) -> DataFrame:  # noqa: A002
        chosen = format or self.__dict__.get("_neve_format")
        is_iceberg = isinstance(chosen, str) and chosen.lower() == _ICEBERG
        frame = self._neve_read(path, {**self._neve_options, **options}) if is_iceberg else None
        return super().load(path, format, schema, **options) if frame is None else frame  # type: ignore[misc]

    def _neve_read(self, name: object, options: Mapping[str, Any]) -> DataFrame | None:
        return read_table(self._neve_lakes, self.__dict__["_neve_in_spark"], name, options)


class _LakeWriter(_NotedChoices):
    """A writer of Spark that finds tables of lakes by name."""

    def mode(self, saveMode: str | None) -> Any:  # noqa: N803
        self.__dict__["_neve_mode"] = saveMode
        return super().mode(saveMode)  # type: ignore[misc]

    def bucketBy(self, numBuckets: int, col: Any, *cols: Any) -> Any:  # noqa: N802, N803
        names = (*col, *cols) if isinstance(col, list | tuple) else (col, *cols)
        self.__dict__["_neve_buckets"] = tuple(f"bucket({numBuckets}, {quote_name(name)})" for name in names)
        return super().bucketBy(numBuckets, col, *cols)  # type: ignore[misc]

    def sortBy(self, col: Any, *cols: Any) -> Any:  # noqa: N802
        self.__dict__["_neve_refused"] = "sortBy"
        return super().sortBy(col, *cols)  # type: ignore[misc]

    def clusterBy(self, *cols: Any) -> Any:  # noqa: N802
        self.__dict__["_neve_refused"] = "clusterBy"
        return super().clusterBy(*cols)  # type: ignore[misc]

    def partitionBy(self, *cols: Any) -> Any:  # noqa: N802
        names = cols[0] if len(cols) == 1 and isinstance(cols[0], list | tuple) else cols
        self.__dict__["_neve_partition_by"] = tuple(map(quote_name, names))
        return super().partitionBy(*cols)  # type: ignore[misc]

    def saveAsTable(  # noqa: N802
        self,
        name: str,
        format: str | None = None,  # noqa: A002
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803
        **options: Any,
    ) -> None:
        place = self._neve_lakes.place_of_text(name, may_be_new=True)
        if place is None:
            super().saveAsTable(name, format, mode, partitionBy, **options)  # type: ignore[misc]
            return
        if partitionBy is not None:
            self.partitionBy(*([partitionBy] if isinstance(partitionBy, str) else partitionBy))
        self._neve_write(place, options).save(mode or self.__dict__.get("_neve_mode") or "error")

    def insertInto(self, tableName: str, overwrite: bool | None = None) -> None:  # noqa: N802, N803
        place = self._neve_lakes.place_of_text(tableName)
        if place is None:
            super().insertInto(tableName, overwrite)  # type: ignore[misc]
            return
        is_overwrite = self.__dict__.get("_neve_mode") == "overwrite" if overwrite is None else overwrite
        self._neve_write(place, {}).insert(overwrites=is_overwrite)

    def _neve_write(self, place: Name, options: Mapping[str, Any]) -> TableWrite:
        buckets = self.__dict__.get("_neve_buckets", ())
        if (refused := self.__dict__.get("_neve_refused")) or len(buckets) > 1:
            raise UserError(
                f"Cannot write table {'.'.join(place)} with {refused or 'bucketBy over several columns'}. Create the "
                "table with SQL, and set its order with ALTER TABLE … WRITE ORDERED BY."
            )
        texts = {key: _option_text(value) for key, value in {**self._neve_options, **options}.items()}
        frame, partition_by = self.__dict__["_neve_frame"], (*self.__dict__.get("_neve_partition_by", ()), *buckets)
        return TableWrite(self._neve_lakes, frame, place, texts, partition_by=partition_by)


def as_lake_reader(lakes: SessionLakes, reader: T, in_spark: RunInSpark) -> T:
    """Let a reader of Spark find tables of lakes."""
    reader.__dict__.update(_neve_session_lakes=lakes, _neve_in_spark=in_spark)
    reader.__class__ = derived_class(_LakeReader, reader)
    return reader


def as_lake_writer(lakes: SessionLakes, writer: T, frame: DataFrame) -> T:
    """Let a writer of Spark find tables of lakes."""
    writer.__dict__.update(_neve_session_lakes=lakes, _neve_frame=frame)
    writer.__class__ = derived_class(_LakeWriter, writer)
    return writer


def derived_class(own: type, of: object) -> Any:
    """Return the class of an object of Spark, with methods of ours before its own."""
    base: Any = type(of)
    return _derive(own, base)


@cache
def _derive(own: type, base: type) -> type:
    return type(base.__name__, (own, base), {"__doc__": base.__doc__, "__module__": base.__module__})


def _partition_text(term: Any) -> str:
    """Return a column or a transform of a column as text of PARTITIONED BY."""
    if isinstance(term, str):
        return quote_name(term)
    return str(term._jc.node().sql()) if hasattr(term, "_jc") else repr(term._expr)


def _option_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
