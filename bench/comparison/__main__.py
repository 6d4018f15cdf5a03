"""Run the comparison: `make bench SCALE=1`, or `python -m bench.comparison --scale 0.1 --engines neve,spark`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.comparison.inputs import Inputs, sizes
from bench.comparison.jobs import JOBS, ROUNDS, TIMES
from bench.comparison.meter import Cost, Meter
from bench.comparison.page import page, picture, table
from bench.comparison.worker import ENGINES
from bench.lineitem import lineitem
from bench.metadata import table_with_usual_manifests
from neve.run.spark.session import local_session

ROOT = Path(__file__).parents[2]


@dataclass
class Peer:
    """An engine in its own process."""

    key: str
    process: subprocess.Popen[str]
    name: str = ""
    jobs: list[str] = field(default_factory=list)
    costs: dict[str, Cost] = field(default_factory=dict)
    every: dict[str, list[Cost]] = field(default_factory=dict)  # of each round
    problems: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def start(cls, key: str, folder: Path, scale: float) -> Peer:
        command = [sys.executable, "-m", "bench.comparison.worker", key, str(folder), str(scale)]
        log = (folder / f"{key}.log").open("w")
        pipe = subprocess.PIPE
        peer = cls(key, subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=log, text=True))
        greeting = peer._read_answer()
        peer.name, peer.jobs = greeting.get("name", key), greeting.get("jobs", [])
        return peer

    def send_order(self, order: str) -> str | None:
        """Send an order; return the error, if any."""
        problem: str | None = self._send(order).get("problem")
        return problem

    def _send(self, order: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        return self._read_answer()

    def measure(self, job: str) -> None:
        if problem := self.send_order(f"ready {job}"):
            self.problems[job] = problem
            return
        with Meter(self.process.pid) as meter:
            problem = self.send_order(f"run {job}")
        if problem:
            self.problems[job] = problem
        else:
            self._check(job, meter.cost)

    def _check(self, job: str, cost: Cost) -> None:
        answer = self._send(f"answer {job}")
        if answer.get("problem"):
            self.problems[job] = f"done, but then: {answer['problem']}"
            return
        rounds = self.every.setdefault(job, [])
        rounds.append(cost.per_run(TIMES.get(job, 1)))
        self.costs[job], self.answers[job] = sorted(rounds, key=lambda c: c.cpu)[len(rounds) // 2], answer["result"]

    def compare(self, job: str, right: str | None) -> None:
        """Discard the cost of a job whose result differs from that of the first engine."""
        if job in self.costs and right is not None and self.answers[job] != right:
            del self.costs[job]
            self.problems[job] = f"it left {self.answers[job]}, the first engine {right}"

    def _read_answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line.startswith("{") else {"problem": "the process ended"}

    def stop(self) -> None:
        self.process.communicate()


def create_inputs(inputs: Inputs) -> None:
    """Create the inputs in plain Parquet, and the tables of many files."""
    spark = local_session("local[2]", {"spark.driver.memory": "4g"})
    for one in (sizes(inputs.folder, 0)[0], inputs):
        rows = lineitem(spark, one.rows)
        for part in range(3):
            rows.where(f"l_partkey % 3 = {part}").write.parquet(one.part(part))
        new = rows.where("l_orderkey % 100 = 7").selectExpr(
            "l_orderkey", "l_linenumber", "CAST(l_extendedprice + 1 AS decimal(12, 2)) AS price"
        )
        new.coalesce(2).write.parquet(one.changes)
    spark.stop()
    for files in inputs.growth:
        folder_of_table = inputs.table_of(files)
        (folder_of_table / "metadata.txt").parent.mkdir(parents=True)
        (folder_of_table / "metadata.txt").write_text(table_with_usual_manifests(folder_of_table, files))
    inputs.lake.mkdir()


def run(folder: Path, scale: float, keys: list[str]) -> dict[str, Any]:
    """Run all jobs with all engines, job by job."""
    _, full = sizes(folder, scale)
    create_inputs(full)
    peers = [Peer.start(key, folder, scale) for key in keys]
    for peer in peers:
        print_line(f"{peer.name}: {peer.send_order('warm') or 'warm'}")
    for job in [name for name in JOBS for _ in range(ROUNDS.get(name, 1))]:
        for peer in peers:
            if job in peer.jobs and job not in peer.problems:
                peer.measure(job)
                peer.compare(job, peers[0].answers.get(job))
                print_line(f"{job}, {peer.name}: {peer.costs.get(job) or peer.problems.get(job)}")
    for peer in peers:
        peer.stop()
    return {
        "scale": scale,
        "rows": full.rows,
        "engines": [p.name for p in peers],
        "jobs": {
            job: {
                p.name: asdict(p.costs[job]) if job in p.costs else {"problem": p.problems[job]}
                for p in peers
                if job in p.costs or job in p.problems
            }
            for job in JOBS
        },
    }


def print_line(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.comparison")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = run(Path(folder), arguments.scale, arguments.engines.split(","))
    print_line("\n" + table(results))
    (arguments.out / "assets").mkdir(parents=True, exist_ok=True)
    (arguments.out / "assets" / "benchmarks.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    (arguments.out / "assets" / "benchmarks.svg").write_text(picture(results))
    (arguments.out / "benchmarks.md").write_text(page(results))


if __name__ == "__main__":
    main()
