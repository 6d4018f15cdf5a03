"""A lake for each test file, and failed assertions of the helpers that say what they compared."""

import pytest

pytest.register_assert_rewrite("tests.support.compaction_tables")

from tests.support.compaction_tables import Place  # noqa: E402


@pytest.fixture(scope="module")
def place(tmp_path_factory, spark) -> Place:
    return Place(tmp_path_factory.mktemp("compaction"), spark)


@pytest.fixture(autouse=True)
def _nobody_else(request):
    """What others were to do in one test is not left to the next."""
    yield
    if "place" in request.fixturenames:
        request.getfixturevalue("place").interrupt()
