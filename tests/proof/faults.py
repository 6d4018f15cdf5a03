"""Run a function in a forked process with a fault at one durable step: a kill, a disk error or a power cut.

A durable step is a call that changes what a later process finds: it creates a file or folder, writes bytes, syncs,
links or deletes a file, or commits a transaction. Steps are counted from 1, and the fault occurs at one of them. The
process is forked after all imports and before anything is opened, so that a case takes milliseconds.
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

TIMEOUT = 60  # seconds; only a process that hangs takes longer
_EVERY = 10  # a Parquet file of a few rows is written in some thirty pieces
_REAL = {name: getattr(os, name) for name in ("open", "close", "fsync", "link", "unlink", "mkdir", "rename", "replace")}


class Kind(StrEnum):
    """The kinds of durable steps."""

    CREATE = "create"
    WRITE = "write"
    CLOSE = "close"
    SYNC = "sync"
    LINK = "link"
    DELETE = "delete"
    FOLDER = "folder"
    COMMIT = "commit"
    COMMITTED = "committed"  # the database has committed; the caller has no answer yet
    READ = "read"  # changes nothing: counted only for faults that occur at reads


DURABLE = frozenset(Kind) - {Kind.READ}
SPACE = frozenset({Kind.CREATE, Kind.WRITE, Kind.LINK, Kind.FOLDER, Kind.COMMIT})  # kinds that need disk space


@dataclass(frozen=True)
class Step:
    """One durable step: what it does to which path."""

    kind: Kind
    path: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.path.rsplit('/', 1)[-1]}".strip()


@dataclass(frozen=True)
class Fault:
    """The fault at step `at`: none, a kill, or a disk error, once or permanently."""

    at: int = 0
    errno: int | None = None  # an error instead of a kill
    lasting: bool = False  # every later step of the kinds fails too
    kinds: frozenset[Kind] = DURABLE
    torn: bool = True  # a write with the fault has written half of its bytes


@dataclass(frozen=True)
class ProcessResult:
    """The end of a forked process: acknowledged, with an error, or killed."""

    acknowledged: bool = False
    error: BaseException | None = None
    steps: tuple[Step, ...] = ()
    result: Any = None

    @property
    def was_killed(self) -> bool:
        return not self.acknowledged and self.error is None


def run_forked(work: Callable[[], Any], fault: Fault | None = None, journal: str | None = None) -> ProcessResult:
    """Run a function in a forked process with a fault; `journal` is the file that records its steps."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _REAL["close"](reader)
        _child(work, fault or Fault(), journal, writer)
    os.close(writer)
    try:
        pickled = _read_result(reader, child)
    finally:
        os.close(reader)
        os.waitpid(child, 0)
    return pickle.loads(pickled) if pickled else ProcessResult()


def _read_result(reader: int, child: int) -> bytes:
    parts: list[bytes] = []
    while True:
        if not select.select([reader], [], [], TIMEOUT)[0]:
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
            outcome = ProcessResult(acknowledged=True, steps=tuple(steps.taken), result=result)
        except BaseException as e:
            outcome = ProcessResult(error=_picklable(e), steps=tuple(steps.taken))
        os.write(writer, pickle.dumps(outcome))
    finally:
        os._exit(0)


