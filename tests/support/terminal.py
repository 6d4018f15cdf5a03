"""A command on a terminal of its own: what it shows while it runs, and keys pressed meanwhile."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Self

# The terminal becomes the one that controls the command: only then does Ctrl-C reach it.
_CHILD = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class Terminal:
    """A command, and everything it has shown."""

    arguments: list[str]
    shown: str = ""
    code: int | None = None
    _master: int = field(init=False)

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        command = [sys.executable, "-c", _CHILD, sys.executable, "-m", "neve.cli", *self.arguments]
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
        self._process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=environment
        )
        os.close(slave)
        return self

    def __exit__(self, *ended: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)

    def until(self, pattern: str, seconds: float = 600) -> str:
        """Wait until something is shown; the limit is for what hangs, not for what is slow."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < end and self._read(), f"{pattern!r} was not shown:\n{self.text}"
        return found[0]

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._master, keys.encode())

    def ended(self, seconds: float = 600) -> int:
        """Wait for the end; the exit code."""
        end = time.monotonic() + seconds
        while self._read() and time.monotonic() < end:
            pass
        return self._process.wait(max(end - time.monotonic(), 1))

    @property
    def text(self) -> str:
        """What was shown, without colours and movements."""
        return _CONTROL.sub("", self.shown)

    def _read(self) -> bool:
        """Take in what is there; whether there may be more."""
        if not select.select([self._master], [], [], 0.5)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux says so when the other side is closed
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)
