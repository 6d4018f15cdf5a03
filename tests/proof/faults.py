"""Work done in a forked process in which one durable step goes wrong: the process is killed, the disk fails, the power
goes.

A durable step is a call that changes what a later process would find: a file or folder created, bytes written, a file
synced, linked or deleted, a transaction committed. Steps are counted from 1, and a fault strikes at one of them. The
process is forked when everything is imported and nothing is open, so that a case costs milliseconds.
"""

from __future__ import annotations

import builtins
import json
import os
import pickle
import select
import signal
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

import neve.io.files

PATIENCE = 60  # seconds; only a process that hangs takes longer
_EVERY = 10  # a Parquet file of a few rows is written in some thirty pieces
_REAL = {name: getattr(os, name) for name in ("open", "close", "fsync", "link", "unlink", "mkdir", "rename", "replace")}


class Kind(StrEnum):
    """What a durable step does."""

    CREATE = "create"
    WRITE = "write"
    CLOSE = "close"
    SYNC = "sync"
    LINK = "link"
    DELETE = "delete"
    FOLDER = "folder"
    COMMIT = "commit"
    COMMITTED = "committed"  # the database has done it; the answer is on its way
    READ = "read"  # changes nothing: counted only for faults that strike at it


DURABLE = frozenset(Kind) - {Kind.READ}
SPACE = frozenset({Kind.CREATE, Kind.WRITE, Kind.LINK, Kind.FOLDER, Kind.COMMIT})  # what needs room on the disk


@dataclass(frozen=True)
class Step:
    """One durable step: what it does to which path."""

    kind: Kind
    path: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.path.rsplit('/', 1)[-1]}".strip()


@dataclass(frozen=True)
class Fault:
    """What goes wrong at step `at`: nothing, a kill, or an error of the disk, once or from then on."""

    at: int = 0
    errno: int | None = None  # an error instead of a kill
    lasting: bool = False  # every later step of the kinds fails too
    kinds: frozenset[Kind] = DURABLE
    torn: bool = True  # a write that is struck has written half


@dataclass(frozen=True)
class Ended:
    """How a forked process ended: acknowledged, with an error, or killed."""

    acknowledged: bool = False
    error: BaseException | None = None
    steps: tuple[Step, ...] = ()
    result: Any = None

    @property
    def was_killed(self) -> bool:
        return not self.acknowledged and self.error is None


def forked(work: Callable[[], Any], fault: Fault | None = None, journal: str | None = None) -> Ended:
    """Do some work in a process of its own, in which a fault strikes; `journal` is where its steps are noted."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _REAL["close"](reader)
        _child(work, fault or Fault(), journal, writer)
    os.close(writer)
    try:
        said = _heard(reader, child)
    finally:
        os.close(reader)
        os.waitpid(child, 0)
    return pickle.loads(said) if said else Ended()


def _heard(reader: int, child: int) -> bytes:
    parts: list[bytes] = []
    while True:
        if not select.select([reader], [], [], PATIENCE)[0]:
            os.kill(child, signal.SIGKILL)
            raise AssertionError("The process hangs.")
        if not (part := os.read(reader, 1 << 16)):
            return b"".join(parts)
        parts.append(part)


def _child(work: Callable[[], Any], fault: Fault, journal: str | None, writer: int) -> None:
    try:
        pa.set_cpu_count(1)
        steps = Steps(fault, journal)
        try:
            with steps:
                result = work()
            ended = Ended(acknowledged=True, steps=tuple(steps.seen), result=result)
        except BaseException as e:
            ended = Ended(error=_plain(e), steps=tuple(steps.seen))
        os.write(writer, pickle.dumps(ended))
    finally:
        os._exit(0)


def _plain(error: BaseException) -> BaseException:
    """The error as it can be sent; one that cannot is told in words."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return Told(type(error), str(error))
    return error


class Told(Exception):
    """An error of another process, by its kind and its words."""

    def __init__(self, kind: type[BaseException], words: str) -> None:
        super().__init__(kind, words)
        self.kind = kind


def kind_of(error: BaseException) -> type[BaseException]:
    return error.kind if isinstance(error, Told) else type(error)


