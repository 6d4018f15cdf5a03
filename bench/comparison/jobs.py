"""The jobs, in the order they are done, and what is said about them."""

from __future__ import annotations

from bench.comparison.inputs import GROWTH, SMALL_FILES

MODES = {"MoR": "merge-on-read", "CoW": "copy-on-write"}

JOBS: dict[str, str] = {
    "append": "three appends, each under another partition spec",
    "scan": "all columns of all rows",
    "scan of a year": "all columns of one year of seven",
    **{
        f"{verb} {mode}": f"{what}, {MODES[mode]}"
        for mode in MODES
        for verb, what in (
            ("UPDATE", "one row in a hundred, all over the table"),
            ("DELETE", "one row in a hundred, all over the table"),
            ("MERGE", "new values for one key in a hundred"),
        )
    },
    "compaction": f"{SMALL_FILES} small files of one spec into large ones",
    "spec upgrade": "everything into the newest of the three specs",
    **{f"plan {n} files": f"the files a filter leaves of {n} in three specs" for n in GROWTH},
    **{f"commit to {n} files": f"one row appended to a table of {n} files" for n in GROWTH},
}

TIMES = {job: 5 for job in JOBS if job.startswith(("plan", "commit"))}
"""How often a job is done in a row: short ones several times, and a cost is that of one."""

ROUNDS = {job: 3 for job in JOBS if job.startswith("scan") or job.endswith("MoR")}
"""How often the engines take turns at a job that still gets cheaper when it was done once; the middle one counts."""
