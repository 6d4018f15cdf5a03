"""What is done with a hostile table: reading, looking, auditing, planning, and, where it is to be tried, deleting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

import neve
from neve.ops.audit.verify import Audit
from tests.hostile.honest_tables import Place

CONDITION = "id >= 2 AND (region = 'eu' OR amount > 0)"
FAR = 1 << 42  # a time in milliseconds that is later than every snapshot and file
VIEWS = ("files", "entries", "manifests", "partitions", "specs", "snapshots", "history", "refs", "tree")


def rows_of(table: pa.Table) -> list[str]:
    """Rows in an order of their own, so that they can be compared; NaN and -0.0 are told apart."""
    return sorted(repr(tuple(row.values())) for row in table.to_pylist())


def _scan(**asked: Any) -> Callable[[neve.Table], Any]:
    return lambda t: rows_of(t.scan(**asked).to_arrow(engine="arrow"))


def _inspect(t: neve.Table) -> None:
    for view in VIEWS:
        getattr(t.inspect, view)()


def _expire(t: neve.Table) -> Any:
    return t.expire_snapshots().older_than(FAR).retain_last(1)


def _orphans(t: neve.Table) -> Any:
    return t.remove_orphan_files().older_than(FAR).allow_young()


ROWS: dict[str, Callable[[neve.Table], list[str]]] = {
    "scan": _scan(),
    "filtered scan": _scan(where=CONDITION),
    "scan of a tag": _scan(ref="kept"),
}
ALWAYS: dict[str, Callable[[neve.Table], Any]] = {"verify": lambda t: t.verify()}
IN_TURN: dict[str, Callable[[neve.Table], Any]] = {
    "inspect": _inspect,
    "rewrite_manifests": lambda t: t.rewrite_manifests().plan(),
    "expire_snapshots": lambda t: _expire(t).plan(),
    "remove_orphan_files": lambda t: _orphans(t).plan(),
    "rewrite_data_files": lambda t: t.rewrite_data_files().plan(),
    "remove_dangling_deletes": lambda t: t.remove_dangling_deletes().plan(),
    "rewrite_position_deletes": lambda t: t.rewrite_position_deletes().plan(),
    "maintain": lambda t: t.maintain().plan(),
}
DELETING: dict[str, Callable[[neve.Table], Any]] = {
    "append": lambda t: t.append([{"id": 1, "region": "eu", "amount": 0.5}]),
    "append again": lambda t: t.append([{"id": 2, "region": "eu", "amount": 0.5}]),
    "expire for good": lambda t: _expire(t).execute(),
    "remove orphans for good": lambda t: _orphans(t).dry_run(False).execute(),
    "drop with purge": lambda t: neve.Lake(t.context.catalog).drop_table("db.t", purge=True),
}


def verbs_for(turn: int, *, deletes: bool) -> dict[str, Callable[[neve.Table], Any]]:
    """The verbs of one case: reading and auditing always, then one of the others in turn, or those that delete."""
    names = list(IN_TURN)
    others = DELETING if deletes else {names[turn % len(names)]: IN_TURN[names[turn % len(names)]]}
    return {**ROWS, **ALWAYS, **others}


def baseline(place: Place) -> dict[str, list[str]]:
    """The rows of the honest table."""
    table = place.table()
    return {name: verb(table) for name, verb in ROWS.items()}


def told(result: Any) -> dict[str, Any]:
    """What a verb returned, as far as it is judged."""
    if isinstance(result, list):
        return {"rows": result}
    if isinstance(result, Audit):
        return {"findings": len(result.findings), "said": str(result)}
    return {}
