"""The operations on a hostile table: scans, inspection, audits, plans and, for some cases, deletions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

import neve
from neve.model.metadata_table_names import METADATA_TABLES
from neve.ops.audit.verify import Audit
from tests.hostile.honest_tables import DamagedLake

CONDITION = "id >= 2 AND (region = 'eu' OR amount > 0)"
FAR_FUTURE_MS = 1 << 42  # a time in milliseconds that is later than every snapshot and file


def rows_of(table: pa.Table) -> list[str]:
    """Return rows in a fixed order for comparison; NaN and -0.0 are distinct values."""
    return sorted(repr(tuple(row.values())) for row in table.to_pylist())


def _scan(**options: Any) -> Callable[[neve.Table], Any]:
    return lambda t: rows_of(t.scan(**options).to_arrow(engine="arrow"))


def _inspect(t: neve.Table) -> None:
    for view in METADATA_TABLES:
        getattr(t.inspect, view)()


def _expire(t: neve.Table) -> Any:
    return t.expire_snapshots().older_than(FAR_FUTURE_MS).retain_last(1)


def _orphans(t: neve.Table) -> Any:
    return t.remove_orphan_files().older_than(FAR_FUTURE_MS).allow_young()


ROWS: dict[str, Callable[[neve.Table], list[str]]] = {
    "scan": _scan(),
    "filtered scan": _scan(where=CONDITION),
    "scan of a tag": _scan(ref="kept"),
}
ALWAYS: dict[str, Callable[[neve.Table], Any]] = {"verify": lambda t: t.verify()}
TAKING_TURNS: dict[str, Callable[[neve.Table], Any]] = {
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
    """Return the verbs of one case: scans and audit, then one of the others in turn, or those that delete."""
    names = list(TAKING_TURNS)
    others = DELETING if deletes else {names[turn % len(names)]: TAKING_TURNS[names[turn % len(names)]]}
    return {**ROWS, **ALWAYS, **others}


def baseline(lake: DamagedLake) -> dict[str, list[str]]:
    """Return the rows of the valid table."""
    table = lake.table()
    return {name: verb(table) for name, verb in ROWS.items()}


def summarize_result(result: Any) -> dict[str, Any]:
    """Return the part of a result that is checked."""
    if isinstance(result, list):
        return {"rows": result}
    if isinstance(result, Audit):
        return {"findings": len(result.findings), "message": str(result)}
    return {}
