"""The results as a table, a page and a picture."""

from __future__ import annotations

import os
import platform
from html import escape
from math import log
from typing import Any

import psutil

from bench.comparison.jobs import JOBS

WIDTH, BAR, NAME = 900, 18, 170
COLOURS = ("#2f6f9f", "#c8743a", "#7a8a3c", "#8a5a9c", "#5a8a8a")


def table(results: dict[str, Any], between: str = ", ") -> str:
    """Return a table of jobs by engines: CPU seconds, time and memory, and their ratio to Névé."""
    engines = results["engines"]
    lines = ["| job | " + " | ".join(engines) + " |", "|---|" + "---|" * len(engines)]
    for job, costs in results["jobs"].items():
        ours = costs.get(engines[0], {})
        cells = (between.join(_cell(costs.get(e), ours, e == engines[0])) for e in engines)
        lines.append(f"| {job} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(cost: dict[str, Any] | None, ours: dict[str, Any], is_ours: bool) -> list[str]:
    if cost is None:
        return ["–"]
    if "problem" in cost:
        return ["failed"]
    figures = [f"{cost['cpu']:.3g} CPU s", f"{cost['seconds']:.3g} s", f"{cost['mib']} MiB"]
    if is_ours or not ours.get("cpu"):
        return figures
    ratio = cost["cpu"] / ours["cpu"]
    return [f"**{ratio:.2f}×**" + (" (Névé uses more CPU)" if ratio < 1 else ""), *figures]


def page(results: dict[str, Any]) -> str:
    """Return the documentation page."""
    about = "\n".join(f"| {job} | {what} |" for job, what in JOBS.items())
    problems = "\n".join(
        f"- {job}, {engine}: `{cost['problem']}`"
        for job, costs in results["jobs"].items()
        for engine, cost in costs.items()
        if "problem" in cost
    )
    failed = f"\n## Failures\n\n{problems}\n" if problems else ""
    return f"""# Benchmarks

`make bench` generates this page; do not edit it by hand. The table has {results["rows"]:,} rows of data similar to
TPC-H's lineitem (scale {results["scale"]:g}), in three partition specs. The machine has {os.cpu_count()} cores and
{psutil.virtual_memory().total >> 30} GiB of memory ({platform.system()}, Python {platform.python_version()}).

Each engine first ran all jobs on a small table to warm up. Scans and merge-on-read changes were then measured three
times, with the engines taking turns, and the median is shown. Plans and commits ran five times in a row, and the mean
is shown. All other jobs were measured once. Numbers vary between runs, so small differences are not significant. The
benchmark checks after appends, changes and rewrites that all engines have the same rows.

Each cell shows the CPU seconds of all processes of the engine, the elapsed time and the peak memory. For the other
engines, the first number is the ratio of their CPU seconds to those of Névé: below 1×, Névé uses more. A dash means
that the engine cannot do the job, or cannot do it on this table.

{table(results, "<br>")}

![CPU seconds of each job, relative to Névé](assets/benchmarks.svg)
{failed}
## The jobs

| job | description |
|---|---|
{about}

Each engine creates and changes its own copy of the table; DuckDB and Sail read the copy of Névé. For the spec upgrade,
Névé rewrites only the files that are not in the newest spec yet, while Iceberg's `rewrite_data_files` rewrites all
files. The numbers are also available [as JSON](assets/benchmarks.json).
"""


def picture(results: dict[str, Any]) -> str:
    """Return a bar chart: CPU seconds of other engines relative to Névé, on a logarithmic scale."""
    engines, parts, y = results["engines"][1:], [], 40
    for job, costs in results["jobs"].items():
        ours = costs.get(results["engines"][0], {}).get("cpu")
        bars = [(e, costs[e]["cpu"] / ours) for e in engines if ours and costs.get(e, {}).get("cpu")]
        if not bars:
            continue
        parts.append(f'<text x="{NAME - 8}" y="{y + BAR * len(bars) / 2 + 4}" text-anchor="end">{escape(job)}</text>')
        for engine, ratio in bars:
            parts.append(_bar(y, ratio, COLOURS[engines.index(engine) % len(COLOURS)]))
            y += BAR
        y += 8
    legend = "".join(
        f'<rect x="{NAME + 190 * i}" y="8" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/>'
        f'<text x="{NAME + 18 + 190 * i}" y="18">{escape(e)}</text>'
        for i, e in enumerate(engines)
    )
    line = f'<line x1="{_x(1)}" x2="{_x(1)}" y1="34" y2="{y}" stroke="#888" stroke-dasharray="3 3"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 30}" font-family="sans-serif" '
        f'font-size="12" fill="#777"><title>CPU seconds relative to Névé</title>{legend}{line}{"".join(parts)}'
        f'<text x="{_x(1)}" y="{y + 16}" text-anchor="middle">← less CPU than Névé · 1× · more CPU →</text></svg>\n'
    )


def _x(ratio: float) -> float:
    """Return the x coordinate of a ratio from a fortieth to forty."""
    low, high = log(1 / 40), log(40)
    return NAME + (WIDTH - NAME - 80) * (min(max(log(ratio), low), high) - low) / (high - low)


def _bar(y: int, ratio: float, colour: str) -> str:
    left, right = sorted((_x(1), _x(ratio)))
    return (
        f'<rect x="{left:.1f}" y="{y}" width="{max(right - left, 1):.1f}" height="{BAR - 4}" fill="{colour}"/>'
        f'<text x="{right + 6:.1f}" y="{y + 11}">{ratio:.2g}×</text>'
    )
