"""What every test may use: one Spark for the whole run, and a directory for a lake."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyspark.sql import SparkSession

import neve
from neve.run.read import parquet
from neve.run.spark.column_exchange import ColumnExchange
from neve.run.spark.session import local_session
from tests.peers import agreement_counts as tally
from tests.peers.jars import NotToBeHad
from tests.peers.spark import Spark, running
from tests.proof.resumable_runs import ResumableRun
from tests.support import servers
from tests.support.coverage import IS_LONG
from tests.support.disk_waits import databases_do_not_wait
from tests.support.duckdb_reader import DuckDB
from tests.support.spark_sessions import ENVIRONMENT, JAVA, PLANS

# Time proves nothing on a busy machine, and the same examples in every run make a failure a finding. `make soak` looks
# for new ones.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

os.environ.update(ENVIRONMENT)
pytest.register_assert_rewrite("tests.support.tables")


def pytest_configure(config: pytest.Config) -> None:
    """PySpark leaves the sockets it collects results through to the garbage collector."""
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
    if IS_LONG and not hasattr(config, "workerinput"):
        config.pluginmanager.register(AtOnce(config))
    if "NEVE_LEDGER" in os.environ:
        config.pluginmanager.register(ResumableRun(Path(os.environ["NEVE_LEDGER"])))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay until the end: the garbage collector need not go through half a million objects again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


class AtOnce:
    """Tells a failure when it happens, and not only at the end of a run of hours."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The test, and all there is to say about it."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What other engines were asked, at the end of the run."""
    tally.write_summary(terminalreporter)


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """No test pulls the plug of this machine; those about power cuts keep a journal of what was synced."""
    with pytest.MonkeyPatch.context() as patched, databases_do_not_wait():
        patched.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def transport_of_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of a local session pass rows on in files; in every other test, chosen by its name, Spark's shuffle does.

    `NEVE_SHUFFLE` chooses for all tests: 1 for the shuffle, 0 for files.
    """
    if int(os.environ.get("NEVE_SHUFFLE") or crc32(request.node.nodeid.encode()) % 2):
        monkeypatch.setattr(ColumnExchange, "passes_files", lambda spark: False)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small local Spark, started by the first test that asks for it."""
    scratch = tmp_path_factory.mktemp("spark")
    options = {
        "spark.driver.memory": "2g",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": JAVA,
        **PLANS,
    }
    session = local_session("local[2]", options)
    yield session
    session.stop()


@pytest.fixture
def lake_dir(tmp_path: Path) -> Path:
    """An empty directory to put a lake in."""
    path = tmp_path / "lake"
    path.mkdir()
    return path


@pytest.fixture
def io() -> FileIO:
    """What reads and writes the files of this machine."""
    return PyArrowFileIO()


@pytest.fixture
def page_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows in each read of single Parquet pages."""
    counts: list[int] = []
    read_pages = parquet.read_pages

    def spy(stream: Any, path: str, columns: Any, chosen: Any, as_dictionaries: Any) -> Any:
        counts.append(len(chosen))
        return read_pages(stream, path, columns, chosen, as_dictionaries)

    monkeypatch.setattr(parquet, "read_pages", spy)
    return counts


@pytest.fixture
def lake(lake_dir: Path) -> neve.Lake:
    """A lake in a directory of its own; no Spark is started for it."""
    return neve.connect(lake_dir)


@pytest.fixture
def spark_lake(lake_dir: Path, spark: SparkSession) -> neve.Lake:
    """The same lake with the Spark of the run."""
    return neve.connect(lake_dir, spark=spark)


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Postgres]:
    """A PostgreSQL of its own for the tests of a file; they skip aloud where none can be started."""
    try:
        context = servers.postgres()
        running = context.__enter__()
    except RuntimeError as e:
        pytest.skip(str(e))
    yield running
    context.__exit__(None, None, None)


@pytest.fixture(scope="session")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake that Spark with Iceberg shares with the tests."""
    return tmp_path_factory.mktemp("peers")


@pytest.fixture(scope="session")
def other_spark(lake_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """Spark with Iceberg; tests that need it are skipped, aloud, where its jars cannot be had."""
    try:
        with running(lake_folder, tmp_path_factory.mktemp("other-spark")) as found:
            yield found
    except NotToBeHad as e:
        pytest.skip(f"Spark with Iceberg was not asked: {e}.")


@pytest.fixture(scope="session")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDB]:
    """DuckDB, in a process that may die."""
    witness = DuckDB(tmp_path_factory.mktemp("duckdb"))
    yield witness
    witness.stop()


@pytest.fixture(scope="session")
def object_store() -> Iterator[servers.ObjectStore]:
    """One object store for the whole run; tests keep to prefixes of their own."""
    with servers.object_store() as running:
        yield running
