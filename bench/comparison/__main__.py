"""Run the comparison: `make bench SCALE=1`, or `python -m bench.comparison --scale 0.02 --jobs "append,scan"`.

With `--slopes`, the results go beside those of an earlier run at another scale, which the page then compares.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from bench.comparison.create_inputs import create_inputs
from bench.comparison.inputs import sizes
from bench.comparison.jobs import MEASURED_ONCE, select_jobs
from bench.comparison.page import page, slope_table, table
from bench.comparison.peer import ROOT, Peer
from bench.comparison.picture import picture
from bench.comparison.worker import ENGINES


def run(folder: Path, scale: float, keys: list[str], jobs: list[str], rounds: int) -> dict[str, Any]:
    """Run jobs with all engines, job by job and round by round."""
    small, full = sizes(folder, scale)
    create_inputs(full, small)
    peers = [Peer.start(key, folder, scale) for key in keys]
    for peer in peers:
        print_line(f"{peer.name}: {peer.warm_up(jobs) or 'warm'}")
    turns = [job for job in jobs for _ in range(1 if job in MEASURED_ONCE else rounds)]
    for job in turns:
        for peer in peers:
            if peer.can_do(job):
                peer.measure(job, peers[0].answers.get(job))
                print_line(f"{job}, {peer.name}: {peer.last_line(job)}")
    for peer in peers:
        peer.stop()
    results = {job: {p.name: result for p in peers if (result := p.result(job))} for job in jobs}
    return {
        "scale": scale,
        "rows": full.rows,
        "rounds": rounds,
        "engines": [p.name for p in peers],
        "jobs": results,
    }


def print_line(text: str) -> None:
    print(text, flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.comparison")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is six million rows")
    parser.add_argument("--engines", default=",".join(ENGINES), help="the first one is compared with the others")
    parser.add_argument("--jobs", default="all", help="`all`, `telling`, or names separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slopes", action="store_true", help="add the results to those of an earlier run")
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    jobs, keys = select_jobs(options.jobs), options.engines.split(",")
    data = options.out / "assets" / "benchmarks.json"
    earlier = json.loads(data.read_text()) if options.slopes else {}
    with tempfile.TemporaryDirectory() as folder:
        results = run(Path(folder), options.scale, keys, jobs, options.rounds)
    if options.slopes:
        results = {**earlier, "larger": results}
    print_line("\n" + (slope_table(results) if options.slopes else table(results)))
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    data.with_suffix(".svg").write_text(picture(results))
    (options.out / "benchmarks.md").write_text(page(results))


if __name__ == "__main__":
    main()
