"""A stage for the cases of a test file, and failed assertions of the harness that say what they compared."""

import pytest

pytest.register_assert_rewrite("tests.support.case_checks", "tests.support.run_case", "tests.support.reference_engine")

from tests.support.dml_tables import Stage  # noqa: E402


@pytest.fixture(scope="module")
def stage(tmp_path_factory, spark) -> Stage:
    return Stage(tmp_path_factory.mktemp("dml"), spark.newSession())  # for its views
