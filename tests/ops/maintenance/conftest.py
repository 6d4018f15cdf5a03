"""A lake for each test file."""

import pytest

from tests.support.compaction_tables import Place


@pytest.fixture(scope="module")
def place(tmp_path_factory, spark) -> Place:
    return Place(tmp_path_factory.mktemp("compaction"), spark)


@pytest.fixture(autouse=True)
def _nobody_else(request):
    """What others were to do in one test is not left to the next."""
    yield
    if "place" in request.fixturenames:
        request.getfixturevalue("place").interrupt()
