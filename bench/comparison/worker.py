"""One engine in its own process: `python -m bench.comparison.worker ENGINE FOLDER SCALE`.

Reads one order a line (`warm JOB,JOB`, `ready JOB`, `run JOB`, `answer JOB`) and answers each with a line of JSON.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.comparison.engine import Engine, Job
from bench.comparison.inputs import Inputs, sizes
from bench.comparison.jobs import JOBS, TIMES

ENGINES = {
    "neve": ("neve_engine", "Neve"),
    "spark": ("spark_iceberg", "SparkIceberg"),
    "pyiceberg": ("pyiceberg_engine", "PyIceberg"),
    "duckdb": ("duckdb_engine", "DuckDB"),
    "polars": ("polars_engine", "Polars"),
    "sail": ("sail", "Sail"),
}


def start_engine(name: str, inputs: Inputs) -> Engine:
    """Start the engine with a name."""
    module, kind = ENGINES[name]
    engine: Engine = getattr(import_module(f"bench.comparison.{module}"), kind)(inputs)
    return engine


def warm_up(engine: Engine, small: Inputs, names: list[str]) -> None:
    """Run every job once on a small input; errors count only if all the rest has run."""
    jobs, problems = engine.jobs(small), []
    for name in names:
        if name in jobs:
            try:
                jobs[name].ready()
                jobs[name].run()
            except Exception as e:
                problems.append(f"{name}: {describe_error(e)}")
    if problems:
        raise RuntimeError("; ".join(problems))


def obey(engine: Engine, jobs: dict[str, Job], order: str, name: str) -> dict[str, Any]:
    """Do one step of a job; count the jobs of Spark meanwhile."""
    act, before, result = getattr(jobs[name], order), engine.spark_jobs(), None
    for _ in range(TIMES.get(name, 1) if order == "run" else 1):
        result = act()
    if order == "ready":
        settle(engine)
    after = engine.spark_jobs()
    count = None if before is None or after is None else after - before
    return {"result": str(result), "spark_jobs": count}


def settle(engine: Engine) -> None:
    """Release the memory that earlier jobs left, so that the peak is that of the next job."""
    gc.collect()
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    if (jvm := getattr(getattr(engine, "spark", None), "_jvm", None)) is not None:
        jvm.System.gc()


def describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:400]}"


def main(name: str, folder: str, scale: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of engines must not mix with answers
    small, full = sizes(Path(folder), float(scale))
    engine = start_engine(name, full)
    jobs = engine.jobs(full)
    answers.write(json.dumps({"name": engine.name, "jobs": [n for n in JOBS if n in jobs]}) + "\n")
    for line in sys.stdin:
        order, _, job = line.strip().partition(" ")
        answer: dict[str, Any] = {}
        try:
            if order == "warm":
                warm_up(engine, small, job.split(","))
            else:
                answer = obey(engine, jobs, order, job)
        except Exception as e:  # any error is the result in the table
            answer = {"problem": describe_error(e)}
        answers.write(json.dumps(answer) + "\n")
    engine.stop()
    answers.close()
    os._exit(0)  # threads that an engine left behind are irrelevant


if __name__ == "__main__":
    main(*sys.argv[1:])
