"""The entry points of PySpark where names of tables arrive, and what they do in a session with lakes.

PySpark has no interface in Python for catalogs, and Spark's own is for classes of the JVM. So a few methods of its
classes are replaced while any lake is attached. In sessions without lakes they do what they did before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.sql_formatter import SQLStringFormatter

from neve.errors import UserError
from neve.run.spark.session import is_classic, spark_itself
from neve.session_catalog.catalog import as_lake_catalog
from neve.session_catalog.frames import TableWrite, TableWriter, as_lake_reader, as_lake_writer, read_table
from neve.session_catalog.session_lakes import SessionLakes, session_lakes
from neve.session_catalog.statements import run_sql

Hook = Callable[..., Any]  # takes the lakes, the original as a call, the object, and the arguments

_originals: list[tuple[type, str, Any]] = []


def install_hooks(spark: SparkSession) -> None:
    """Replace the entry points of the classes of a session, unless they are replaced already."""
    session_class, frame_class = type(spark), type(spark.range(0))
    for owner, hooks in ((session_class, _SESSION_HOOKS), (frame_class, _FRAME_HOOKS)):
        for name, hook in hooks.items():
            if not any((known, n) == (owner, name) for known, n, _ in _originals):
                original = owner.__dict__[name]
                _originals.append((owner, name, original))
                setattr(owner, name, _hooked(original, hook))


def remove_hooks() -> None:
    """Restore all entry points."""
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


def _hooked(original: Any, hook: Hook) -> Any:
    """Return a method or property that calls the hook in sessions with lakes."""
    is_method = callable(original)
    call = original if is_method else (lambda self: original.__get__(self, type(self)))

    @wraps(original if is_method else original.func if hasattr(original, "func") else original.fget)
    def entry_point(self: Any, *args: Any, **kwargs: Any) -> Any:
        lakes = session_lakes(self.sparkSession if isinstance(self, DataFrame) else self)
        if lakes is None:
            return call(self, *args, **kwargs)
        with spark_itself():
            return hook(lakes, partial(call, self), self, *args, **kwargs)

    return entry_point if is_method else property(entry_point)


# -- sessions --------------------------------------------------------------------------------------------------------


def _sql(
    lakes: SessionLakes,
    original: Callable[..., DataFrame],
    spark: SparkSession,
    sqlQuery: str,  # noqa: N803 - the name in PySpark
    args: Any = None,
    **kwargs: Any,
) -> DataFrame:
    if not kwargs:
        return run_sql(lakes, original, sqlQuery, args)
    if not is_classic(spark):
        return original(sqlQuery, args, **kwargs)
    formatter = SQLStringFormatter(spark)  # registers {df} as a temporary view
    try:
        return run_sql(lakes, original, formatter.format(sqlQuery, **kwargs), args)
    finally:
        formatter.clear()


def _table(
    lakes: SessionLakes,
    original: Callable[..., DataFrame],
    spark: SparkSession,
    tableName: str,  # noqa: N803 - the name in PySpark
) -> DataFrame:
    frame = read_table(lakes, _sql_of(spark), tableName)
    return original(tableName) if frame is None else frame


def _read(lakes: SessionLakes, original: Callable[[], Any], spark: SparkSession) -> Any:
    return as_lake_reader(lakes, original(), _sql_of(spark))


def _catalog(lakes: SessionLakes, original: Callable[[], Any], spark: SparkSession) -> Any:
    return as_lake_catalog(lakes, original(), _sql_of(spark))


def _sql_of(spark: SparkSession) -> Callable[..., DataFrame]:
    """Return the session's own `sql`."""

    def in_spark(text: str, args: Any = None) -> DataFrame:
        with spark_itself():
            return spark.sql(text, args)

    return in_spark


# -- DataFrames ------------------------------------------------------------------------------------------------------


def _write_to(lakes: SessionLakes, original: Callable[..., Any], frame: DataFrame, table: str) -> Any:
    place = lakes.place_of_text(table, may_be_new=True)
    return original(table) if place is None else TableWriter(TableWrite(lakes, frame, place))


def _write(lakes: SessionLakes, original: Callable[[], Any], frame: DataFrame) -> Any:
    return as_lake_writer(lakes, original(), frame)


def _merge_into(lakes: SessionLakes, original: Callable[..., Any], frame: DataFrame, table: str, condition: Any) -> Any:
    if lakes.place_of_text(table) is None:
        return original(table, condition)
    raise UserError(
        f"Cannot merge into {table} with mergeInto. Register the rows as a temporary view, and run MERGE INTO {table} "
        "USING the view with spark.sql()."
    )


_SESSION_HOOKS: dict[str, Hook] = {"sql": _sql, "table": _table, "read": _read, "catalog": _catalog}
_FRAME_HOOKS: dict[str, Hook] = {"writeTo": _write_to, "write": _write, "mergeInto": _merge_into}
