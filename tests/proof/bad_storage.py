"""Storage with one fault in a Spark task that writes a file, for the property `py-io-impl` of a lake.

Properties select the fault (`fault.kind`), when it occurs (`fault.when`: `open` or `close`), and the marker file that
records that it has occurred (`fault.mark`), so that only one attempt of one task fails. Files that the driver writes
are not affected.
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

SLEEP = 30  # seconds; a task that sleeps this long is stopped earlier
EXECUTOR = b"CoarseGrainedExecutorBackend"


class BadStorage(PyArrowFileIO):
    """PyArrow's storage with a fault in a file of a task."""

    def new_output(self, location: str) -> PyArrowFile:
        file = super().new_output(location)
        return _FaultyFile(file, self.properties) if TaskContext.get() else file  # type: ignore[return-value]


class _FaultyFile(OutputFile):
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
            trigger_fault(self.properties)
        return _FaultyStream(stream, self.properties)


class _FaultyStream:
    """A stream with a fault after the last byte is written."""

    def __init__(self, stream: Any, properties: dict[str, str]) -> None:
        self._stream, self._properties = stream, properties

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        self._stream.close()
        if self._properties["fault.when"] == "close":
            trigger_fault(self._properties)


def trigger_fault(properties: dict[str, str]) -> None:
    """Cause the fault of the properties, unless a task has already done so."""
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
