"""What `import neve` offers."""

from __future__ import annotations

import subprocess
import sys

import neve


def test_every_public_name_is_there_and_in_order():
    assert sorted(neve.__all__) == neve.__all__
    for name in neve.__all__:
        assert getattr(neve, name) is not None


def test_importing_the_package_loads_nothing_heavy():
    """Every Python worker of an executor imports it."""
    code = "import sys, neve; print([m for m in ('pyspark', 'numba', 'pyiceberg', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
