"""What the tests of the commit layer share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from neve.commit.actions import Append
from tests.support.metadata_tables import Kit, plus
from tests.support.tables import another_engine_writes


@pytest.fixture(autouse=True)
def others_write_equality_deletes() -> Iterator[None]:
    """The kit stands in for writers of every kind."""
    with another_engine_writes():
        yield


@pytest.fixture(params=[1, 2, 3], ids=["v1", "v2", "v3"])
def in_avro(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """A table of no files, in each format version whose manifests are Avro files."""
    return Kit.create(tmp_path, request.param)


@pytest.fixture(params=[1, 2, 3, 4], ids=["v1", "v2", "v3", "v4"])
def any_version(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """A table of no files, in each format version."""
    return Kit.create(tmp_path, request.param)


@pytest.fixture(params=[2, 3, 4], ids=["v2", "v3", "v4"])
def with_deletes(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """A table of no files, in each format version that knows delete files."""
    return Kit.create(tmp_path, request.param)


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def with_delete_entries(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """A table of no files, in each format version whose delete files are entries of their own, with counts."""
    return Kit.create(tmp_path, request.param)


@pytest.fixture(params=[(2, 0), (3, 1), (4, 1)], ids=["v2", "v3-evolved", "v4-evolved"])
def grown(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """A table with the files eu1, eu2 and us1 of its first spec; the default spec has changed since, or has not."""
    return _grown(tmp_path, *request.param)


@pytest.fixture(params=[(2, 0), (3, 1)], ids=["v2", "v3-evolved"])
def grown_with_delete_entries(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """The same, in the format versions whose delete files are entries of their own."""
    return _grown(tmp_path, *request.param)


def _grown(folder: Path, version: int, spec: int) -> Kit:
    t = Kit.create(folder, version)
    t.ok(Append(plus(t.data("eu1", "eu2"), t.data("us1", region="us"))))
    if spec:
        t.default_spec(spec)
    return t