@dataclass
class Steps:
    """Counts the durable steps of this process from when it is entered, and lets a fault strike at one."""

    fault: Fault
    journal: str | None = None
    seen: list[Step] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    paths: dict[int, str] = field(default_factory=dict)  # of open descriptors
    log: int = -1

    def __enter__(self) -> Steps:
        if self.journal:
            self.log = _REAL["open"](self.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._watch_os()
        self._watch_files()
        self._watch_arrow()
        self._watch_sql()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.fault = Fault()

    def take(self, kind: Kind, path: str, half: Callable[[], None] | None = None) -> None:
        """A step is about to be taken: note it, and strike if it is the one."""
        with self.lock:
            self.seen.append(Step(kind, path))
            number, fault = len(self.seen), self.fault
            if kind not in fault.kinds or not (number == fault.at or (fault.lasting and 0 < fault.at < number)):
                return
            if half is not None and fault.torn:
                half()
            if fault.errno is None:
                os.kill(os.getpid(), signal.SIGKILL)
            raise _error(kind, fault.errno or 0, path)

    def note(self, what: str, path: str, *more: Any) -> None:
        """Write a step that was taken to the journal, where it outlives this process."""
        if self.log >= 0:
            os.write(self.log, (json.dumps([what, path, *more]) + "\n").encode())

    # -- the calls that change something -----------------------------------------------------------------------------

    def _watch_os(self) -> None:
        def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
            is_new = bool(flags & os.O_CREAT)
            if is_new:
                self.take(Kind.CREATE, str(path))
            descriptor = _REAL["open"](path, flags, *more, **named)
            self.paths[descriptor] = str(path)
            if is_new:
                self.note("create", str(path))
            return descriptor

        def synced(descriptor: int) -> None:
            path = self.paths.get(descriptor, "")
            self.take(Kind.SYNC, path)
            self.note("sync", path)  # the real call would only cost time: no plug is pulled

        def linked(source: Any, target: Any, **named: Any) -> None:
            self.take(Kind.LINK, str(target))
            _REAL["link"](source, target, **named)
            self.note("link", str(target), str(source))

        def deleted(path: Any, **named: Any) -> None:
            self.take(Kind.DELETE, str(path))
            self._bury(str(path))
            _REAL["unlink"](path, **named)

        def made(path: Any, *more: Any, **named: Any) -> None:
            self.take(Kind.FOLDER, str(path))
            _REAL["mkdir"](path, *more, **named)
            self.note("create", str(path))

        for name, watched in {
            "open": opened,
            "fsync": synced,
            "link": linked,
            "unlink": deleted,
            "remove": deleted,
            "mkdir": made,
        }.items():
            setattr(os, name, watched)

    def _bury(self, path: str) -> None:
        """Keep a file that is deleted: a power cut may bring it back."""
        if self.journal and os.path.exists(path):
            grave = f"{self.journal}.{len(self.seen)}.{threading.get_ident()}"
            _REAL["link"](path, grave)
            self.note("delete", path, grave)

    def _watch_files(self) -> None:
        def opened(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
            stream = builtins.open(file, mode, *more, **named)  # noqa: SIM115
            return stream if "w" not in mode else _Stream(stream, self.paths.get(file, str(file)), self)

        neve.io.files.open = opened  # type: ignore[attr-defined]

    def _watch_arrow(self) -> None:
        create, delete, read = PyArrowFile.create, PyArrowFileIO.delete, PyArrowFile.open

        def created(file: PyArrowFile, overwrite: bool = False) -> Any:
            path = file._path
            self.take(Kind.CREATE, path)
            self._note_folders(os.path.dirname(path))
            stream = create(file, overwrite)
            self.note("create", path)
            return _Stream(stream, path, self)

        def deleted(io: PyArrowFileIO, location: Any) -> None:
            self.take(Kind.DELETE, str(location))
            delete(io, location)

        def opened(file: PyArrowFile, seekable: bool = True) -> Any:
            if Kind.READ in self.fault.kinds:
                self.take(Kind.READ, file._path)
            return read(file, seekable)

        PyArrowFile.open = opened  # type: ignore[method-assign]
        PyArrowFile.create = created  # type: ignore[method-assign]
        PyArrowFileIO.delete = deleted  # type: ignore[method-assign]

    def _note_folders(self, folder: str) -> None:
        """Arrow makes the folders of a file by itself."""
        if not os.path.isdir(folder):
            self._note_folders(os.path.dirname(folder))
            self.note("create", folder)

    def _watch_sql(self) -> None:
        commit = Session.commit

        def committed(session: Session) -> None:
            self.take(Kind.COMMIT, "")
            commit(session)
            self.take(Kind.COMMITTED, "")

        Session.commit = committed  # type: ignore[method-assign]


class _Stream:
    """A file being written; one write of many that follow one another is a step."""

    def __init__(self, stream: Any, path: str, steps: Steps) -> None:
        self._stream, self._path, self._steps = stream, path, steps
        self.closed = False
        self._writes = 0

    def write(self, data: Any) -> int:
        def half() -> None:
            self._stream.write(bytes(data)[: len(bytes(data)) // 2])
            self._stream.flush()

        if self._writes % _EVERY == 0:
            self._steps.take(Kind.WRITE, self._path, half)
        self._writes += 1
        self._steps.note("write", self._path)
        return self._stream.write(data) or len(data)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            try:
                self._steps.take(Kind.CLOSE, self._path)
            finally:
                self._stream.close()

    def tell(self) -> int:
        return int(self._stream.tell())

    def flush(self) -> None:
        self._stream.flush()

    def seekable(self) -> bool:
        return False

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()


def _error(kind: Kind, errno: int, path: str) -> Exception:
    words = os.strerror(errno)
    if kind in (Kind.COMMIT, Kind.COMMITTED):
        return OperationalError("COMMIT", None, sqlite3.OperationalError(words))
    return OSError(errno, words, path)
