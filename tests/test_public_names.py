"""The public names of `neve`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import neve
from neve import errors


def test_every_public_name_is_there_and_in_order():
    assert sorted(neve.__all__) == neve.__all__
    for name in neve.__all__:
        assert getattr(neve, name) is not None


def test_importing_the_package_loads_nothing_heavy():
    """Every Python worker of an executor imports it."""
    code = "import sys, neve; print([m for m in ('pyspark', 'numba', 'pyiceberg', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_tree_of_errors_shows_each_of_them_and_all_are_public():
    listed = [
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    ]
    assert listed and all(issubclass(getattr(errors, name), errors.NeveError) for name in listed)
    for name in listed:
        assert re.search(rf"(^|─ ){name}\b", errors.__doc__, re.MULTILINE), name
        assert getattr(neve, name) is getattr(errors, name)


def test_no_error_is_defined_outside_the_layers_that_catch_it():
    """Every error that the API raises is in `neve.errors`, or a subclass of one."""
    met = {"run": [], "ops": [], "plan": [], "tree": [], "io": []}
    for path in sorted(Path(neve.__file__).parent.rglob("*.py")):
        layer = path.relative_to(Path(neve.__file__).parent).parts[0]
        if layer in met and re.search(
            r"^class \w+\((NeveError|TableError|UserError|CommitError)\):", path.read_text(), re.MULTILINE
        ):
            met[layer].append(path.name)
    assert not any(met.values()), met
