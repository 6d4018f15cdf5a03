"""Failed assertions of the harness say what they compared."""

import pytest

pytest.register_assert_rewrite("tests.support.case_checks", "tests.support.run_case", "tests.support.reference_engine")
