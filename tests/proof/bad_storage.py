"""Storage that goes wrong once in a task of Spark, at a file it writes: for the property `py-io-impl` of a lake.

Properties tell what happens (`fault.kind`), when (`fault.when`: `open` or `close`), and which file marks that it has
happened (`fault.mark`), so that it happens to one attempt of one task. The driver's own files are left alone.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyspark import TaskContext

SLEEP = 30  # seconds; whoever sleeps so long is stopped meanwhile
EXECUTOR = b"CoarseGrainedExecutorBackend"


class BadStorage(PyArrowFileIO):
    """PyArrow's storage, in which a file of a task goes wrong."""

    def new_output(self, location: str) -> PyArrowFile:
        made = super().new_output(location)
        return _Bad(made, self.properties) if TaskContext.get() else made  # type: ignore[return-value]


class _Bad(OutputFile):
    def __init__(self, file: OutputFile, properties: dict[str, str]) -> None:
        super().__init__(file.location)
        self.file, self.properties = file, properties

    def __len__(self) -> int:
        return len(self.file)

    def exists(self) -> bool:
        return self.file.exists()

    def to_input_file(self) -> Any:
        return self.file.to_input_file()

    def create(self, overwrite: bool = False) -> Any:
        stream = self.file.create(overwrite)
        if self.properties["fault.when"] == "open":
            go_wrong(self.properties)
        return _BadStream(stream, self.properties)


class _BadStream:
    """A stream that goes wrong after the last byte was written."""

    def __init__(self, stream: Any, properties: dict[str, str]) -> None:
        self._stream, self._properties = stream, properties

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        self._stream.close()
        if self._properties["fault.when"] == "close":
            go_wrong(self._properties)


def go_wrong(properties: dict[str, str]) -> None:
    """Do what the properties say, unless some task has done it before."""
    try:
        os.close(os.open(properties["fault.mark"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    KINDS[properties["fault.kind"]]()


def fail() -> None:
    raise OSError(5, "Input/output error")


def end_worker() -> None:
    os._exit(9)


def kill_executor() -> None:
    """Kill the JVM this worker belongs to."""
    process = os.getppid()
    while EXECUTOR not in Path(f"/proc/{process}/cmdline").read_bytes():
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)
    time.sleep(SLEEP)


def hang() -> None:
    time.sleep(SLEEP)


KINDS = {"fail": fail, "end worker": end_worker, "kill executor": kill_executor, "hang": hang}
