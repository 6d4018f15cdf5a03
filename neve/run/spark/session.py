"""The Spark session the work runs in: the caller's, or a local one started on first use.

One option has to stay on in whatever session is used: reading Parquet columns by field id. Spark looks at it when a
query runs, not when it is built, so setting it around a call would make renamed columns null later. Nothing else is
left changed.

The functions that run on executors are found by name in the package `neve`. A local session shares this process's
installation; on a cluster install the package where the executors run, or ship it: `spark.addArtifact("neve.zip",
pyfile=True)`, or `--py-files` when the job is submitted.

Options of a Spark session for the time of a call, put back when it ends.

Calls in one session overlap: groups of a compaction are sorted several at once, and users have threads. Had each call
put back what it found, one that began later would put back what another had set, and that would stay. So what the
session itself says is remembered once, by the first call that changes an option, and returns with the last one's end.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from neve.run.spark.java import find, launcher_home

FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled"
_DOUBLE_QUOTED = ("spark.sql.ansi.enabled", "spark.sql.ansi.doubleQuotedIdentifiers")  # both, or it has no effect

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = Path(__file__).with_name("log4j2.properties")
_log = logging.getLogger("neve.spark")
_quiet = ContextVar("_quiet", default=False)


def session(given: SparkSession | None = None) -> SparkSession:
    """The session to work in, ready to read tables: the given one, the active one, or a local one."""
    spark = given or SparkSession.getActiveSession() or local_session()
    prepare(spark)
    return spark


def prepare(spark: SparkSession) -> tuple[str, ...]:
    """Turn on what a session needs to read tables; returns the names of the options that were changed."""
    if spark.conf.get(FIELD_IDS, "false") == "true":
        return ()
    spark.conf.set(FIELD_IDS, "true")
    _log.info(
        "Set %s=true in the Spark session: columns are found by field id, and the option must stay on.", FIELD_IDS
    )
    return (FIELD_IDS,)


def local_session(master: str = "local[*]", options: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark inside this machine, quietly and reachable from this machine only."""
    scratch, given = tempfile.gettempdir(), dict(options or {})
    java = f"-Dlog4j2.configurationFile=file:{_LOGGING} {given.pop(_JAVA_OPTIONS, '')}"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": _driver_memory(),
        _JAVA_OPTIONS: java.strip(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{scratch}/spark-warehouse",
        # PySpark would tell the JVM the line of Python behind every column: ten messages for each of a scan, and the
        # lines are ours.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        FIELD_IDS: "true",
        **given,
    }
    builder = SparkSession.builder.master(master).appName("neve")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _environment(JAVA_HOME=str(launcher_home(find())), SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH=_python_path()):
        # The workers start long after this call, so the interpreter they use stays set.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return builder.getOrCreate()


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether the session tells names of columns apart that differ in case only."""
    return _is_on(spark, "spark.sql.caseSensitive")


def is_read_otherwise(spark: SparkSession, text: str) -> bool:
    """Whether settings of the session make Spark read constants and names of a text in another way than its default."""
    quotes = '"' in text and all(_is_on(spark, name) for name in _DOUBLE_QUOTED)
    return quotes or ("\\" in text and _is_on(spark, "spark.sql.parser.escapedStringLiterals"))


def _is_on(spark: SparkSession, name: str) -> bool:
    return str(spark.conf.get(name, "false")).lower() == "true"


def is_classic(spark: SparkSession) -> bool:
    """Whether the session lives in this process's own JVM, and not behind Spark Connect."""
    return hasattr(spark, "_jvm")


@contextmanager
def quiet_errors() -> Iterator[None]:
    """Keep PySpark from printing errors of this thread that are caught and told in other words."""
    PySparkLogger.getLogger("SQLQueryContextLogger").addFilter(_is_told)  # it must be of PySpark's own kind
    before = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(before)


def _is_told(record: logging.LogRecord) -> bool:
    return not _quiet.get()


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name)
        os.environ.update({name: value for name, value in before.items() if value is not None})


def _python_path() -> str:
    """Where workers look for this package too when it runs from a checkout that is not installed."""
    own = str(Path(__file__).resolve().parents[3])
    return os.pathsep.join([own, *filter(None, [os.environ.get("PYTHONPATH")])])


def _driver_memory() -> str:
    """A quarter of the machine's memory, between 1 and 8 GiB."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{min(max(machine >> 2, 1 << 30), 8 << 30) >> 20}m"


@dataclass(frozen=True)
class _Held:
    """An option that running calls have set: what the session says of it, and what each call does, oldest first."""

    own: str | None
    values: dict[object, str] = field(default_factory=dict)

    @property
    def now(self) -> str | None:
        return next(reversed(self.values.values()), self.own)


_held: dict[tuple[str, str], _Held] = {}  # by session and option
_lock = Lock()


@contextmanager
def options_around(spark: SparkSession, options: Mapping[str, str]) -> Iterator[None]:
    """Set session options for the time of a call; what was there is back when the last call that sets them ends.

    Where calls want different values at the same time, the one that began last has its own.
    """
    session, call = _identity(spark), object()
    try:
        with _lock:
            for name, value in options.items():
                key = session, name
                if key not in _held:
                    _held[key] = _Held(spark.conf.get(name, None))
                _held[key].values[call] = value
                _put(spark, name, value)
        yield
    finally:
        with _lock:
            for name in options:
                _let_go(spark, (session, name), call)


def own_option(spark: SparkSession, name: str) -> str | None:
    """What a session says of an option by itself, whatever running calls have set; None when it says nothing."""
    with _lock:
        held = _held.get((_identity(spark), name))
        return held.own if held else spark.conf.get(name, None)


def _let_go(spark: SparkSession, key: tuple[str, str], call: object) -> None:
    held = _held.get(key)
    if held is None or held.values.pop(call, None) is None:  # setting it failed, or one before it
        return
    if not held.values:
        del _held[key]
    _put(spark, key[1], held.now)


def _put(spark: SparkSession, name: str, value: str | None) -> None:
    if value is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, value)


def _identity(spark: SparkSession) -> str:
    """The same for all Python objects that stand for one session."""
    return str(spark._jsparkSession.sessionUUID() if is_classic(spark) else spark.session_id)  # type: ignore[attr-defined]
