"""Several processes that change one table concurrently: `python -m tests.proof.concurrent_processes ORDER`.

ORDER is JSON: the catalog, how many writers, how many operations each, a seed, and which engine appends or `mixed`.
Prints one line of JSON per operation: its key, the statement and the outcome. The writers are forked from one process
that has imported all modules and opened no file or connection, and start at the same time.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.types import StringType

from neve import Table
from neve.commit.environment import Environment
from neve.commit.outcome import Rejected, Unknown
from neve.commit.outcome import require_committed as committed
from neve.errors import CommitConflict, CommitUnknown
from tests.proof.statements_without_spark import (
    ARROW,
    ID,
    NAMES,
    Statement,
    StatementWriter,
    table_without_spark,
    where,
)
from tests.support.writer_processes import connected

ROOT = Path(__file__).parents[2]
REGIONS = ("eu", "us", "asia")
TABLE = "db.shared"


@dataclass(frozen=True)
class Order:
    """The work of the processes."""

    settings: dict[str, str]
    writers: int
    operations: int
    seed: int = 0
    engine: str = "mixed"  # or append, or pyiceberg


def statement_of(rng: random.Random, key: str) -> Statement:
    """Return a random operation."""
    region, number = rng.choice(REGIONS), rng.randrange(40)
    row, in_region = (number, region, rng.randrange(100), key), ("region", "=", region)
    mode = rng.choice(("merge-on-read", "copy-on-write"))
    append = Statement("append", rows=(row, (number + 40, *row[1:])))
    update = Statement("update", where(in_region, ("id", "<", number)), add=1, mode=mode)
    return rng.choice(
        (
            *(append, append, update, update),
            Statement("delete", where(("id", "=", number)), mode=mode),
            Statement("merge", rows=(row, ((number + 7) % 80, *row[1:])), mode=mode),
            Statement("overwrite", where(in_region), rows=(row,)),
            Statement("compact", where(in_region)),
            Statement(rng.choice(("manifests", "evolve"))),
        )
    )


def run_statement(table: Table, statement: Statement, key: str) -> str:
    """Run a statement as the engine's own verbs do: after a conflict, rerun it up to the limit of the table."""
    match statement.kind:
        case "manifests":
            table.rewrite_manifests().snapshot_property(ID, key).execute()
            return "acknowledged"
        case "evolve":
            _evolve(table, key)
            return "acknowledged"
    hand = StatementWriter(table)
    for _ in range(table.context.properties.reruns + 1):
        outcome = hand.do(statement, key)
        if isinstance(outcome, Unknown):
            return "unknown"
        if not isinstance(outcome, Rejected):
            return "acknowledged" if outcome is not None and outcome.snapshot_id else "nothing to do"
    committed(outcome)
    raise AssertionError("not reached")


def _evolve(table: Table, key: str) -> None:
    """Make a change that no snapshot records: set a property, or for every second key add a column."""
    if int(key.partition("-")[2]) % 2:
        table.set_properties(**{mark_of(key): "was here"})
        return
    with table.evolve_schema() as change:
        change.add_column(mark_of(key), StringType())


def mark_of(key: str) -> str:
    return f"note_{key.replace('-', '_')}"


def marks_in(table: Table) -> set[str]:
    """Return the names of properties and columns that `_evolve` added."""
    metadata = table.refresh().context.metadata
    return {name for name in (*metadata.properties, *metadata.schema().column_names) if name.startswith("note_")}


def write(order: Order, writer: int, start_at: float) -> None:
    pa.set_cpu_count(1)
    rng = random.Random(order.seed * 1000 + writer)
    table = connected(order.settings).table(TABLE)
    own_table = table_without_spark(table.context.catalog, table.context.iceberg, Environment())
    time.sleep(max(0.0, start_at - time.time()))
    for number in range(order.operations):
        key = f"{writer}-{number}"
        appended = Statement("append", rows=((writer * 1000 + number, "eu", 0, key),))
        statement = statement_of(rng, key) if order.engine == "mixed" else appended
        try:
            outcome_text = run_statement(own_table, statement, key)
        except CommitConflict as e:
            outcome_text = f"conflict: {e}"[:200]
        except CommitUnknown:
            outcome_text = "unknown"
        except Exception as e:
            outcome_text = f"{type(e).__name__}: {e}"[:500]
        line = json.dumps({"key": key, "statement": statement.as_json(), "outcome": outcome_text})
        os.write(1, (line + "\n").encode())


def write_with_pyiceberg(order: Order, writer: int, start_at: float) -> None:
    known = dict(order.settings)
    table = load_catalog(known.pop("name", "shared"), type="sql", **known).load_table(TABLE)
    time.sleep(max(0.0, start_at - time.time()))
    for number in range(order.operations):
        key = f"{writer}-{number}"
        rows = [dict(zip(NAMES, (writer * 1000 + number, "eu", 0, key), strict=True))]
        try:
            table.refresh().append(pa.Table.from_pylist(rows, ARROW))
            outcome_text = "acknowledged"
        except CommitFailedException as e:
            outcome_text = f"conflict: {e}"[:200]
        except Exception as e:
            outcome_text = f"{type(e).__name__}: {e}"[:200]
        os.write(1, (json.dumps({"key": key, "outcome": outcome_text}) + "\n").encode())


def main(text: str) -> int:
    order = Order(**json.loads(text))
    work = write_with_pyiceberg if order.engine == "pyiceberg" else write
    start_at, children = time.time() + 1.0, []
    for writer in range(order.writers):
        if (child := os.fork()) == 0:
            work(order, writer, start_at)
            os._exit(0)
        children.append(child)
    return max(os.waitpid(child, 0)[1] for child in children)


def run_processes(order: Order) -> list[dict[str, Any]]:
    """Run the processes of an order; return the outcome of each operation."""
    command = [sys.executable, "-m", "tests.proof.concurrent_processes", json.dumps(asdict(order))]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
