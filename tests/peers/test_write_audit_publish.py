"""Névé and Spark with Iceberg stage, publish and pick the same: equal rows, snapshots, branches and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from neve import Lake
from neve.errors import NeveError
from tests.peers.engine_comparison import SharedLake
from tests.peers.spark import SparkSaid

OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
SUMMARY = ("wap.id", "published-wap-id", "replace-partitions", "total-records", "changed-partition-count")
PUBLISH = "CALL neve.system.publish_changes(table => '{t}', wap_id => '%s')"
PICK = "CALL neve.system.cherrypick_snapshot(table => '{t}', snapshot_id => {ids[%d]})"
Step = tuple[dict[str, str], str]
STAGED, TO_BRANCH = "spark.wap.id", "spark.wap.branch"

STEPS: tuple[Step, ...] = (  # the options of the session, and a statement; {ids[3]} is the fourth snapshot
    ({}, "INSERT INTO {t} VALUES (1, 'eu'), (2, 'us')"),
    ({STAGED: "a"}, "INSERT INTO {t} VALUES (3, 'eu')"),
    ({STAGED: "b"}, "INSERT OVERWRITE {t} VALUES (9, 'us')"),
    ({STAGED: "b"}, "SELECT * FROM {t}"),
    ({}, PUBLISH % "nobody"),
    ({}, PUBLISH % "a"),  # main moves to it
    ({}, PUBLISH % "a"),
    ({}, PUBLISH % "b"),  # applied again
    ({}, PUBLISH % "b"),
    ({}, PICK % 1),
    ({}, "ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)"),
    ({STAGED: "c"}, "INSERT INTO {t} VALUES (4, 'eu')"),
    ({}, "INSERT INTO {t} VALUES (5, 'us')"),
    ({}, PUBLISH % "c"),
    ({STAGED: "d"}, "UPDATE {t} SET region = 'as' WHERE id = 1"),
    ({}, "INSERT INTO {t} VALUES (6, 'eu')"),
    ({}, PUBLISH % "d"),  # an update cannot be applied again
    ({STAGED: "e"}, "UPDATE {t} SET region = 'as' WHERE id = 9"),
    ({}, PUBLISH % "e"),
    ({STAGED: "f"}, "INSERT OVERWRITE {t} VALUES (7, 'eu')"),
    ({}, "INSERT INTO {t} VALUES (7, 'eu')"),
    ({}, PUBLISH % "f"),  # its partition has another file
    ({STAGED: "g"}, "INSERT INTO {t} VALUES (10, 'eu')"),
    ({STAGED: "g"}, "INSERT INTO {t} VALUES (11, 'eu')"),
    ({}, PUBLISH % "g"),  # which of the two?
    ({}, PICK % 12),
    ({}, PICK % 13),  # its id is published
    ({TO_BRANCH: "audit"}, "SELECT * FROM {t}"),
    ({TO_BRANCH: "audit"}, "INSERT INTO {t} VALUES (12, 'eu')"),
    ({TO_BRANCH: "audit"}, "DELETE FROM {t} WHERE id IN (SELECT max(id) FROM {t})"),
    ({TO_BRANCH: "audit"}, "INSERT INTO {t} VALUES (13, 'eu')"),
    ({TO_BRANCH: "audit"}, "SELECT * FROM {t}"),
    ({TO_BRANCH: "audit"}, "SELECT * FROM {t} VERSION AS OF 'main'"),
    ({TO_BRANCH: "audit", STAGED: "h"}, "INSERT INTO {t} VALUES (14, 'eu')"),
    ({}, "CALL neve.system.fast_forward(table => '{t}', branch => 'main', to => 'audit')"),
)


@dataclass(frozen=True)
class Side:
    """One of the two engines, with a table of its own."""

    table: str
    run: Callable[[dict[str, str], str], pa.Table | None]

    def outcome(self, lake: Lake, step: Step) -> dict[str, Any]:
        """Run a step; return what came of it, with snapshots named by their position."""
        options, text = step
        ids = [s.snapshot_id for s in lake.table(self.table).context.metadata.snapshots]
        rows: list[dict[str, Any]] | str | None = None
        try:
            found = self.run(options, text.format(t=self.table, ids=ids))
        except (NeveError, SparkSaid):
            rows = "refused"
        else:
            rows = None if found is None else found.to_pylist()
        metadata = lake.table(self.table).context.metadata
        numbers = {s.snapshot_id: f"snapshot {n}" for n, s in enumerate(metadata.snapshots)}
        if isinstance(rows, list):
            rows = sorted(({n: numbers.get(v, v) for n, v in row.items()} for row in rows), key=repr)
        return {
            "rows": rows,
            "refs": {name: numbers[ref.snapshot_id] for name, ref in metadata.refs.items()},
            "history": [numbers[entry.snapshot_id] for entry in metadata.snapshot_log],
            "newest": self._describe(metadata.snapshots[-1], numbers, metadata.refs) if metadata.snapshots else None,
        }

    def _describe(self, snapshot: Any, numbers: dict[int, str], refs: Any) -> dict[str, Any]:
        summary = dict(snapshot.summary.additional_properties)
        if "audit" in refs:  # Spark with Iceberg counts the totals of a branch that it creates from 0
            del summary["total-records"]
        source = summary.get("source-snapshot-id")
        return {
            "parent": numbers.get(snapshot.parent_snapshot_id),
            "operation": snapshot.summary.operation.value,
            "source": None if source is None else numbers[int(source)],
            **{key: summary.get(key) for key in SUMMARY},
        }


@pytest.fixture
def sides(shared_lake: SharedLake) -> Iterator[tuple[Side, Side]]:
    spark, lake = shared_lake.lake.spark(), shared_lake.lake

    @contextmanager
    def session_options(options: dict[str, str]) -> Iterator[None]:
        try:
            for name, value in options.items():
                spark.conf.set(name, value)
            yield
        finally:
            for name in options:
                spark.conf.unset(name)

    def by_neve(options: dict[str, str], text: str) -> pa.Table | None:
        with session_options({OVERWRITE_MODE: "dynamic", **options}):
            result = lake.sql(text)
            if text.startswith("SELECT"):
                return result.toArrow()
            return result.output_rows if text.startswith("CALL") else None

    def by_spark(options: dict[str, str], text: str) -> pa.Table | None:
        chosen = {OVERWRITE_MODE: "dynamic", **options}
        try:
            found = shared_lake.spark.sql(*(f"SET {name}={value}" for name, value in chosen.items()), text)
            return found if text.startswith(("SELECT", "CALL")) else None
        finally:
            shared_lake.spark.sql(*(f"RESET {name}" for name in chosen), "SELECT 1")

    yield Side("wap.neve", by_neve), Side("wap.spark", by_spark)
    for name in ("wap.neve", "wap.spark"):
        lake.drop_table(name, purge=True)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_both_engines_stage_and_publish_alike(shared_lake: SharedLake, sides: tuple[Side, Side], version: int):
    properties = f"'write.wap.enabled' = 'true', 'format-version' = '{version}'"
    for side in sides:
        text = f"(id bigint, region string) USING iceberg PARTITIONED BY (region) TBLPROPERTIES ({properties})"
        shared_lake.lake.sql(f"CREATE TABLE {side.table} {text}")
    for step in STEPS:
        ours, theirs = (side.outcome(shared_lake.lake, step) for side in sides)
        for part, value in ours.items():
            assert value == theirs[part], step
        ours_now, theirs_now = (
            shared_lake.spark.sql(f"SELECT * FROM {side.table} ORDER BY id, region") for side in sides
        )
        assert ours_now.to_pylist() == theirs_now.to_pylist(), step
    ours_found, theirs_found = (shared_lake.lake.table(side.table).verify().findings for side in sides)
    assert not ours_found
    assert {finding.kind for finding in theirs_found} == {"summary"}, "the totals of the branch that it created"
