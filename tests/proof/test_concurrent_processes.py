"""Processes that change one table concurrently: each result is true, and a serial order explains the rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from neve import Lake, Table
from tests.proof.audit import files_on_disk, reachable_files
from tests.proof.concurrent_processes import TABLE, Order, mark_of, marks_in, run_processes
from tests.proof.replay import replay
from tests.proof.results_ledger import Tally, new_tally
from tests.proof.statements_without_spark import COLUMNS, Statement, rows_of, table_without_spark
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


def new_table(settings: dict[str, str], version: int, partition: tuple[str, ...] = ("region",)) -> tuple[Lake, Table]:
    lake = connected(settings)
    if TABLE in lake.tables():
        lake.drop_table(TABLE)
    table = lake.create_table(TABLE, COLUMNS, partition, format_version=version)
    return lake, table_without_spark(lake.catalog, table.context.iceberg)


def check_results(table: Table, results: list[dict[str, Any]], folder: Path, tally: Tally) -> None:
    """Check that every outcome is true, that a serial order explains the history, and that no file is left behind."""
    statements = {s["key"]: Statement.of_json(s["statement"]) for s in results}
    makes_snapshot = {k for k, s in statements.items() if s.kind not in ("evolve", "manifests")}
    landed = {s["key"] for s in results if s["outcome"] == "acknowledged"} & makes_snapshot
    rejected = {s["key"] for s in results if s["outcome"].startswith("conflict") or s["outcome"] == "nothing to do"}
    with tally.case("every answer is typed"):
        odd = [s for s in results if s["outcome"].split(":")[0] not in ("acknowledged", "conflict", "nothing to do")]
        assert not odd, odd
    with tally.case("a serial order explains the rows"):
        tally.figure("snapshots replayed", replay(table, None, Counter(), statements, landed, rejected))
    with tally.case("columns and properties are there if acknowledged, and only then"):
        evolved = {k for k, s in statements.items() if s.kind == "evolve"}
        acknowledged = {s["key"] for s in results if s["outcome"] == "acknowledged"} & evolved
        assert marks_in(table) == {mark_of(key) for key in acknowledged}
    with tally.case("no file is left, none is missing"):
        assert files_on_disk(folder) == reachable_files(table)
        assert table.verify().is_sound


@pytest.mark.parametrize("catalog", CATALOGS)
@pytest.mark.parametrize("version", (2, 3, 4) if IS_FULL else (3,))
def test_concurrent_processes_get_true_results(settings: dict[str, str], catalog: str, version: int, tmp_path: Path):
    _, table = new_table(settings, version)
    name = f"{WRITERS} processes x {OPERATIONS} mixed operations: each acknowledged or a typed conflict, replay clean"
    with new_tally(name) as tally:
        results = run_processes(Order(settings, WRITERS, OPERATIONS, seed=version))
        tally.cases += len(results)
        outcomes = Counter(s["outcome"].split(":")[0] for s in results)
        tally.notes.append(f"{catalog} v{version}: {', '.join(f'{n} {word}' for word, n in sorted(outcomes.items()))}")
        assert len(results) == WRITERS * OPERATIONS
        check_results(table, results, tmp_path / "lake", tally)


@pytest.mark.skipif(not IS_FULL, reason="NEVE_PROOF=all compares with PyIceberg")
@pytest.mark.parametrize("catalog", CATALOGS)
def test_more_appends_are_acknowledged_than_by_pyiceberg(settings: dict[str, str], catalog: str, tmp_path: Path):
    shares = {}
    with new_tally(f"{WRITERS} processes x {OPERATIONS} appends: all acknowledged") as tally:
        for engine in ("append", "pyiceberg"):
            lake, table = new_table(settings, 2, ())
            known = settings | ({} if "uri" in settings else {"uri": str(lake.catalog.properties["uri"])})
            theirs = {"uri": known["uri"], "warehouse": (tmp_path / "lake").as_uri()}
            if engine == "pyiceberg" and catalog == "sqlite":
                theirs |= {"name": "neve"}
            started = monotonic()
            results = run_processes(
                Order(settings if engine == "append" else theirs, WRITERS, OPERATIONS, engine=engine)
            )
            shares[engine] = sum(s["outcome"] == "acknowledged" for s in results)
            total = WRITERS * OPERATIONS
            tally.notes.append(f"{catalog}, {engine}: {shares[engine]}/{total} in {monotonic() - started:.1f} s")
            assert sum(rows_of(table).values()) == shares[engine], "acknowledged rows are there, and no others"
            assert table.verify().is_sound
            tally.cases += len(results)
        assert shares["append"] == WRITERS * OPERATIONS >= shares["pyiceberg"]
