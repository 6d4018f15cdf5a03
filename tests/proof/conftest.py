"""The lakes that the cases run on: one per format version, created once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.proof.operations import RestorableLake


@pytest.fixture(scope="session")
def restorable_lake(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], RestorableLake]:
    """Return the lake with an evolved table of a format version."""
    lakes: dict[int, RestorableLake] = {}

    def of(version: int) -> RestorableLake:
        if version not in lakes:
            lakes[version] = RestorableLake(tmp_path_factory.mktemp(f"v{version}") / "lake", version)
        return lakes[version]

    return of


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """Do not sync files: no machine loses its power here. What a power cut takes away is taken from a journal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
