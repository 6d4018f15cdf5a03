"""Plan a compaction of a million files and write their report: CPU, and peak memory against that of reading the files.

Each is measured in a process of its own, because memory that was used once stays with a process.

    python -m bench.report
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import neve
from bench.metadata import many_files, verdict
from neve.table import Table

MANIFESTS, FILES_EACH = 1000, 1000
WORK = {
    "read the files": lambda t, folder: t.context.live_entries(t.context.live_manifests(t.context.head())),
    "plan a compaction": lambda t, folder: t.rewrite_data_files().plan(),
    "report": lambda t, folder: t.report(folder / "report.html"),
}
LIMITS = {"plan a compaction": 3, "report": 7}  # times the memory that reading takes; 2.4 to 2.7 and 6.4 were measured


def measure(work: str, folder: Path) -> dict[str, float]:
    """Do a piece of work; return the CPU seconds, and the MiB at its peak beyond those at its beginning."""
    table: Table = neve.connect(folder / "lake").table("d.t")
    memory, cpu = _peak_mib(), time.process_time()
    WORK[work](table, folder)
    return {"cpu": time.process_time() - cpu, "memory": _peak_mib() - memory}


def _peak_mib() -> float:
    return getrusage(RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="neve-bench-"))
    try:
        catalog = neve.connect(folder / "lake").catalog
        catalog.create_namespace("d")
        catalog.register_table("d.t", many_files(folder / "t", 2, MANIFESTS, FILES_EACH))
        found = {work: _measure_in_process(work, folder) for work in WORK}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{MANIFESTS * FILES_EACH} files of version 2: CPU s and peak memory")
    reading, results = found["read the files"]["memory"], []
    for work, taken in found.items():
        line = f"  {work:<20} {taken['cpu']:6.1f} CPU s  {taken['memory']:6.0f} MiB"
        if work in LIMITS:
            ratio = taken["memory"] / reading
            results.append(ratio <= LIMITS[work])
            line += f"  {ratio:.1f}x of reading (target under {LIMITS[work]}x) {verdict(results[-1])}"
        print(line)
    sys.exit(0 if all(results) else 1)


def _measure_in_process(work: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.report", work, str(folder)]
    answer: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return answer


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
    else:
        main()
