"""What drivers of Spark are told to do to the table of a ground, and what it shows when they meet no fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.proof.audit import State
from tests.proof.operations import Ground
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
BY_DRIVER = ("delete", "rewrite_position_deletes")  # no task of them writes a file
COMMON: Order = {"table": "db.t", "isolation": "serializable", "reruns": 0, "spec": "upgrade", "halt": None}


def orders(version: int) -> dict[str, Order]:
    """Every order that has something to do on a table of a version; from 3 on vectors need no packing."""
    fitting = [name for name in ORDERS if name != "rewrite_position_deletes" or version == 2]
    return {name: ORDERS[name] | COMMON for name in fitting}


def states(here: Ground, worker: Worker, name: str, order: Order) -> tuple[State, State]:
    """What the table shows before a statement, and after one that meets no fault."""
    here.restore(name)
    before = here.state()
    came = told(worker, order)
    assert came["landed"], came
    after = here.state()
    assert before != after
    return before, after


def told(worker: Worker, order: Order) -> dict[str, Any]:
    """What came of an order."""
    worker.tell(order)
    assert worker.hear() == {"ready": True}
    worker.tell("go")
    return worker.hear()


@contextmanager
def working(worker: Worker) -> Iterator[Worker]:
    assert worker.hear() == {"ready": True}
    try:
        yield worker
    finally:
        worker.stop()
