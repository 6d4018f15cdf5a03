"""The session: started where the machine has no Java, quiet, and left as it was found."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path

import pytest
from py4j.clientserver import JavaClient
from py4j.protocol import MEMORY_COMMAND_NAME
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

import neve
from neve.errors import UserError
from neve.run.spark.session import FIELD_ID_OPTION, prepare_session, quiet_errors, resolve_session

PROGRAM = """
from neve.run.spark.session import resolve_session
spark = resolve_session()
def double(batches):
    import neve.errors, pyarrow.compute as pc
    for b in batches:
        yield b.set_column(0, "id", pc.multiply(b.column(0), 2))
print(spark.range(3).mapInArrow(double, "id long").toArrow().column(0).to_pylist())
"""


def test_spark_starts_quietly_on_a_machine_without_java(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "ps", "uname", "nice", "sleep", "which", "tr", "cat", "sed"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    environment = {"PATH": str(tools), "HOME": str(tmp_path), "PYTHONPATH": os.getcwd()}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert run.stdout == "[0, 2, 4]\n"
    assert run.stderr == ""


def test_reading_by_field_id_is_turned_on_and_said_aloud(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    other = spark.newSession()
    other.conf.set(FIELD_ID_OPTION, "false")
    with caplog.at_level(logging.INFO, "neve.spark"):
        assert prepare_session(other) == (FIELD_ID_OPTION,)
    assert FIELD_ID_OPTION in caplog.text
    assert other.conf.get(FIELD_ID_OPTION) == "true"
    assert prepare_session(other) == ()


def test_a_given_session_keeps_its_other_options(spark: SparkSession) -> None:
    other = spark.newSession()
    before = other.conf.getAll
    assert resolve_session(other) is other
    after = other.conf.getAll
    assert {k: v for k, v in after.items() if before.get(k) != v} in ({}, {FIELD_ID_OPTION: "true"})


def test_options_for_java_come_beside_those_that_keep_it_quiet() -> None:
    """In a process of its own: whichever test starts Spark first decides the options of a shared session."""
    program = """
from neve.run.spark.session import local_session
spark = local_session("local[1]", {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
print(spark.sparkContext.getConf().get("spark.driver.extraJavaOptions"))
spark.stop()
"""
    root = str(Path(neve.__file__).parents[1])
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": root})
    assert "-Dlog4j2.configurationFile=" in run.stdout and "-XX:TieredStopAtLevel=1" in run.stdout


def test_a_column_of_a_scan_takes_few_messages_to_the_jvm(
    spark: SparkSession, lake_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name, its alias, the name again: PySpark would tell the line of Python behind each as well."""
    sent: list[str] = []
    send = JavaClient.send_command
    monkeypatch.setattr(JavaClient, "send_command", lambda *a, **k: (sent.append(a[1]), send(*a, **k))[1])
    lake = neve.connect(lake_dir, spark=spark)

    def messages(columns: int) -> int:
        table = lake.create_table(f"db.t{columns}", ", ".join(f"c{i} bigint" for i in range(columns)))
        table.append([{"c0": 1}])
        sent.clear()
        table.scan().to_spark()
        # What Python's garbage collector tells the JVM to forget belongs to no call.
        return sum(not line.startswith(MEMORY_COMMAND_NAME) for line in sent)

    messages(1)  # whatever is asked once
    assert (messages(30) - messages(10)) / 20 <= 12


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def heard() -> Iterator[Heard]:
    """What PySpark prints of errors, besides raising them."""
    logger, handler = PySparkLogger.getLogger("SQLQueryContextLogger"), Heard()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_an_error_that_is_told_in_other_words_is_not_printed_as_well(spark: SparkSession, lake_dir: Path, heard: Heard):
    table = neve.connect(lake_dir, spark=spark).create_table("db.t", "id bigint, ts timestamp_ntz")
    with pytest.raises(UserError, match=r"ts > 5: .*DATATYPE_MISMATCH"):
        table.scan("ts > 5").to_arrow("spark")
    assert not heard.records
    with pytest.raises(AnalysisException):
        spark.range(1).where("ts > 5")
    assert heard.records, "those of the user's own calls are"


def test_threads_are_quiet_each_for_itself(heard: Heard):
    logger, first, elsewhere = PySparkLogger.getLogger("SQLQueryContextLogger"), quiet_errors(), copy_context()
    elsewhere.run(first.__enter__)
    with quiet_errors():
        elsewhere.run(first.__exit__, None, None, None)
        logger.error("within")
        elsewhere.run(logger.error, "elsewhere")
    logger.error("after")
    assert [record.getMessage() for record in heard.records] == ["elsewhere", "after"]


_INTERRUPTED_START = """
import psutil
from pyspark import java_gateway
from neve.run.spark.session import local_session

class Interrupted:
    def sleep(self, seconds):
        raise KeyboardInterrupt

java_gateway.time = Interrupted()  # which waits for Java to answer
try:
    local_session("local[1]")
except KeyboardInterrupt:
    _, left = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=20)
    print([process.name() for process in left])
    for process in left:
        process.kill()
"""


def test_an_interrupt_before_java_answers_leaves_no_java_behind():
    ended = subprocess.run([sys.executable, "-c", _INTERRUPTED_START], capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "[]", ended.stderr
