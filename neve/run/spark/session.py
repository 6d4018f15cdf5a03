"""The Spark session the work runs in: the caller's, or a local one started on first use.

One option has to stay on in whatever session is used: reading Parquet columns by field id. Spark looks at it when a
query runs, not when it is built, so setting it around a call would make renamed columns null later. Nothing else is
left changed.

The functions that run on executors are found by name in the package `neve`. A local session shares this process's
installation; on a cluster install the package where the executors run, or ship it: `spark.addArtifact("neve.zip",
pyfile=True)`, or `--py-files` when the job is submitted.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from neve.run.spark.java import find, launcher_home

__all__ = [
    "FIELD_IDS",
    "is_case_sensitive",
    "is_classic",
    "is_read_otherwise",
    "local_session",
    "prepare",
    "quiet_errors",
    "session",
]

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
