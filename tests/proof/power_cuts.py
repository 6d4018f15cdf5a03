"""What a disk holds after the power was cut: only what was synced is sure to be there.

A journal of the steps a process took is read afterwards. A name is sure once the folder it is in was synced after it
was made; the bytes of a file are, once the file was synced after they were written. What is not sure is lost, all of it
or as chance has it: names vanish, files are empty, deleted files are back. The database syncs what it commits itself.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Bytes:
    """The content of a file, whatever its names."""

    is_sure: bool = False


@dataclass
class Disk:
    """What is sure and what is not, step by step."""

    names: dict[str, bool] = field(default_factory=dict)  # made by the process; whether each is sure
    contents: dict[str, Bytes] = field(default_factory=dict)
    deleted: dict[str, str] = field(default_factory=dict)  # not sure to be gone, and where it is kept

    @classmethod
    def of(cls, journal: Path) -> Disk:
        disk = cls()
        for line in journal.read_text().splitlines() if journal.exists() else ():
            what, path, *more = json.loads(line)
            getattr(disk, what)(path, *more)
        return disk

    def create(self, path: str) -> None:
        self.names[path], self.contents[path] = False, Bytes()

    def link(self, path: str, source: str) -> None:
        self.names[path], self.contents[path] = False, self.contents.get(source, Bytes(True))

    def write(self, path: str) -> None:
        self.contents.setdefault(path, Bytes()).is_sure = False

    def sync(self, path: str) -> None:
        self.contents.setdefault(path, Bytes()).is_sure = True
        for name in self.names:
            if os.path.dirname(name) == path.rstrip("/"):
                self.names[name] = True
        self.deleted = {gone: grave for gone, grave in self.deleted.items() if os.path.dirname(gone) != path}

    def delete(self, path: str, grave: str) -> None:
        self.names.pop(path, None)
        self.deleted[path] = grave

    def cut(self, is_lost: Callable[[], bool] = lambda: True) -> int:
        """Lose what is not sure; how much was lost."""
        lost = 0
        for path in sorted(self.names):  # a folder before what is in it
            if os.path.lexists(path) and not self.names[path] and is_lost():
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
                lost += 1
            elif os.path.isfile(path) and not self.contents[path].is_sure and is_lost():
                os.truncate(path, 0)
                lost += 1
        for path, grave in self.deleted.items():
            if not os.path.exists(path) and os.path.isdir(os.path.dirname(path)) and is_lost():
                os.link(grave, path)
        return lost


def without_graves(journal: Path) -> None:
    """Remove a journal and what it kept."""
    for path in journal.parent.glob(f"{journal.name}*"):
        path.unlink()
