"""A lake of one test, or of one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")
