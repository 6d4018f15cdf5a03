"""The table that sources read from and write to."""

import pytest

import neve


@pytest.fixture
def table(request: pytest.FixtureRequest, lake: neve.Lake) -> neve.Table:
    """A table without rows, of version 2 unless the test asks for another one."""
    version = getattr(request, "param", 2)
    return lake.create_table("db.t", "id bigint, region string", ["region"], format_version=version)
