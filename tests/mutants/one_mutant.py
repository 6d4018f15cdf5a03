"""Run tests on one mutant, in a process of its own that has not imported the sources yet."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType

from tests.mutants.covering_tests import ROOT
from tests.mutants.mutation_operators import Mutant

_OWN = ("neve", "tests", "conftest", "__m")


def preload_libraries() -> None:
    """Import the libraries of the sources and tests, but not these: each process on a mutant then starts with them."""
    for name in _imported_names():
        with suppress(ImportError):
            importlib.import_module(name)


def _imported_names() -> list[str]:
    """Return what the tests import, found out in a process of its own."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        for name in ("tests.conftest", "neve.ops.maintenance.maintain", "neve.table", "tests.support.metadata_tables"):
            importlib.import_module(name)
        with os.fdopen(writing, "w") as names:
            names.write("\n".join(name for name in sys.modules if not name.startswith(_OWN)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as names:
        found = names.read().split()
    os.wait()
    return found


class _MutantLoader(Loader, MetaPathFinder):
    """Imports the mutant instead of the module."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._path = ROOT / mutant.path
        self._source = mutant.apply(self._path.read_bytes())

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        """Answer for the one module."""
        if fullname != self._name:
            return None
        return spec_from_loader(fullname, self, origin=str(self._path), is_package=self._path.name == "__init__.py")

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed source as the module."""
        module.__file__ = str(self._path)
        exec(compile(self._source, str(self._path), "exec"), module.__dict__)


def run_tests_on(mutant: Mutant, tests: list[str], scratch: Path) -> int:
    """Run tests on a mutant until one fails; returns 0 if all pass."""
    loaded = [name for name in sys.modules if name == "neve" or name.startswith("neve.")]
    assert not loaded, f"the sources are imported already: {loaded[0]}"
    sys.meta_path.insert(0, _MutantLoader(mutant))
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silent, stream)
    import pytest

    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={scratch}", "--rootdir", str(ROOT)]
    return int(pytest.main([*options, *tests]))
