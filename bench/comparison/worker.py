"""One engine in its own process: `python -m bench.comparison.worker ENGINE FOLDER SCALE`.

Reads one order a line (`ready JOB`, `run JOB`, `answer JOB`, `warm`) and answers each with a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path

from bench.comparison.engine import Engine
from bench.comparison.inputs import Inputs, sizes
from bench.comparison.jobs import JOBS, TIMES

ENGINES = {
    "neve": ("neve_engine", "Neve"),
    "spark": ("spark_iceberg", "SparkIceberg"),
    "pyiceberg": ("pyiceberg_engine", "PyIceberg"),
    "duckdb": ("duckdb_engine", "DuckDB"),
    "sail": ("sail", "Sail"),
}


def start_engine(name: str, inputs: Inputs) -> Engine:
    """Start the engine with a name."""
    module, kind = ENGINES[name]
    engine: Engine = getattr(import_module(f"bench.comparison.{module}"), kind)(inputs)
    return engine


def warm_up(engine: Engine, small: Inputs) -> None:
    """Run every job once on a small input."""
    jobs = engine.jobs(small)
    for name in JOBS:
        if name in jobs:
            jobs[name].ready()
            jobs[name].run()


def main(name: str, folder: str, scale: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of engines must not mix with answers
    small, full = sizes(Path(folder), float(scale))
    engine = start_engine(name, full)
    jobs = engine.jobs(full)
    answers.write(json.dumps({"name": engine.name, "jobs": [n for n in JOBS if n in jobs]}) + "\n")
    for line in sys.stdin:
        order, _, job = line.strip().partition(" ")
        result, problem = None, None
        try:
            acts = {"warm": lambda: warm_up(engine, small)}
            act = acts[order] if order in acts else getattr(jobs[job], order)
            for _ in range(TIMES.get(job, 1) if order == "run" else 1):
                result = act()
        except Exception as e:  # any error is the result in the table
            problem = f"{type(e).__name__}: {str(e).strip()[:400]}"
        answers.write(json.dumps({"problem": problem, "result": str(result)}) + "\n")
    engine.stop()
    answers.close()
    os._exit(0)  # threads that an engine left behind are irrelevant


if __name__ == "__main__":
    main(*sys.argv[1:])