def _picklable(error: BaseException) -> BaseException:
    """Return the error, or its type and message if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return UnpicklableError(type(error), str(error))
    return error


class UnpicklableError(Exception):
    """An error of another process that cannot be pickled: its type and message."""

    def __init__(self, kind: type[BaseException], words: str) -> None:
        super().__init__(kind, words)
        self.kind = kind


def kind_of(error: BaseException) -> type[BaseException]:
    return error.kind if isinstance(error, UnpicklableError) else type(error)


@dataclass
class Steps:
    """Counts the durable steps of this process while it is entered, and causes a fault at one of them."""

    fault: Fault
    journal: str | None = None
    taken: list[Step] = field(default_factory=list)
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
        """Record a step before it happens, and cause the fault if it is due."""
        with self.lock:
            self.taken.append(Step(kind, path))
            number, fault = len(self.taken), self.fault
            if kind not in fault.kinds or not (number == fault.at or (fault.lasting and 0 < fault.at < number)):
                return
            if half is not None and fault.torn:
                half()
            if fault.errno is None:
                os.kill(os.getpid(), signal.SIGKILL)
            raise _error(kind, fault.errno or 0, path)

    def note(self, what: str, path: str, *more: Any) -> None:
        """Append a completed step to the journal, which survives this process."""
        if self.log >= 0:
            os.write(self.log, (json.dumps([what, path, *more]) + "\n").encode())

    # -- the calls that change something -----------------------------------------------------------------------------

    def _watch_os(self) -> None:
        def watched_open(path: Any, flags: int, *more: Any, **named: Any) -> int:
            is_new = bool(flags & os.O_CREAT)
            if is_new:
                self.take(Kind.CREATE, str(path))
            descriptor = _REAL["open"](path, flags, *more, **named)
            self.paths[descriptor] = str(path)
            if is_new:
                self.note("create", str(path))
            return descriptor

        def watched_fsync(descriptor: int) -> None:
            path = self.paths.get(descriptor, "")
            self.take(Kind.SYNC, path)
            self.note("sync", path)  # the real call would only cost time: the power is not really cut

        def watched_link(source: Any, target: Any, **named: Any) -> None:
            self.take(Kind.LINK, str(target))
            _REAL["link"](source, target, **named)
            self.note("link", str(target), str(source))

        def watched_delete(path: Any, **named: Any) -> None:
            self.take(Kind.DELETE, str(path))
            self._keep_deleted_file(str(path))
            _REAL["unlink"](path, **named)

        def watched_mkdir(path: Any, *more: Any, **named: Any) -> None:
            self.take(Kind.FOLDER, str(path))
            _REAL["mkdir"](path, *more, **named)
            self.note("create", str(path))

        for name, watched in {
            "open": watched_open,
            "fsync": watched_fsync,
            "link": watched_link,
            "unlink": watched_delete,
            "remove": watched_delete,
            "mkdir": watched_mkdir,
        }.items():
            setattr(os, name, watched)

    def _keep_deleted_file(self, path: str) -> None:
        """Keep a copy of a deleted file: a power cut may restore it."""
        if self.journal and os.path.exists(path):
            backup = f"{self.journal}.{len(self.taken)}.{threading.get_ident()}"
            _REAL["link"](path, backup)
            self.note("delete", path, backup)

    def _watch_files(self) -> None:
        def watched_open(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
            stream = builtins.open(file, mode, *more, **named)  # noqa: SIM115
            return stream if "w" not in mode else _Stream(stream, self.paths.get(file, str(file)), self)

        neve.io.files.open = watched_open  # type: ignore[attr-defined]

    def _watch_arrow(self) -> None:
        create, delete, read = PyArrowFile.create, PyArrowFileIO.delete, PyArrowFile.open

        def watched_create(file: PyArrowFile, overwrite: bool = False) -> Any:
            path = file._path
            self.take(Kind.CREATE, path)
            self._note_folders(os.path.dirname(path))
            stream = create(file, overwrite)
            self.note("create", path)
            return _Stream(stream, path, self)

        def watched_delete(io: PyArrowFileIO, location: Any) -> None:
            self.take(Kind.DELETE, str(location))
            delete(io, location)

        def watched_open(file: PyArrowFile, seekable: bool = True) -> Any:
            if Kind.READ in self.fault.kinds:
                self.take(Kind.READ, file._path)
            return read(file, seekable)

        PyArrowFile.open = watched_open  # type: ignore[method-assign]
        PyArrowFile.create = watched_create  # type: ignore[method-assign]
        PyArrowFileIO.delete = watched_delete  # type: ignore[method-assign]

    def _note_folders(self, folder: str) -> None:
        """Record the folders that Arrow creates for a file."""
        if not os.path.isdir(folder):
            self._note_folders(os.path.dirname(folder))
            self.note("create", folder)

    def _watch_sql(self) -> None:
        commit = Session.commit

        def watched_commit(session: Session) -> None:
            self.take(Kind.COMMIT, "")
            commit(session)
            self.take(Kind.COMMITTED, "")

        Session.commit = watched_commit  # type: ignore[method-assign]


class _Stream:
    """A file being written; one of every `_EVERY` writes is a step."""

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
