"""Which test runs which line: a pytest plugin that records it, and the choice of tests for a line.

Run pytest with `-p tests.mutants.covering_tests` and `NEVE_COVERING=<folder>`. Each process of the run writes one file
there with a line of JSON per test: its name, its seconds, whether it uses Spark, and the lines it has run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).parents[2]
MUTATED = (
    *("neve/commit", "neve/plan", "neve/tree", "neve/ops/maintenance"),
    *("neve/io/deletion_vectors.py", "neve/io/puffin.py"),
)


def mutated_modules(root: Path = ROOT) -> list[Path]:
    """Return the modules that are changed: those that decide what a commit keeps, deletes and reads."""
    places = [root / name for name in MUTATED]
    return sorted(file for place in places for file in ([place] if place.is_file() else place.rglob("*.py")))


class CoveringTests:
    """Pytest plugin that measures each test on its own."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._measured = coverage.Coverage(data_file=None, include=[str(f) for f in mutated_modules()])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure one test with its fixtures."""
        self._measured.erase()
        started = time.perf_counter()
        self._measured.start()
        try:
            return (yield)
        finally:
            self._measured.stop()
            data = self._measured.get_data()
            lines = {str(Path(f).relative_to(ROOT)): sorted(data.lines(f) or []) for f in data.measured_files()}
            uses_spark = any("spark" in name for name in getattr(item, "fixturenames", ()))
            record = {"test": item.nodeid, "seconds": round(time.perf_counter() - started, 3), "spark": uses_spark}
            with self._target.open("a") as file:
                file.write(json.dumps({**record, "lines": {f: found for f, found in lines.items() if found}}) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Record in each process that runs tests."""
    worker = getattr(config, "workerinput", {}).get("workerid")
    if worker is None and config.getoption("numprocesses", None):
        return
    folder = Path(os.environ["NEVE_COVERING"])
    folder.mkdir(parents=True, exist_ok=True)
    config.pluginmanager.register(CoveringTests(folder / f"covering-{worker or 'main'}.jsonl"))


@dataclass(frozen=True, order=True)
class CoveringTest:
    """A test that runs some line."""

    uses_spark: bool
    seconds: float
    name: str = field(compare=False)


def read_covering_tests(folder: Path) -> dict[tuple[str, int], list[CoveringTest]]:
    """Return the tests of each line, the cheapest first; those that need Spark come last."""
    tests: dict[tuple[str, int], dict[str, CoveringTest]] = {}
    for file in folder.glob("covering-*.jsonl"):
        for text in file.read_text().splitlines():
            record: dict[str, Any] = json.loads(text)
            test = CoveringTest(record["spark"], record["seconds"], record["test"])
            for path, lines in record["lines"].items():
                for line in lines:
                    tests.setdefault((path, line), {})[test.name] = test
    return {place: sorted(found.values()) for place, found in tests.items()}


def choose_tests(tests: list[CoveringTest], module: str, seconds: float, count: int) -> list[str]:
    """Return the tests to run for a line: first those of the module's own folder, within a limit of time and number."""
    own = f"tests/{'/'.join(module.split('/')[1:-1])}/"
    ordered = sorted(tests, key=lambda test: (test.uses_spark, not test.name.startswith(own), test.seconds))
    chosen, left = [], seconds
    for test in ordered:
        if chosen and (test.seconds > left or len(chosen) == count):
            break
        chosen.append(test.name)
        left -= test.seconds
    return chosen
