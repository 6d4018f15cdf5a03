"""The results as a picture."""

from __future__ import annotations

from html import escape
from math import log
from typing import Any

WIDTH, BAR, NAME = 900, 18, 190
COLOURS = ("#2f6f9f", "#c8743a", "#7a8a3c", "#8a5a9c", "#5a8a8a")


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
        f'<rect x="{NAME + 145 * i}" y="8" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/>'
        f'<text x="{NAME + 18 + 145 * i}" y="18">{escape(e)}</text>'
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
