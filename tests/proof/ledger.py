"""How much was tried and what failed, one line for each harness: `python -m tests.proof.ledger FILE` prints the table.

Tests write to the file that NEVE_LEDGER names; without it nothing is written.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic


@dataclass
class Tally:
    """The cases of one harness: how many, which failed, and figures worth telling."""

    guarantee: str
    cases: int = 0
    failures: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def case(self, name: object) -> Iterator[None]:
        """One case; what it raises is noted, and the others go on."""
        self.cases += 1
        try:
            yield
        except Exception as e:
            self.failures.append(f"{name}: {type(e).__name__}: {e}")

    def figure(self, name: str, value: float = 1) -> None:
        """Add to a figure."""
        self.figures[name] = self.figures.get(name, 0) + value

    def write_down(self) -> None:
        """Add a line to the ledger, if one is kept."""
        if "NEVE_LEDGER" in os.environ:
            with Path(os.environ["NEVE_LEDGER"]).open("a") as file:
                file.write(json.dumps(asdict(self)) + "\n")

    def settle(self) -> None:
        """Fail with every failure."""
        assert not self.failures, f"{len(self.failures)} of {self.cases} cases:\n" + "\n".join(self.failures[:20])


@contextmanager
def tallied(guarantee: str) -> Iterator[Tally]:
    """A tally that is written down when the harness ends, however it ends."""
    tally, started = Tally(guarantee), monotonic()
    try:
        yield tally
        tally.settle()
    except BaseException as e:
        if not tally.failures:
            tally.failures.append(f"{type(e).__name__}: {e}")
        raise
    finally:
        tally.figure("seconds", round(monotonic() - started, 1))
        tally.write_down()


def table_of(lines: list[dict[str, object]]) -> str:
    """The lines of a ledger as a table, one row a guarantee, in the order in which they came."""
    rows: dict[str, Tally] = {}
    for line in lines:
        found = Tally(**line)  # type: ignore[arg-type]
        row = rows.setdefault(found.guarantee, Tally(found.guarantee))
        row.cases += found.cases
        row.failures += found.failures
        row.notes += found.notes
        for name, value in found.figures.items():
            row.figure(name, value)
    cells = [("guarantee", "cases", "failures", "figures")]
    cells += [(r.guarantee, f"{r.cases:,}", f"{len(r.failures):,}", _figures(r)) for r in rows.values()]
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {cases:>{widths[1]}}  {failed:>{widths[2]}}  {told}"
        for name, cases, failed, told in cells
    )


def _figures(row: Tally) -> str:
    told = [f"{value:,.0f} {name}" for name, value in row.figures.items()]
    return "; ".join([*row.notes, ", ".join(told)])


def main(path: str) -> int:
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()] if Path(path).exists() else []
    sys.stdout.write(f"\n{table_of(lines)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
