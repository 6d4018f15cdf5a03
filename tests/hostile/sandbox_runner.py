"""Run hostile cases in parallel processes, and check the results.

`python -m tests.hostile.sandbox_runner [PART]` runs the cases whose name contains PART.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hostile.all_cases import select_cases
from tests.hostile.verdicts import faults, outcome

ROOT = Path(__file__).parents[2]
LANES = 2


@dataclass
class Report:
    """The number of cases, their outcomes, and the faults."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: dict[str, list[str]] = field(default_factory=dict)
    cpu: float = 0.0
    memory: int = 0

    @property
    def line(self) -> str:
        """One line for the summary."""
        ends = ", ".join(f"{count} {what}" for what, count in sorted(self.outcomes.items()))
        return f"hostile input: {self.cases} cases run, {len(self.faults)} failures ({ends})"


def run(amount: str, part: str = "", *, lanes: int = LANES, planted: str = "") -> Report:
    """Run and check cases; `planted` names a bug to plant in the product first, which the checks must find."""
    cases = select_cases(amount == "ALL", part)
    report, results, honest = Report(), {}, {}
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        for line in _lines(Path(folder), amount, part, lanes, planted):
            if "honest" in line:
                honest = {int(version): rows for version, rows in line["honest"].items()}
            else:
                results[line["turn"]] = line
    for turn, case in enumerate(cases):
        result = results.get(turn)
        found = ["never ran"] if result is None else faults(case, result, honest[case.version])
        report.cases += 1
        if result:
            report.outcomes[outcome(result, honest[case.version])] += 1
            report.cpu, report.memory = report.cpu + result["cpu"], max(report.memory, result["grown"])
        if found:
            report.faults[case.label] = found
    return report


def _lines(folder: Path, amount: str, part: str, lanes: int, planted: str) -> Iterator[dict[str, Any]]:
    environment = {**os.environ, "NEVE_PLANTED": planted, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment["MALLOC_ARENA_MAX"] = "2"  # address space is limited, and every malloc arena uses some
    with ExitStack() as open_files:
        running = []
        for lane in range(lanes):
            (folder / str(lane)).mkdir()
            command = [
                sys.executable,
                "-m",
                "tests.hostile.sandbox",
                str(folder / str(lane)),
                str(lane),
                str(lanes),
                amount,
                part,
            ]
            out = open_files.enter_context((folder / f"{lane}.out").open("w+"))
            running.append((subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out), out))
        for process, out in running:
            if process.wait() != 0:
                raise RuntimeError(f"A lane ended with {process.returncode}.")
            out.seek(0)
            yield from map(json.loads, out)


if __name__ == "__main__":
    report = run(os.environ.get("AMOUNT", "ALL"), *sys.argv[1:2])
    kinds: Counter[str] = Counter()
    for label, found in report.faults.items():
        sys.stdout.write(f"{label}\n" + "".join(f"    {fault}\n" for fault in found))
    sys.stdout.write(f"{report.line}; {report.cpu:.0f} s of CPU, at most {report.memory >> 20} MB\n")
