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

from neve.run.spark.java import find_java, launcher_home

FIELD_ID_OPTION = "spark.sql.parquet.fieldId.read.enabled"
_DOUBLE_QUOTED = ("spark.sql.ansi.enabled", "spark.sql.ansi.doubleQuotedIdentifiers")  # both, or it has no effect

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG4J_CONFIG = Path(__file__).with_name("log4j2.properties")
_log = logging.getLogger("neve.spark")
_quiet = ContextVar("_quiet", default=False)


def resolve_session(existing: SparkSession | None = None) -> SparkSession:
    """The session to work in, ready to read tables: the given one, the active one, or a local one."""
    spark = existing or SparkSession.getActiveSession() or local_session()
    prepare_session(spark)
    return spark


def prepare_session(spark: SparkSession) -> tuple[str, ...]:
    """Turn on what a session needs to read tables; returns the names of the options that were changed."""
    if spark.conf.get(FIELD_ID_OPTION, "false") == "true":
        return ()
    spark.conf.set(FIELD_ID_OPTION, "true")
    _log.info(
        "Set %s=true in the Spark session: columns are found by field id, and the option must stay on.", FIELD_ID_OPTION
    )
    return (FIELD_ID_OPTION,)


def local_session(master: str = "local[*]", options: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark inside this machine, quietly and reachable from this machine only."""
    scratch, given = tempfile.gettempdir(), dict(options or {})
    java = f"-Dlog4j2.configurationFile=file:{_LOG4J_CONFIG} {given.pop(_JAVA_OPTIONS, '')}"
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
        FIELD_ID_OPTION: "true",
        **given,
    }
    builder = SparkSession.builder.master(master).appName("neve")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _environment_variables(
        JAVA_HOME=str(launcher_home(find_java())), SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH=_python_path()
    ):
        # The workers start long after this call, so the interpreter they use stays set.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return builder.getOrCreate()


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether the session tells names of columns apart that differ in case only."""
    return _is_on(spark, "spark.sql.caseSensitive")


def parses_text_differently(spark: SparkSession, text: str) -> bool:
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
def _environment_variables(**variables: str) -> Iterator[None]:
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
class _OverriddenOption:
    """An option that running calls have set: what the session says of it, and what each call does, oldest first."""

    session_value: str | None
    value_by_call: dict[object, str] = field(default_factory=dict)

    @property
    def current_value(self) -> str | None:
        return next(reversed(self.value_by_call.values()), self.session_value)


_overridden_options: dict[tuple[str, str], _OverriddenOption] = {}  # by session and option
_lock = Lock()


@contextmanager
def temporary_options(spark: SparkSession, options: Mapping[str, str]) -> Iterator[None]:
    """Set session options for the time of a call; what was there is back when the last call that sets them ends.

    Where calls want different values at the same time, the one that began last has its own.
    """
    session, call = _session_id(spark), object()
    try:
        with _lock:
            for name, value in options.items():
                key = session, name
                if key not in _overridden_options:
                    _overridden_options[key] = _OverriddenOption(spark.conf.get(name, None))
                _overridden_options[key].value_by_call[call] = value
                _set_option(spark, name, value)
        yield
    finally:
        with _lock:
            for name in options:
                _release_option(spark, (session, name), call)


def session_option(spark: SparkSession, name: str) -> str | None:
    """What a session says of an option by itself, whatever running calls have set; None when it says nothing."""
    with _lock:
        held = _overridden_options.get((_session_id(spark), name))
        return held.session_value if held else spark.conf.get(name, None)


def _release_option(spark: SparkSession, key: tuple[str, str], call: object) -> None:
    held = _overridden_options.get(key)
    if held is None or held.value_by_call.pop(call, None) is None:  # setting it failed, or one before it
        return
    if not held.value_by_call:
        del _overridden_options[key]
    _set_option(spark, key[1], held.current_value)


def _set_option(spark: SparkSession, name: str, value: str | None) -> None:
    if value is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, value)


def _session_id(spark: SparkSession) -> str:
    """The same for all Python objects that stand for one session."""
    return str(spark._jsparkSession.sessionUUID() if is_classic(spark) else spark.session_id)  # type: ignore[attr-defined]
