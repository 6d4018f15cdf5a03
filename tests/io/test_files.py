"""Files: read within limits, created once and durably, deleted carefully, listed; on disk and on an object store."""

from __future__ import annotations

import errno
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from neve.errors import CorruptFile, LimitExceeded, MissingFile, TableError, UnsupportedFeature
from neve.io import files
from neve.io.files import delete_files, file_size, read_file, read_many_ranges, read_range, write_new_file
from neve.io.listing import list_files
from neve.io.storage_paths import input_file
from tests.support.servers import ObjectStore

FILE_IOS = {"pyarrow": PyArrowFileIO, "fsspec": FsspecFileIO}


def file_exists(io: FileIO, path: str) -> bool:
    return input_file(io, path).exists()


@dataclass(frozen=True)
class Store:
    """A place for files, and the FileIO that reaches it."""

    io: FileIO
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"


@pytest.fixture(params=["pyarrow-plain", "pyarrow-uri", "fsspec-uri", "pyarrow-s3", "fsspec-s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    kind, place = request.param.split("-")
    if place == "s3":
        folder = f"{kind}-{tmp_path.name}"
        return Store(FILE_IOS[kind](request.getfixturevalue("object_store").properties), f"s3://lake/{folder}")
    return Store(FILE_IOS[kind]({}), str(tmp_path / "t") if place == "plain" else f"file://{tmp_path}/t")


def test_what_is_written_is_read(store: Store) -> None:
    path = store.path("metadata/deep/er/x.bin")
    assert not file_exists(store.io, path)
    write_new_file(store.io, path, b"0123456789")
    assert file_exists(store.io, path)
    assert file_size(store.io, path) == 10
    assert read_file(store.io, path) == b"0123456789"
    assert read_range(store.io, path, 3, 4) == b"3456"
    assert read_many_ranges(store.io, path, [(8, 2), (0, 1), (8, 2), (5, 0)]) == [b"89", b"0", b"89", b""]


def test_names_that_look_like_parts_of_a_uri_stay_whole(store: Store) -> None:
    names = ["a", "a#b", "a?b=c", "a b%20", "é"]
    for name in names:
        write_new_file(store.io, store.path(name), name.encode())
    assert sorted(list_files(store.io, store.root)["path"].to_pylist()) == sorted(map(store.path, names))
    assert [read_file(store.io, store.path(name)).decode() for name in names] == names
    assert delete_files(store.io, map(store.path, names[1:])) == {}
    assert list_files(store.io, store.root)["path"].to_pylist() == [store.path("a")]


def test_a_name_is_no_pattern(store: Store) -> None:
    names = ["part-0", "part-1", "part-*", "part-[01]"]
    for name in names:
        write_new_file(store.io, store.path(name), b"x")
    assert delete_files(store.io, map(store.path, names[2:])) == {}
    assert sorted(list_files(store.io, store.root)["path"].to_pylist()) == [store.path("part-0"), store.path("part-1")]


@pytest.mark.parametrize("kind", FILE_IOS)
def test_markers_of_folders_are_not_listed(object_store: ObjectStore, kind: str) -> None:
    for key in (f"marked-{kind}/data/", f"marked-{kind}/data/a"):
        object_store.client.put_object(Bucket="lake", Key=key, Body=b"")
    io = FILE_IOS[kind](object_store.properties)
    assert list_files(io, f"s3://lake/marked-{kind}")["path"].to_pylist() == [f"s3://lake/marked-{kind}/data/a"]


def test_names_that_are_no_text_are_not_listed(tmp_path: Path) -> None:
    with suppress(OSError):  # some file systems refuse them
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd-\xff")).write_bytes(b"")
    (tmp_path / "plain").write_bytes(b"")
    assert list_files(PyArrowFileIO(), str(tmp_path))["path"].to_pylist() == [f"{tmp_path}/plain"]


def test_an_existing_file_is_never_overwritten(store: Store) -> None:
    path = store.path("x")
    write_new_file(store.io, path, b"first")
    with pytest.raises(TableError, match="there is a file already") as refused:
        write_new_file(store.io, path, b"second")
    assert path in str(refused.value)
    assert read_file(store.io, path) == b"first"
    assert list_files(store.io, store.root)["path"].to_pylist() == [path]


def test_a_missing_file_is_named(store: Store) -> None:
    path = store.path("gone")
    for reading in (read_file, file_size, lambda io, p: read_range(io, p, 0, 1)):
        with pytest.raises(MissingFile, match=r"Missing file .*/gone"):
            reading(store.io, path)


def test_a_file_over_the_limit_is_not_read(store: Store) -> None:
    path = store.path("x")
    write_new_file(store.io, path, b"0123456789")
    assert read_file(store.io, path, limit=10) == b"0123456789"
    with pytest.raises(LimitExceeded, match=r"/x \(10 bytes to read\) is over 9"):
        read_file(store.io, path, limit=9)
    with pytest.raises(LimitExceeded):
        read_range(store.io, path, 0, 10, limit=9)


def test_a_range_beyond_the_file_is_refused(store: Store) -> None:
    path = store.path("x")
    write_new_file(store.io, path, b"0123456789")
    for offset, length in ((8, 3), (11, 0), (-1, 2), (0, -1), (2**60, 1)):
        with pytest.raises(CorruptFile, match="a file of 10 bytes"):
            read_range(store.io, path, offset, length)


def test_deleting_reports_what_failed_and_forgives_what_is_gone(store: Store) -> None:
    paths = [store.path(f"f{i}") for i in range(6)]
    for path in paths:
        write_new_file(store.io, path, b"x")
    assert delete_files(store.io, [*paths, *paths, store.path("never-was")], roots=[store.root]) == {}
    assert list_files(store.io, store.root).num_rows == 0


def test_a_path_outside_the_roots_stops_the_whole_deletion(store: Store) -> None:
    for name in ("t/x", "canary"):
        write_new_file(store.io, store.path(name), b"x")
    for outside in (store.path("canary"), store.path("t/../canary")):
        with pytest.raises(TableError, match="cannot delete a path outside the table"):
            delete_files(store.io, [store.path("t/x"), outside], roots=[store.path("t")])
    assert file_exists(store.io, store.path("t/x"))
    assert file_exists(store.io, store.path("canary"))


def test_a_listing_tells_path_size_and_age(store: Store) -> None:
    before = time.time() * 1_000 - 2_000
    write_new_file(store.io, store.path("t/a"), b"1")
    write_new_file(store.io, store.path("t/b/c/d"), b"22")
    write_new_file(store.io, store.path("t2/x"), b"333")
    for prefix in (store.path("t"), store.path("t/")):
        found = list_files(store.io, prefix).sort_by("path")
        assert found["path"].to_pylist() == [store.path("t/a"), store.path("t/b/c/d")]
        assert found["size"].to_pylist() == [1, 2]
        assert all(before < modified < before + 60_000 for modified in found["modified_ms"].to_pylist())
    write_new_file(store.io, store.path("t/late"), b"")
    assert list_files(store.io, store.path("t")).num_rows == 3


def test_a_listing_of_nothing_is_empty(store: Store) -> None:
    found = list_files(store.io, store.path("nowhere"))
    assert found.schema.names == ["path", "size", "modified_ms"]
    assert found.num_rows == 0


def test_of_many_writers_of_one_name_exactly_one_succeeds(io: FileIO, tmp_path: Path) -> None:
    path, start, won = str(tmp_path / "x"), threading.Barrier(8), []

    def attempt(writer: int) -> None:
        start.wait()
        try:
            write_new_file(io, path, b"%d" % writer * 100_000)
        except TableError:
            return
        won.append(writer)

    threads = [threading.Thread(target=attempt, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert read_file(io, path) == b"%d" % won[0] * 100_000
    assert os.listdir(tmp_path) == ["x"]


class Disk:
    """The operating system's calls, recorded, with one that fails."""

    def __init__(self, fail_at: int, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.fail_at = fail_at
        for name in ("open", "fsync", "link", "mkdir"):
            patch.setattr(files.os, name, self._failing(name, getattr(os, name)))

    def _failing(self, name: str, real: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.calls.append(name)
            if len(self.calls) == self.fail_at:
                raise OSError(errno.EIO, "Input/output error")
            return real(*args, **options)

        return call


def test_a_file_and_each_new_folder_reach_the_disk(io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        disk = Disk(0, patch)
        write_new_file(io, str(tmp_path / "a/b/x"), b"data")
    folder = ["mkdir", "open", "fsync"]
    assert disk.calls == [*folder, *folder, "open", "fsync", "link", "open", "fsync"]


def test_a_failure_at_any_step_leaves_no_file_and_names_it(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 12):
        path = tmp_path / f"s{step}" / "b" / "x"
        with monkeypatch.context() as patch:
            Disk(step, patch)
            with pytest.raises(TableError, match=rf"Cannot create .*/s{step}/b/x"):
                write_new_file(io, str(path), b"data")
        assert [p for p in path.parent.parent.rglob("*") if p.is_file()] == []
        write_new_file(io, str(path), b"data")
        assert path.read_bytes() == b"data"


def test_a_full_disk_leaves_no_part_of_a_file(io: FileIO, tmp_path: Path) -> None:
    import resource
    import signal

    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, old[1]))
    try:
        with pytest.raises(TableError, match="Cannot create"):
            write_new_file(io, str(tmp_path / "x"), bytes(200_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, ignored)
    assert os.listdir(tmp_path) == []


def test_a_disk_without_links_still_never_overwrites(
    io: FileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(files.os, "link", refuse)
    write_new_file(io, str(tmp_path / "x"), b"first")
    with pytest.raises(TableError, match="there is a file already"):
        write_new_file(io, str(tmp_path / "x"), b"second")
    assert (tmp_path / "x").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["x"]


def test_nothing_is_deleted_or_listed_through_a_symbolic_link(io: FileIO, tmp_path: Path) -> None:
    canary = tmp_path / "elsewhere" / "canary"
    canary.parent.mkdir()
    canary.write_bytes(b"alive")
    table = tmp_path / "t"
    table.mkdir()
    (table / "link").symlink_to(canary.parent)
    (table / "alias").symlink_to(canary)
    failed = delete_files(io, [f"{table}/link/canary"], roots=[str(table)])
    assert failed == {f"{table}/link/canary": "it is reached through a symbolic link that leads out of the table"}
    assert canary.read_bytes() == b"alive"
    assert list_files(io, str(table)).num_rows == 0
    assert delete_files(io, [f"{table}/alias"], roots=[str(table)]) == {}  # the link goes, what it points at stays
    assert canary.read_bytes() == b"alive"


def test_a_table_that_is_reached_by_a_link_is_still_the_table(io: FileIO, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "t").symlink_to(tmp_path / "real")
    write_new_file(io, f"{tmp_path}/t/x", b"x")
    assert delete_files(io, [f"{tmp_path}/t/x"], roots=[f"{tmp_path}/t"]) == {}
    assert os.listdir(tmp_path / "real") == []


def test_a_folder_is_a_failure_and_the_rest_goes(io: FileIO, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    write_new_file(io, str(tmp_path / "x"), b"x")
    failed = delete_files(io, [str(tmp_path / "folder"), str(tmp_path / "x")])
    assert list(failed) == [str(tmp_path / "folder")]
    assert os.listdir(tmp_path) == ["folder"]


def test_a_file_is_read_as_such(io: FileIO, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="Cannot read"):
        read_file(io, str(tmp_path))


def test_near_ranges_are_read_together_and_far_ones_apart() -> None:
    near, far = [(4, 10), (20, 5), (14, 6)], (1 << 30, 7)
    assert list(files._group_nearby_ranges([*near, far])) == [sorted(near), [far]]


class OtherIO(FileIO):
    """A FileIO of somebody else: whatever is asked of it is in its own memory."""

    def __init__(self, fail: bool = False) -> None:
        super().__init__({})
        self.inner = FsspecFileIO({})
        self.inner._scheme_to_fs["memory"] = lambda _: __import__("fsspec").filesystem("memory")
        self.fail = fail

    def new_input(self, location: str) -> Any:
        return self.inner.new_input(location)

    def new_output(self, location: str) -> Any:
        output = self.inner.new_output(location)
        return BrokenOutput(output) if self.fail else output

    def delete(self, location: Any) -> None:
        self.inner.delete(location)


@dataclass
class BrokenOutput:
    """Creates a file and then cannot write to it."""

    output: Any

    def create(self, overwrite: bool = False) -> Any:
        stream = self.output.create(overwrite)

        def write(_: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        stream.write = write
        return stream


def test_another_file_io_is_asked_for_everything() -> None:
    io, path = OtherIO(), "memory://other/x"
    write_new_file(io, path, b"0123")
    assert read_range(io, path, 1, 2) == b"12"
    with pytest.raises(TableError, match="there is a file already"):
        write_new_file(io, path, b"")
    with pytest.raises(UnsupportedFeature, match="Cannot list memory://other through OtherIO"):
        list_files(io, "memory://other")
    assert delete_files(io, [path], roots=["memory://other"]) == {}
    assert not file_exists(io, path)


def test_a_failed_write_through_another_file_io_is_cleaned_up() -> None:
    path = "memory://other/broken"
    with pytest.raises(TableError, match="No space left"):
        write_new_file(OtherIO(fail=True), path, b"0123")
    assert not file_exists(OtherIO(), path)
