"""The grounds that cases are played on: one lake a version, made once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proof.operations import Ground


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Ground]:
    """A lake with a table that has lived, of a version."""
    made: dict[int, Ground] = {}

    def of(version: int) -> Ground:
        if version not in made:
            made[version] = Ground(tmp_path_factory.mktemp(f"v{version}") / "lake", version)
        return made[version]

    return of
