"""Views in a catalog that Névé and Spark with Iceberg share: each reads, describes and replaces those of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from neve.errors import NeveError
from tests.peers.engine_comparison import SharedLake
from tests.peers.spark import SparkSaid

TABLES = (
    "CREATE TABLE views.t (id bigint, region string, price decimal(9,2)) USING iceberg PARTITIONED BY (region)",
    "INSERT INTO views.t VALUES (1, 'eu', 1.50), (2, 'us', 2.50), (3, 'eu', NULL)",
)
DEFINITIONS = (
    "CREATE VIEW {v} AS SELECT * FROM views.t",
    "CREATE OR REPLACE VIEW {v} (nr COMMENT 'the number', place) COMMENT 'in Europe' TBLPROPERTIES ('a' = 'b', 'c' = "
    "'it''s') AS SELECT id, upper(region) FROM views.t WHERE region = 'eu'",
    "ALTER VIEW {v} SET TBLPROPERTIES ('d' = 'e', 'a' = 'x')",
    "ALTER VIEW {v} UNSET TBLPROPERTIES ('c')",
    "CREATE OR REPLACE VIEW {v} AS WITH big AS (SELECT region, sum(price) AS total FROM views.t GROUP BY region) "
    "SELECT total, big.region FROM big JOIN views.t USING (region)",
    "CREATE OR REPLACE VIEW {v} AS SELECT a.id FROM neve.views.t AS a WHERE a.id IN (SELECT max(id) FROM views.t)",
    "CREATE OR REPLACE VIEW {v} AS SELECT * FROM views.t",
    "ALTER TABLE views.t ADD COLUMN more int",
    "ALTER TABLE views.t DROP COLUMN more",
    "ALTER TABLE views.t RENAME COLUMN price TO amount",
    "CREATE OR REPLACE VIEW {v} AS SELECT amount, id + 1, count(*) OVER () AS n FROM views.t",
)
REFUSED = (
    "CREATE VIEW {v} AS SELECT 1 AS a",
    "CREATE VIEW views.t AS SELECT 1 AS a",
    "CREATE VIEW views.new (a) AS SELECT 1, 2",
    "CREATE VIEW views.new AS SELECT 1 AS a, 2 AS A",
    "CREATE VIEW views.new AS SELECT * FROM views.nowhere",
    "ALTER VIEW {v} AS SELECT 1",
    "ALTER VIEW {v} RENAME TO views.t",
    "DROP VIEW views.nowhere",
    "DROP TABLE {v}",
    "INSERT INTO {v} VALUES (1)",
    "SELECT * FROM {v} VERSION AS OF 1",
    "DROP NAMESPACE views",
)


@dataclass(frozen=True)
class Side:
    view: str
    run: Callable[[str], Any]


@pytest.fixture
def sides(shared_lake: SharedLake) -> Iterator[tuple[Side, Side]]:
    lake, spark = shared_lake.lake, shared_lake.spark

    def by_neve(text: str) -> Any:
        result = lake.sql(text)
        return result.toArrow().to_pylist() if text.startswith(("SELECT", "SHOW", "DESC")) else None

    for statement in TABLES:
        lake.sql(statement)
    yield Side("views.ours", by_neve), Side("views.theirs", lambda text: spark.sql(text).to_pylist())
    for view in lake.views("views"):
        lake.sql(f"DROP VIEW {view}")
    lake.drop_table("views.t", purge=True)


def described(side: Side, view: str) -> list[Any]:
    """What an engine says of a view, as if both had one name."""
    shown = [
        row
        for question in ("DESCRIBE EXTENDED {v}", "SHOW TBLPROPERTIES {v}")
        for row in side.run(question.format(v=view))
        if row.get("col_name") != "Created By"  # the engine
    ]
    shown = [{name: (value or "").replace("theirs", "ours") for name, value in row.items()} for row in shown]
    return sorted(shown, key=lambda row: row.get("key", ""))  # Spark says properties in no order


def test_both_engines_read_and_describe_the_views_of_both(sides: tuple[Side, Side], shared_lake: SharedLake):
    ours, theirs = sides
    for statement in DEFINITIONS:
        for side in sides if "{v}" in statement else sides[:1]:
            side.run(statement.format(v=side.view))
        for view in (ours.view, theirs.view):
            rows = [sorted(map(repr, side.run(f"SELECT * FROM {view}"))) for side in sides]
            assert rows[0] == rows[1] and rows[0], (statement, view)
        assert ours.run(f"SELECT * FROM {ours.view}") and described(ours, ours.view) == described(theirs, theirs.view)
        assert described(ours, theirs.view) == described(theirs, ours.view)
    histories = [
        [entry.version_id for entry in shared_lake.lake.view(view).history()] for view in (ours.view, theirs.view)
    ]
    assert histories[0] == histories[1] and len(histories[0]) == 6, "the first definition came back as it was"
    shown = [
        [(row["namespace"], row["viewName"]) for row in side.run("SHOW VIEWS IN views") if not row["isTemporary"]]
        for side in sides  # other tests may have left temporary views in Spark's session
    ]
    assert sorted(shown[0]) == sorted(shown[1]) == [("views", "ours"), ("views", "theirs")]


def test_each_engine_replaces_and_drops_a_view_of_the_other(sides: tuple[Side, Side]):
    for maker, other in (sides, sides[::-1]):
        maker.run(f"CREATE VIEW {maker.view} TBLPROPERTIES ('k' = 'v') AS SELECT id FROM views.t")
        other.run(f"CREATE OR REPLACE VIEW {maker.view} AS SELECT id, region FROM views.t WHERE id > 1")
        for side in sides:
            found = side.run(f"SELECT * FROM {maker.view} ORDER BY id")
            assert [row["id"] for row in found] == [2, 3]
            assert {"key": "k", "value": "v"} in side.run(f"SHOW TBLPROPERTIES {maker.view}")
        other.run(f"ALTER VIEW {maker.view} RENAME TO views.renamed")
        assert len(maker.run("SELECT * FROM views.renamed")) == 2
        maker.run("DROP VIEW views.renamed")
        with pytest.raises((NeveError, SparkSaid)):
            other.run("SELECT * FROM views.renamed")


@pytest.mark.parametrize("statement", REFUSED)
def test_both_engines_refuse(sides: tuple[Side, Side], statement: str):
    for side in sides:
        side.run(f"CREATE VIEW {side.view} AS SELECT id FROM views.t")
        with pytest.raises((NeveError, SparkSaid)):
            side.run(statement.format(v=side.view))
        assert len(side.run(f"SELECT * FROM {side.view}")) == 3
