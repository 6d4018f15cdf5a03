"""A Spark Connect server in a process of its own, and a client beside it in another."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from neve.run.spark.java import find_java, launcher_home

_HOME = Path(pyspark.__file__).parent
_CHECKOUT = Path(__file__).parents[2]
_START_SECONDS, _CLIENT_SECONDS = 90, 240


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A server on this machine; its address."""
    port = _free_port()
    options = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": folder / "local",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.ui.enabled": "false",
    }
    said = [part for name, value in options.items() for part in ("--conf", f"{name}={value}")]
    kind = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"]
    command = [str(_HOME / "bin" / "spark-submit"), *kind, *said, "spark-internal"]
    with (folder / "server.log").open("w") as log:
        running = subprocess.Popen(command, env=_environment(), cwd=folder, stdout=log, stderr=log)
        try:
            _wait_for(port, running, folder / "server.log")
            yield f"sc://127.0.0.1:{port}"
        finally:
            running.terminate()
            running.wait(30)


def client(module: str, *arguments: str) -> dict[str, Any]:
    """What a module answers that is run as a client of its own; it prints JSON in its last line."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, env=_environment(), cwd=_CHECKOUT, capture_output=True, text=True, timeout=_CLIENT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def _environment() -> dict[str, str]:
    said = {
        "JAVA_HOME": str(launcher_home(find_java())),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(_CHECKOUT),
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return {**os.environ, **said}


def _wait_for(port: int, running: subprocess.Popen[bytes], log: Path) -> None:
    started = time.monotonic()
    while time.monotonic() - started < _START_SECONDS:
        assert running.poll() is None, log.read_text()[-3000:]
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-3000:])


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
