"""The results as tables and as a page."""

from __future__ import annotations

import os
import platform
from typing import Any

import psutil

from bench.comparison.jobs import JOBS

NO_CELL = "–"


def table(results: dict[str, Any], between: str = ", ") -> str:
    """Return a table of jobs by engines: the ratio of CPU seconds to Névé's, and all figures."""
    engines = results["engines"]
    lines = [f"| job | {' | '.join(engines)} |", "|---|" + "---|" * len(engines)]
    for job, costs in results["jobs"].items():
        ours = costs.get(engines[0], {}).get("cpu")
        cells = (between.join(_cell(costs.get(e), None if e == engines[0] else ours)) for e in engines)
        lines.append(f"| {job} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(cost: dict[str, Any] | None, ours: float | None) -> list[str]:
    if cost is None:
        return [NO_CELL]
    if "problem" in cost:
        return ["failed"]
    ratio = cost["cpu"] / ours if ours else None
    first = [] if ratio is None else [f"**{ratio:.2f}×**" + (" (Névé uses more CPU)" if ratio < 1 else "")]
    spread = f" ({cost['least_cpu']:.3g}–{cost['most_cpu']:.3g})" if cost["rounds"] > 1 else ""
    jobs = cost["spark_jobs"]
    figures = [
        f"{cost['cpu']:.3g} CPU s{spread}",
        f"{cost['seconds']:.3g} s",
        f"{cost['mib']:.0f} MiB",
        f"{_size(cost['mib_read'])} read, {_size(cost['mib_written'])} written",
        *([] if jobs is None else [f"{jobs:.3g} Spark job{'' if jobs == 1 else 's'}"]),
    ]
    return [*first, *figures]


def _size(mib: float) -> str:
    return f"{mib:.0f} MiB" if mib >= 10 else f"{mib:.2g} MiB"


def slope_table(results: dict[str, Any]) -> str:
    """Return a table of CPU seconds at both scales, and of how many times more the larger one needs."""
    larger = results["larger"]
    engines = [name for name in larger["engines"] if name in results["engines"]]
    lines = [f"| job | {' | '.join(engines)} |", "|---|" + "---|" * len(engines)]
    for job, costs in larger["jobs"].items():
        cells = (_slope(results["jobs"].get(job, {}).get(name), costs.get(name)) for name in engines)
        lines.append(f"| {job} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _slope(small: dict[str, Any] | None, large: dict[str, Any] | None) -> str:
    if not small or not large:
        return NO_CELL
    if "problem" in small or "problem" in large:
        return "failed"
    return f"**{large['cpu'] / small['cpu']:.2f}×**<br>{small['cpu']:.3g} → {large['cpu']:.3g} CPU s"


def page(results: dict[str, Any]) -> str:
    """Return the documentation page."""
    about = "\n".join(f"| {job} | {JOBS[job]} |" for job in results["jobs"])
    return f"""# Benchmarks

`make bench` generates this page; do not edit it by hand. The table has {results["rows"]:,} rows of data similar to
TPC-H's lineitem (scale {results["scale"]:g}), in three partition specs. The machine has {os.cpu_count()} cores and
{psutil.virtual_memory().total >> 30} GiB of memory ({platform.system()}, Python {platform.python_version()}).

Each engine first ran all jobs on a small table to warm up. Every job was then measured {_times(results["rounds"])},
with the engines taking turns; before each measurement, the engine releases the memory that it does not use. Plans and
commits ran five times in a row in each round, and the mean counts. Numbers vary between runs, so small differences are
not significant. After the first round of each job, the benchmark checks that all engines have the same rows.

Each cell shows, for all processes of the engine: CPU seconds with the least and the most of the rounds in parentheses,
elapsed time, peak memory, bytes that were read and written, and the number of Spark jobs. All other numbers are medians
of the rounds. Bytes are those of system calls (`rchar` and `wchar` in `/proc/PID/io`): they include files in the page
cache and data passed between processes, but not files mapped into memory. For the other engines, the first number is
the ratio of their CPU seconds to those of Névé: below 1×, Névé uses more. A dash means that the engine cannot do the
job, cannot do it on this table, or is not part of that comparison.

{table(results, "<br>")}

![CPU seconds of each job, relative to Névé](assets/benchmarks.svg)
{_slopes(results)}{_failures(results)}
## What limits Névé

- **Scans into Spark** are done by Spark's own Parquet reader, and cost what it costs on the same files. To leave out
  deleted rows takes a lookup and a bit test for each row in Spark's expressions; Iceberg's reader does it in Java.
- **Appends of DataFrames**: Spark reads the source, the same for both engines, and hands the rows over to Python.
  `make bench-append` prints the share of each step.
- **Statements by key**: the keys are spread over the whole table, so the key column of every file is read, and for an
  UPDATE a page of each other column for almost every row. On a table that is sorted by the key, pages without it are
  not read. The rest is fixed: planning, opening each file, delete files for each partition, and the commit.
- **UPDATE and MERGE merge-on-read** of rows in every page: all pages must be decompressed and decoded.
- **Memory**: in appends of DataFrames, rows pass through Python workers and are written there or by the driver, beside
  the heap of Spark's JVM; Iceberg writes them inside that heap. Where Spark does all the work, as in a scan of a year,
  the driver's own libraries make the difference.
- **Arrow appends** are written by one thread for each core; PyIceberg writes a table without partitions with one.
  Two threads need less time than one, but more CPU, because they share caches and memory. The ratio to PyIceberg varies
  with what else the machine does: it was 0.57 and 1.09 in two runs of this page.
- **`to_arrow`** decodes the same pages with the same library as PyIceberg, in as many threads, and costs the same.
- **Engines without a JVM** do not convert rows for Spark. For rows in the process, Névé does not either (`to_arrow`,
  Arrow append).

## The jobs

| job | description |
|---|---|
{about}

Each engine creates and changes its own copy of the tables. DuckDB, Polars and Sail read the copy of Névé, and so does
PyIceberg in the scan with deletes, because it cannot write them. Polars collects the rows of a scan in memory; the
other engines read and discard them. Some jobs use fewer rows, as their descriptions say, so that all rounds end in
reasonable time; the rows are the same for all engines. For the spec upgrade, Névé rewrites only the files that are not
in the newest spec yet, while Iceberg's `rewrite_data_files` rewrites all files. The numbers are also available
[as JSON](assets/benchmarks.json).
"""


def _times(rounds: int) -> str:
    return {1: "once", 2: "twice", 3: "three times"}.get(rounds, f"{rounds} times")


def _slopes(results: dict[str, Any]) -> str:
    if "larger" not in results:
        return ""
    larger = results["larger"]
    return f"""
## Growth

`make bench-slopes` adds this table. The same jobs ran on {larger["rows"]:,} rows (scale {larger["scale"]:g}), each
{_times(larger["rounds"])}. The first number is the ratio of the CPU seconds at scale {larger["scale"]:g} to those at
scale {results["scale"]:g}; {larger["scale"] / results["scale"]:g}× means that the cost grows like the table.

{slope_table(results)}
"""


def _failures(results: dict[str, Any]) -> str:
    """Return the errors of all jobs, in the run and in the larger one."""
    problems = [
        f"- {job}, {engine}{where}: `{cost['problem']}`"
        for part, where in ((results, ""), (results.get("larger", {"jobs": {}}), " at the larger scale"))
        for job, costs in part["jobs"].items()
        for engine, cost in costs.items()
        if "problem" in cost
    ]
    return "\n## Failures\n\n" + "\n".join(problems) + "\n" if problems else ""
