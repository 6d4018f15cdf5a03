"""One engine in a process of its own: `python -m bench.comparison.worker ENGINE FOLDER SCALE`.

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


def started(name: str, inputs: Inputs) -> Engine:
    """The engine of a name."""
    module, kind = ENGINES[name]
    engine: Engine = getattr(import_module(f"bench.comparison.{module}"), kind)(inputs)
    return engine


def warm(engine: Engine, small: Inputs) -> None:
    """Every job once, on little."""
    jobs = engine.jobs(small)
    for name in JOBS:
        if name in jobs:
            jobs[name].ready()
            jobs[name].run()


def main(name: str, folder: str, scale: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what engines print is no answer
    small, full = sizes(Path(folder), float(scale))
    engine = started(name, full)
    jobs = engine.jobs(full)
    answers.write(json.dumps({"name": engine.name, "jobs": [n for n in JOBS if n in jobs]}) + "\n")
    for line in sys.stdin:
        order, _, job = line.strip().partition(" ")
        said, problem = None, None
        try:
            acts = {"warm": lambda: warm(engine, small)}
            act = acts[order] if order in acts else getattr(jobs[job], order)
            for _ in range(TIMES.get(job, 1) if order == "run" else 1):
                said = act()
        except Exception as e:  # whatever goes wrong is what the table says
            problem = f"{type(e).__name__}: {str(e).strip()[:400]}"
        answers.write(json.dumps({"problem": problem, "said": str(said)}) + "\n")
    engine.stop()
    answers.close()
    os._exit(0)  # threads that an engine left behind do not matter any more


if __name__ == "__main__":
    main(*sys.argv[1:])
