"""The jobs in the order they run, and their descriptions."""

from __future__ import annotations

from bench.comparison.inputs import GROWTH, SMALL_FILES

MODES = {"MoR": "merge-on-read", "CoW": "copy-on-write"}

JOBS: dict[str, str] = {
    "append": "three appends, each under a different partition spec",
    "scan": "all columns of all rows",
    "scan of a year": "all columns of one of seven years",
    **{
        f"{verb} {mode}": f"{what}, {MODES[mode]}"
        for mode in MODES
        for verb, what in (
            ("UPDATE", "one row in a hundred, spread over the whole table"),
            ("DELETE", "one row in a hundred, spread over the whole table"),
            ("MERGE", "new values for one key in a hundred"),
        )
    },
    "compaction": f"rewrite {SMALL_FILES} small files of one spec to large files",
    "spec upgrade": "move all rows to the newest of the three specs",
    **{f"plan {n} files": f"select the files that match a filter, from {n} files in three specs" for n in GROWTH},
    **{f"commit to {n} files": f"append one row to a table of {n} files" for n in GROWTH},
}

TIMES = {job: 5 for job in JOBS if job.startswith(("plan", "commit"))}
"""Number of consecutive runs of a job: short jobs run several times, and the cost is that of one run."""

ROUNDS = {job: 3 for job in JOBS if job.startswith("scan") or job.endswith("MoR")}
"""Number of rounds for a job that gets cheaper after its first run; the median counts."""
