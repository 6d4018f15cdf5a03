"""Failed assertions of the harness say what they compared."""

import pytest

pytest.register_assert_rewrite("tests.dml.checks", "tests.dml.play", "tests.dml.witness")
