"""The content of a disk after a power cut: only synced changes are sure to survive.

The input is a journal of the steps of a process. A name is durable once its folder was synced after the name was
created; the bytes of a file are durable once the file was synced after they were written. Other changes are lost, all
of them or a random part: names vanish, files are empty, deleted files are back. The database syncs its own commits.
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
    """The content of a file, independent of its names."""

    is_durable: bool = False


@dataclass
class Disk:
    """Durable and other changes, step by step."""

    names: dict[str, bool] = field(default_factory=dict)  # created by the process; whether each is durable
    contents: dict[str, Bytes] = field(default_factory=dict)
    deleted: dict[str, str] = field(default_factory=dict)  # deletions that are not durable, and the copy of each file

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
        self.contents.setdefault(path, Bytes()).is_durable = False

    def sync(self, path: str) -> None:
        self.contents.setdefault(path, Bytes()).is_durable = True
        for name in self.names:
            if os.path.dirname(name) == path.rstrip("/"):
                self.names[name] = True
        self.deleted = {gone: backup for gone, backup in self.deleted.items() if os.path.dirname(gone) != path}

    def delete(self, path: str, backup: str) -> None:
        self.names.pop(path, None)
        self.deleted[path] = backup

    def cut(self, is_lost: Callable[[], bool] = lambda: True) -> int:
        """Undo changes that are not durable; return how many were lost."""
        lost = 0
        for path in sorted(self.names):  # a folder before what is in it
            if os.path.lexists(path) and not self.names[path] and is_lost():
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
                lost += 1
            elif os.path.isfile(path) and not self.contents[path].is_durable and is_lost():
                os.truncate(path, 0)
                lost += 1
        for path, backup in self.deleted.items():
            if not os.path.exists(path) and os.path.isdir(os.path.dirname(path)) and is_lost():
                os.link(backup, path)
        return lost


def delete_journal(journal: Path) -> None:
    """Delete a journal and the files that it kept."""
    for path in journal.parent.glob(f"{journal.name}*"):
        path.unlink()
