"""The Spark session: the caller's, or a local one started on first use, and its options.

One option must stay on in any session: reading Parquet columns by field id. Spark checks it when a query runs, not when
it is built, so setting it only during a call would make renamed columns null later. No other option stays changed.

Executors import the functions they run from the package `neve`. A local session shares the installation of this
process. On a cluster, install the package where the executors run, or send it along: `spark.addArtifact("neve.zip",
pyfile=True)`, or `--py-files` when the job is submitted.

`temporary_options` sets options during a call. Calls in one session overlap: several groups of a compaction are sorted
at the same time, and users have threads. If each call restored the value that it found, a later call would restore the
value that an earlier call had set. So the first call that changes an option stores the session's own value, and the end
of the last call restores it.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from neve.errors import UserError
from neve.io.parallel import usable_cores
from neve.run.spark.java import find_java, launcher_home

FIELD_ID_OPTION = "spark.sql.parquet.fieldId.read.enabled"
_DOUBLE_QUOTED = ("spark.sql.ansi.enabled", "spark.sql.ansi.doubleQuotedIdentifiers")  # both, or it has no effect

_VARIABLE = re.compile(r"\$\{(?:(?P<source>\w+?):)?(?P<name>\S+?)\}", re.ASCII)
_OPTION_SOURCES = (None, "spark", "sparkconf", "hivevar", "hiveconf")

_LOCAL_MASTER = re.compile(r"local(?:\[\s*(?P<threads>\d+|\*)\s*(?:,.*)?\])?$")
WAP_ID_OPTION, WAP_BRANCH_OPTION = "spark.wap.id", "spark.wap.branch"

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG4J_CONFIG = Path(__file__).with_name("log4j2.properties")
_DAEMON_OPTION, _DAEMON = "spark.python.daemon.module", "neve.run.spark.worker_daemon"
_log = logging.getLogger("neve.spark")
_quiet = ContextVar("_quiet", default=False)
_ignores_lakes = ContextVar("_ignores_lakes", default=False)


def resolve_session(existing: SparkSession | None = None) -> SparkSession:
    """Return a session that is ready to read tables: the given one, the active one, or a local one."""
    spark = existing or SparkSession.getActiveSession() or local_session()
    prepare_session(spark)
    return spark


def audit_options(spark: SparkSession | None) -> tuple[str | None, str | None]:
    """Return the WAP id and the branch by which a session has its writes audited; None for those that are not set."""
    if spark is None:
        return None, None
    return spark.conf.get(WAP_ID_OPTION, None) or None, spark.conf.get(WAP_BRANCH_OPTION, None) or None


def prepare_session(spark: SparkSession) -> tuple[str, ...]:
    """Turn on the option that reading tables needs; return the names of the changed options."""
    if spark.conf.get(FIELD_ID_OPTION, "false") == "true":
        return ()
    spark.conf.set(FIELD_ID_OPTION, "true")
    _log.info(
        "Set %s=true in the Spark session: columns are found by field id, and the option must stay on.", FIELD_ID_OPTION
    )
    return (FIELD_ID_OPTION,)


def local_session(master: str = "local[*]", options: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark on this machine, without log output and not reachable from outside."""
    own_options = dict(options or {})
    java = f"-Dlog4j2.configurationFile=file:{_LOG4J_CONFIG} {own_options.pop(_JAVA_OPTIONS, '')}"
    machine_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # Workers find this package also if it runs from a checkout that is not installed.
    python_path = [str(Path(__file__).resolve().parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # A quarter of the machine's memory, between 1 and 8 GiB.
        "spark.driver.memory": f"{min(max(machine_memory >> 2, 1 << 30), 8 << 30) >> 20}m",
        _JAVA_OPTIONS: java.strip(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{tempfile.gettempdir()}/neve-warehouse-{uuid4().hex}",
        # PySpark would send the JVM the line of Python behind every column: ten messages for each column of a scan,
        # and the lines are ours.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        FIELD_ID_OPTION: "true",
        # Workers are forked with all imports done. Executors on other machines might not have this package.
        **({_DAEMON_OPTION: _DAEMON} if _LOCAL_MASTER.match(master) else {}),
        **own_options,
    }
    builder = SparkSession.builder.master(master).appName("neve")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with (
        _environment_variables(
            JAVA_HOME=str(launcher_home(find_java())),
            SPARK_LOCAL_IP="127.0.0.1",
            PYTHONPATH=os.pathsep.join(python_path),
        ),
        _no_forgotten_java(),
    ):
        # The workers start long after this call, so the interpreter they use stays set.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return builder.getOrCreate()


def is_case_sensitive(spark: SparkSession) -> bool:
    """Return whether the session distinguishes column names that differ only in case."""
    return _is_on(spark, "spark.sql.caseSensitive")


def parses_text_differently(spark: SparkSession, text: str) -> bool:
    """Return whether settings of the session make Spark parse constants or names of a text in a non-default way."""
    quotes = '"' in text and all(_is_on(spark, name) for name in _DOUBLE_QUOTED)
    may_be_escaped = "\\" in text or re.search("[rR]['\"]", text) is not None  # r'…' keeps a quote then
    is_escaped = may_be_escaped and _is_on(spark, "spark.sql.parser.escapedStringLiterals")
    return quotes or is_escaped or _has_variables(spark, text)


def substitute_variables(spark: SparkSession, text: str, inside: frozenset[str] = frozenset()) -> str:
    """Replace each `${name}` in a text as Spark does before it parses.

    The value is that of an option of the session, empty if it is not set. `${env:name}` and `${system:name}` are of the
    JVM, and stay if it has none or the session is one of Spark Connect. References in values are replaced too; `inside`
    are those that led to the text.
    """

    def value_of(reference: re.Match[str]) -> str:
        if reference[0] in inside:
            raise UserError(f"The value of {reference[0]} refers to {reference[0]} again.")
        value = _variable(spark, reference["source"], reference["name"])
        return reference[0] if value is None else substitute_variables(spark, value, inside | {reference[0]})

    return _VARIABLE.sub(value_of, text) if _has_variables(spark, text) else text


def _has_variables(spark: SparkSession, text: str) -> bool:
    return "${" in text and _is_on(spark, "spark.sql.variable.substitute", default="true")


def _variable(spark: SparkSession, source: str | None, name: str) -> str | None:
    if source in _OPTION_SOURCES:
        try:
            with quiet_errors():
                return spark.conf.get(name, "")
        except PySparkException:  # an option whose value cannot be empty; Spark says so
            return None
    if source not in {"env", "system"} or not is_classic(spark):
        return None
    system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr]
    value = system.getenv(name) if source == "env" else system.getProperty(name)
    return None if value is None else str(value)


def _is_on(spark: SparkSession, name: str, default: str = "false") -> bool:
    return str(spark.conf.get(name, default)).lower() == "true"


def is_classic(spark: SparkSession) -> bool:
    """Return whether the session uses a JVM of this process, not Spark Connect."""
    return hasattr(spark, "_jvm")


def has_other_machines(spark: SparkSession | None) -> bool:
    """Return whether jobs may run on more than this machine; a session that has not been started yet will be local."""
    return spark is not None and not (is_classic(spark) and _LOCAL_MASTER.match(_master_of(spark)))


def _master_of(spark: SparkSession) -> str:
    return str(spark.sparkContext.master)


def task_slots(spark: SparkSession | None) -> int:
    """Return how many tasks a local session runs at the same time; otherwise the number of cores of this machine."""
    master = None if spark is None or has_other_machines(spark) else _LOCAL_MASTER.match(_master_of(spark))
    threads = "*" if master is None else master["threads"] or "1"
    return usable_cores() if threads == "*" else int(threads)


def temporary_folder(spark: SparkSession) -> str | None:
    """Return a folder of the session for temporary files, which Spark removes at its end; None for Spark Connect."""
    return str(spark.sparkContext._temp_dir) if is_classic(spark) else None


@contextmanager
def quiet_errors() -> Iterator[None]:
    """Keep PySpark from printing errors of this thread that are caught and reported in other words."""
    # Only PySpark's own class of loggers works here. A logger ignores a filter that it already has.
    PySparkLogger.getLogger("SQLQueryContextLogger").addFilter(_is_not_quiet)
    before = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(before)


@contextmanager
def spark_itself() -> Iterator[None]:
    """During this block, calls of Spark in this thread mean Spark itself: lakes attached to it are not looked at."""
    before = _ignores_lakes.set(True)
    try:
        yield
    finally:
        _ignores_lakes.reset(before)


def means_spark_itself() -> bool:
    """Return whether calls of Spark in this thread mean Spark itself."""
    return _ignores_lakes.get()


def _is_not_quiet(record: logging.LogRecord) -> bool:
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


@contextmanager
def _no_forgotten_java() -> Iterator[None]:
    """Stop the Java that PySpark has launched if the block is interrupted before they are connected.

    PySpark removes the file that both meet at; without it, Java fails in a way that never ends.
    """
    from pyspark import SparkContext, java_gateway  # noqa: PLC0415 - PySpark for Connect alone does not have them

    launcher: Any = java_gateway
    launched, launch = list[subprocess.Popen[bytes]](), launcher.Popen

    def launch_and_remember(*command: Any, **options: Any) -> subprocess.Popen[bytes]:
        launched.append(launch(*command, **options))
        return launched[-1]

    launcher.Popen = launch_and_remember
    try:
        yield
    except BaseException:
        for process in launched if SparkContext._gateway is None else ():
            process.kill()
        raise
    finally:
        launcher.Popen = launch


@dataclass(frozen=True)
class _OverriddenOption:
    """An option that running calls have set."""

    session_value: str | None  # the session's own value
    value_by_call: dict[object, str] = field(default_factory=dict)  # oldest call first

    @property
    def current_value(self) -> str | None:
        return next(reversed(self.value_by_call.values()), self.session_value)


_overridden_options: dict[tuple[str, str], _OverriddenOption] = {}  # by session and option
_lock = Lock()


@contextmanager
def temporary_options(spark: SparkSession, options: Mapping[str, str]) -> Iterator[None]:
    """Set session options during a call; the session's own values return when the last call that sets them ends.

    If calls set different values at the same time, the value of the call that began last is used.
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
    """Return the session's own value of an option, whatever running calls have set; None if it is not set."""
    with _lock:
        overridden = _overridden_options.get((_session_id(spark), name))
        return overridden.session_value if overridden else spark.conf.get(name, None)


def _release_option(spark: SparkSession, key: tuple[str, str], call: object) -> None:
    overridden = _overridden_options.get(key)
    if overridden is None or overridden.value_by_call.pop(call, None) is None:  # setting it failed, or one before it
        return
    if not overridden.value_by_call:
        del _overridden_options[key]
    _set_option(spark, key[1], overridden.current_value)


def _set_option(spark: SparkSession, name: str, value: str | None) -> None:
    if value is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, value)


def _session_id(spark: SparkSession) -> str:
    """Return an id that is the same for all Python objects of one session."""
    return str(spark._jsparkSession.sessionUUID() if is_classic(spark) else spark.session_id)  # type: ignore[attr-defined]
