"""The jobs in the order they run, and their descriptions."""

from __future__ import annotations

from bench.comparison.inputs import FOREIGN_FILES, GROWTH, KEYS, LINES_PER_ORDER, SMALL_FILES

MODES = {"MoR": "merge-on-read", "CoW": "copy-on-write"}
CHANGES = {
    "UPDATE": "one row in a hundred, spread over the whole table",
    "DELETE": "one row in a hundred, spread over the whole table",
    "MERGE": "new values for one key in a hundred",
    "UPDATE by key": f"{KEYS * LINES_PER_ORDER} rows: {KEYS} keys, spread over the whole table",
    "DELETE by key": f"{KEYS * LINES_PER_ORDER} rows: {KEYS} keys, spread over the whole table",
    "MERGE of changes": "inserts, updates and deletes, together one for every hundred rows",
}
ONE_THIRD = "on a third of the rows"
ONE_TENTH = "a tenth as many rows"

JOBS: dict[str, str] = {
    "append": "three appends, each under a different partition spec",
    "append plain": f"one append to a table without partitions, {ONE_THIRD}",
    "append of nested rows": f"structs, arrays, maps, texts and timestamps, by days of one month; {ONE_TENTH}",
    "Arrow append": f"an Arrow table in memory, to a table without partitions, {ONE_THIRD}",
    "Arrow append by year": f"an Arrow table in memory, to a table with seven partitions, {ONE_THIRD}",
    "scan": "all columns of all rows",
    "scan of a year": "all columns of one of seven years",
    "to_arrow": "all rows as one Arrow table in memory",
    **{f"{change} MoR": f"{what}, {MODES['MoR']}" for change, what in CHANGES.items()},
    "scan with deletes": "all columns of all rows, after one row in a hundred was deleted merge-on-read",
    "UPDATE with deletes MoR": "UPDATE MoR, after one row in a hundred was deleted merge-on-read",
    **{f"{change} CoW": f"{what}, {MODES['CoW']}, {ONE_THIRD}" for change, what in CHANGES.items()},
    "UPDATE CoW plain": f"UPDATE CoW of a table without partitions, {ONE_THIRD}",
    "DELETE CoW plain": f"DELETE CoW of a table without partitions, {ONE_THIRD}",
    **{
        f"UPDATE of a wide table {short}": f"one of 100 columns, one row in a hundred, {mode}; {ONE_TENTH}"
        for short, mode in MODES.items()
    },
    "compaction": f"rewrite {SMALL_FILES} small files of one spec to large files, {ONE_THIRD}",
    "spec upgrade": "move all rows to the newest of the three specs",
    "add_files": f"{FOREIGN_FILES} small Parquet files of another engine become part of a table; measured once",
    **{f"plan {n} files": f"select the files that match a filter, from {n} files in three specs" for n in GROWTH},
    **{f"commit to {n} files": f"append one row to a table of {n} files" for n in GROWTH},
}

MEASURED_ONCE = ("add_files",)  # Iceberg takes minutes
TELLING = (
    "append",
    "scan",
    "scan of a year",
    "UPDATE MoR",
    "MERGE of changes MoR",
    "DELETE CoW",
    "compaction",
    "spec upgrade",
)
"""The jobs that show best how the cost grows with the table."""

TIMES = {job: 5 for job in JOBS if job.startswith(("plan", "commit"))}
"""Number of consecutive runs of a job: short jobs run several times, and the cost is that of one run."""


def select_jobs(text: str) -> list[str]:
    """Return the jobs that a list names, in the order they run: `all`, `telling`, or names separated by commas.

    >>> select_jobs("scan, append")
    ['append', 'scan']
    """
    named = {"all": tuple(JOBS), "telling": TELLING}.get(text) or [name.strip() for name in text.split(",")]
    if unknown := [name for name in named if name not in JOBS]:
        raise SystemExit(f"Unknown job {unknown[0]!r}. The jobs are: {', '.join(JOBS)}")
    return [job for job in JOBS if job in named]
