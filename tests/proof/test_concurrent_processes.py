"""Processes that do different things to one table at once: each is told the truth, and a serial order explains all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from neve import Lake, Table
from tests.proof.audit import on_disk, reachable
from tests.proof.concurrent_processes import TABLE, Order, mark_of, marks_in, told
from tests.proof.replay import replay
from tests.proof.results_ledger import Tally, tallied
from tests.proof.statements_without_spark import COLUMNS, Statement, in_hand, rows_of
from tests.support.coverage import IS_FULL
from tests.support.writer_processes import connected

WRITERS, OPERATIONS = (8, 10) if IS_FULL else (3, 3)
CATALOGS = ("sqlite", "postgres") if IS_FULL else ("sqlite",)


@pytest.fixture
def settings(request: pytest.FixtureRequest, catalog: str, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "lake").mkdir()
    if catalog == "sqlite":
        return {"folder": str(tmp_path / "lake")}
    return {"uri": request.getfixturevalue("server").uri, "warehouse": (tmp_path / "lake").as_uri()}


def made(settings: dict[str, str], version: int, partition: tuple[str, ...] = ("region",)) -> tuple[Lake, Table]:
    lake = connected(settings)
    if TABLE in lake.tables():
        lake.drop_table(TABLE)
    table = lake.create_table(TABLE, COLUMNS, partition, format_version=version)
    return lake, in_hand(lake.catalog, table.context.iceberg)


def judge(table: Table, said: list[dict[str, Any]], folder: Path, tally: Tally) -> None:
    """Every operation ended in an answer that is true; the history is explained; nothing is left behind."""
    statements = {s["key"]: Statement.of_json(s["statement"]) for s in said}
    makes_snapshot = {k for k, s in statements.items() if s.kind not in ("evolve", "manifests")}
    landed = {s["key"] for s in said if s["came"] == "acknowledged"} & makes_snapshot
    refused = {s["key"] for s in said if s["came"].startswith("conflict") or s["came"] == "nothing to do"}
    with tally.case("every answer is typed"):
        odd = [s for s in said if s["came"].split(":")[0] not in ("acknowledged", "conflict", "nothing to do")]
        assert not odd, odd
    with tally.case("a serial order explains the rows"):
        tally.figure("snapshots replayed", replay(table, None, Counter(), statements, landed, refused))
    with tally.case("columns and properties are there if acknowledged, and only then"):
        evolved = {k for k, s in statements.items() if s.kind == "evolve"}
        acknowledged = {s["key"] for s in said if s["came"] == "acknowledged"} & evolved
        assert marks_in(table) == {mark_of(key) for key in acknowledged}
    with tally.case("no file is left, none is missing"):
        assert on_disk(folder) == reachable(table)
        assert table.verify().is_sound


@pytest.mark.parametrize("catalog", CATALOGS)
@pytest.mark.parametrize("version", (2, 3, 4) if IS_FULL else (3,))
def test_a_crowd_of_processes_is_told_the_truth(settings: dict[str, str], catalog: str, version: int, tmp_path: Path):
    _, table = made(settings, version)
    name = f"{WRITERS} processes x {OPERATIONS} mixed operations: each acknowledged or a typed conflict, replay clean"
    with tallied(name) as tally:
        said = told(Order(settings, WRITERS, OPERATIONS, seed=version))
        tally.cases += len(said)
        came = Counter(s["came"].split(":")[0] for s in said)
        tally.notes.append(f"{catalog} v{version}: {', '.join(f'{n} {word}' for word, n in sorted(came.items()))}")
        assert len(said) == WRITERS * OPERATIONS
        judge(table, said, tmp_path / "lake", tally)


@pytest.mark.skipif(not IS_FULL, reason="NEVE_PROOF=all compares with PyIceberg")
@pytest.mark.parametrize("catalog", CATALOGS)
def test_more_appends_are_acknowledged_than_by_pyiceberg(settings: dict[str, str], catalog: str, tmp_path: Path):
    shares = {}
    with tallied(f"{WRITERS} processes x {OPERATIONS} appends: all acknowledged") as tally:
        for engine in ("append", "pyiceberg"):
            lake, table = made(settings, 2, ())
            known = settings | ({} if "uri" in settings else {"uri": str(lake.catalog.properties["uri"])})
            theirs = {"uri": known["uri"], "warehouse": (tmp_path / "lake").as_uri()}
            if engine == "pyiceberg" and catalog == "sqlite":
                theirs |= {"name": "neve"}
            started = monotonic()
            said = told(Order(settings if engine == "append" else theirs, WRITERS, OPERATIONS, engine=engine))
            shares[engine] = sum(s["came"] == "acknowledged" for s in said)
            total = WRITERS * OPERATIONS
            tally.notes.append(f"{catalog}, {engine}: {shares[engine]}/{total} in {monotonic() - started:.1f} s")
            assert sum(rows_of(table).values()) == shares[engine], "acknowledged rows are there, and no others"
            assert table.verify().is_sound
            tally.cases += len(said)
        assert shares["append"] == WRITERS * OPERATIONS >= shares["pyiceberg"]
