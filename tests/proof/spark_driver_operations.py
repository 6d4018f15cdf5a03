"""The statements that Spark drivers run on a table, and the state of the table after them without a fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.proof.audit import State
from tests.proof.operations import RestorableLake
from tests.proof.statements_without_spark import COLUMNS
from tests.support.compaction_process import Order, Worker

MERGED = [{"id": 2, "region": "us", "n": 9, "note": "x"}, {"id": 99, "region": "eu", "n": 9, "note": "new"}]
ORDERS: dict[str, Order] = {
    "append": {"do": "insert", "rows": [[90, "eu", 0, "x"], [91, "us", 0, "x"]], "columns": COLUMNS},
    "delete": {"do": "delete", "where": "id = 2", "mode": "merge-on-read"},
    "update": {"do": "update", "where": "region = 'eu'", "set": {"n": "n + 1"}, "mode": "merge-on-read"},
    "update, copied": {"do": "update", "where": "region = 'eu'", "set": {"n": "n + 1"}, "mode": "copy-on-write"},
    "delete, copied": {"do": "delete", "where": "id = 2", "mode": "copy-on-write"},
    "merge": {"do": "merge", "rows": MERGED, "mode": "merge-on-read"},
    "merge, copied": {"do": "merge", "rows": MERGED, "mode": "copy-on-write"},
    "compact": {"do": "compact", "where": None, "options": {"rewrite-all": "true"}, "verifies": True, "sort": []},
    "rewrite_position_deletes": {"do": "pack_deletes", "options": {"rewrite-all": "true"}},
}
BY_DRIVER = ("delete", "rewrite_position_deletes")  # their tasks write no files
BY_EXCHANGE = ("append", "update, copied", "merge, copied", "delete, copied", "compact")  # rows meet by partition
COMMON: Order = {"table": "db.t", "isolation": "serializable", "reruns": 0, "spec": "upgrade", "halt": None}


def orders(version: int) -> dict[str, Order]:
    """Return the orders that apply to a format version. From version 3 on, deletion vectors need no packing."""
    fitting = [name for name in ORDERS if name != "rewrite_position_deletes" or version == 2]
    return {name: ORDERS[name] | COMMON for name in fitting}


def states(case_lake: RestorableLake, worker: Worker, name: str, order: Order) -> tuple[State, State]:
    """Return the state of the table before a statement, and after it without a fault."""
    case_lake.restore(name)
    before = case_lake.state()
    result = run_order(worker, order)
    assert result["landed"], result
    after = case_lake.state()
    assert before != after
    return before, after


def run_order(worker: Worker, order: Order) -> dict[str, Any]:
    """Run an order in a driver; return the result."""
    worker.tell(order)
    assert worker.hear() == {"ready": True}
    worker.tell("go")
    return worker.hear()


@contextmanager
def ready_worker(worker: Worker) -> Iterator[Worker]:
    assert worker.hear() == {"ready": True}
    try:
        yield worker
    finally:
        worker.stop()
