"""An engine as the benchmark sees it: a process that takes orders, its costs and its answers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.comparison.jobs import TIMES
from bench.comparison.meter import Cost, Meter, summarize

ROOT = Path(__file__).parents[2]


@dataclass
class Peer:
    """An engine in its own process."""

    key: str
    process: subprocess.Popen[str]
    name: str = ""
    jobs: list[str] = field(default_factory=list)
    costs: dict[str, list[Cost]] = field(default_factory=dict)  # of each round
    problems: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def start(cls, key: str, folder: Path, scale: float) -> Peer:
        command = [sys.executable, "-m", "bench.comparison.worker", key, str(folder), str(scale)]
        log = (folder / f"{key}.log").open("w")
        pipe = subprocess.PIPE
        peer = cls(key, subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=log, text=True))
        greeting = peer._read_answer()
        if "problem" in greeting:
            raise SystemExit(f"{key} does not start:\n{(folder / f'{key}.log').read_text()[-2000:]}")
        peer.name, peer.jobs = greeting["name"], greeting["jobs"]
        return peer

    def warm_up(self, jobs: list[str]) -> str | None:
        """Run jobs on a small table; return the errors, if any."""
        problem: str | None = self._send(f"warm {','.join(jobs)}").get("problem")
        return problem

    def can_do(self, job: str) -> bool:
        return job in self.jobs and job not in self.problems

    def measure(self, job: str, right_answer: str | None) -> None:
        """Measure one round of a job; after the first, compare its result with that of the first engine."""
        answer = self._send(f"ready {job}")
        if "problem" not in answer:
            with Meter(self.process.pid) as meter:
                answer = self._send(f"run {job}")
        if "problem" not in answer:
            cost = replace(meter.cost, spark_jobs=answer["spark_jobs"]).per_run(TIMES.get(job, 1))
            self.costs.setdefault(job, []).append(cost)
        if "problem" not in answer and job not in self.answers:
            answer = self._check(job, right_answer)
        if "problem" in answer:
            self.problems[job] = answer["problem"]

    def _check(self, job: str, right_answer: str | None) -> dict[str, Any]:
        answer = self._send(f"answer {job}")
        if "problem" in answer:
            return {"problem": f"done, but then: {answer['problem']}"}
        self.answers[job] = answer["result"]
        if right_answer not in {None, answer["result"]}:
            return {"problem": f"it left {answer['result']}, the first engine {right_answer}"}
        return answer

    def result(self, job: str) -> dict[str, Any] | None:
        """Return the cost of a job over all rounds, or its problem; None if the engine does not do it."""
        if job in self.problems:
            return {"problem": self.problems[job]}
        return summarize(self.costs[job]) if job in self.costs else None

    def last_line(self, job: str) -> str:
        """Return the outcome of the newest round."""
        return self.problems.get(job) or str(self.costs[job][-1])

    def _send(self, order: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(order + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"problem": "the process ended"}
        return self._read_answer()

    def _read_answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line.startswith("{") else {"problem": "the process ended"}

    def stop(self) -> None:
        self.process.communicate()
