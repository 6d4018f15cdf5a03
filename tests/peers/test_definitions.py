"""Statements about definitions mean the same as in Spark with Iceberg: what they show, and the metadata they leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import neve
from neve.model.metadata import TableMetadata
from tests.peers.spark import Spark
from tests.support.coverage import own

DEFINITION = (
    "CREATE TABLE neve.shown.{table} (id bigint NOT NULL COMMENT 'it is the key', region string, at timestamp, "
    "s struct<x: int, y: array<decimal(10, 2)>>, m map<string, double>) USING iceberg PARTITIONED BY ({partition_by}) "
    "COMMENT 'sold' TBLPROPERTIES ('format-version' = '2', 'a' = 'b')"
)


@pytest.fixture(scope="module")
def shared(lake_folder: Path, spark: SparkSession, other_spark: Spark) -> neve.Lake:
    """A lake with tables that both engines describe."""
    lake = neve.connect(lake_folder, spark=spark)
    for table, partition_by in (("plain", "region"), ("derived", "days(at), bucket(4, id), truncate(2, region)")):
        lake.sql(DEFINITION.format(table=table, partition_by=partition_by))
        lake.sql(f"INSERT INTO shown.{table} (id, region) VALUES (1, 'eu'), (2, 'us')")
        lake.sql(f"ALTER TABLE shown.{table} WRITE LOCALLY ORDERED BY id, bucket(4, id) DESC")
    lake.sql("CREATE NAMESPACE described COMMENT 'web' LOCATION 'file:///tmp/x' WITH PROPERTIES (a = 'b', c = 'd')")
    return lake


def ask_both(lake: neve.Lake, other: Spark, text: str) -> tuple[list[Any], list[Any]]:
    theirs, ours = other.sql(text), lake.sql(text).toArrow()
    assert ours.column_names == theirs.column_names
    return [[*row.values()] for row in theirs.to_pylist()], [[*row.values()] for row in ours.to_pylist()]


@pytest.mark.parametrize(
    "text",
    [
        "DESCRIBE neve.shown.plain",
        "DESCRIBE neve.shown.derived",
        "DESCRIBE neve.shown.plain id",
        "DESCRIBE neve.shown.plain region",
        "DESCRIBE NAMESPACE EXTENDED neve.described",
        "DESCRIBE NAMESPACE neve.described",
        "SHOW COLUMNS IN neve.shown.plain",
        "SHOW TBLPROPERTIES neve.shown.plain",
        "SHOW TBLPROPERTIES neve.shown.plain ('a')",
        "SHOW TABLES IN neve.shown",
        "SHOW TABLES IN neve.shown LIKE 'PL*|x'",
        "SHOW NAMESPACES IN neve LIKE 'show*'",
        "SHOW TBLPROPERTIES neve.shown.plain ('comment')",
        "SHOW TBLPROPERTIES neve.shown.plain ('nope')",
    ],
)
def test_what_is_shown_is_what_spark_shows(shared: neve.Lake, other_spark: Spark, text: str):
    theirs, ours = ask_both(shared, other_spark, text)
    assert sorted(ours, key=str) == sorted(theirs, key=str) if text.startswith("SHOW TABLES") else ours == theirs


def test_the_details_of_a_table_are_those_of_spark(shared: neve.Lake, other_spark: Spark):
    theirs, ours = ask_both(shared, other_spark, "DESCRIBE EXTENDED neve.shown.plain")
    of_both = [row for row in theirs if row in ours]
    missing = [row[0] for row in theirs if row not in ours]
    assert len(of_both) > 20 and missing == ["_deleted", "Table_type", "Statistics"]


def test_the_text_about_a_table_is_that_of_spark(shared: neve.Lake, other_spark: Spark):
    """Spark puts a comma between the letters of the properties."""
    (theirs,), (ours,) = ask_both(shared, other_spark, "SHOW TABLE EXTENDED IN neve.shown LIKE 'plain'")
    assert ours[:3] == theirs[:3]
    ignored = ("Table Properties: ", "Table_type: ", "Owner: ")
    lines = [[line for line in row[3].splitlines() if line and not line.startswith(ignored)] for row in (ours, theirs)]
    assert lines[0] == lines[1] and len(lines[0]) > 12


def test_a_definition_that_is_shown_can_be_run_by_both(shared: neve.Lake, other_spark: Spark):
    ((theirs,),), ((ours,),) = ask_both(shared, other_spark, "SHOW CREATE TABLE neve.shown.derived")
    ignored = ("'current-snapshot-id'", "'format' ", "'sort-order'", "--")
    lines = [
        [line.rstrip(",)") for line in text.splitlines() if not line.strip().startswith(ignored)]
        for text in (ours, theirs)
    ]
    assert lines[0] == lines[1]
    before = shared.table("shown.derived").context.metadata
    other_spark.sql(ours.replace(".derived", ".again").replace("/derived", "/again"))
    after = shared.table("shown.again").context.metadata
    assert after.schema() == before.schema() and after.spec() == before.spec()


REPLACEMENTS = {
    "columns": ["CREATE OR REPLACE TABLE {t} (w string, v int, region string) USING iceberg PARTITIONED BY (region)"],
    "transforms": [
        "REPLACE TABLE {t} (id bigint, v int) USING iceberg PARTITIONED BY (bucket(4, id))",
        "CREATE OR REPLACE TABLE {t} (region string, id bigint) USING iceberg PARTITIONED BY (truncate(2, region), "
        "bucket(4, id)) TBLPROPERTIES ('a' = 'b')",
    ],
    "rows": [
        "CREATE OR REPLACE TABLE {t} USING iceberg PARTITIONED BY (region) AS "
        "SELECT upper(region) AS region, id FROM {t}",
        "REPLACE TABLE {t} USING iceberg AS SELECT * FROM {t} WHERE id = 1",
    ],
    "nested columns": [
        "REPLACE TABLE {t} (s struct<x: int, y: array<struct<z: int>>>, m map<string, int>, `y` int) USING iceberg "
        "PARTITIONED BY (s.x, bucket(8, s.x))",
        "REPLACE TABLE {t} (m map<string, int>, s struct<y: array<struct<z: int, w: string>>, x: int>, v int) "
        "USING iceberg PARTITIONED BY (bucket(8, s.x))",
    ],
    "and back": [
        "REPLACE TABLE {t} (x int) USING iceberg",
        "REPLACE TABLE {t} (id bigint, region string, v int) USING iceberg PARTITIONED BY (region)",
    ],
}
CHANGES = {
    "orders": [
        "ALTER TABLE {t} WRITE ORDERED BY id DESC, bucket(4, id) NULLS LAST",
        "ALTER TABLE {t} WRITE LOCALLY ORDERED BY region",
        "ALTER TABLE {t} WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY id DESC",
        "ALTER TABLE {t} WRITE UNORDERED",
    ],
    "references": [
        "ALTER TABLE {t} CREATE BRANCH b RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS 3 HOURS",
        "ALTER TABLE {t} CREATE OR REPLACE BRANCH b WITH SNAPSHOT RETENTION 4 SNAPSHOTS",
        "ALTER TABLE {t} REPLACE BRANCH b RETAIN 9 MINUTES",
        "ALTER TABLE {t} CREATE OR REPLACE TAG v RETAIN 1 DAYS",
    ],
    "truncation": ["TRUNCATE TABLE {t}"],
}


@pytest.mark.parametrize(
    ("case", "version"),
    [(case, version) for case in (*REPLACEMENTS, *CHANGES) for version in own(case, (1, 2, 3))],
)
def test_both_leave_the_same_metadata(shared: neve.Lake, other_spark: Spark, case: str, version: int):
    statements, left = {**REPLACEMENTS, **CHANGES}[case], []
    for engine in ("ours", "theirs"):
        name = f"left.{case.replace(' ', '_')}_{version}_{engine}"
        table = shared.create_table(name, "id bigint, region string, v int", ["region"], format_version=version)
        table.append([{"id": 1, "region": "eu", "v": 10}, {"id": 2, "region": "us", "v": 20}])
        texts = [text.format(t=f"neve.{name}") for text in statements]
        if engine == "ours":
            for text in texts:
                shared.sql(text)
        else:
            other_spark.sql(*texts, "SELECT 1")
        rows = sorted(map(str, table.to_arrow().to_pylist()))
        assert rows == sorted(map(str, other_spark.sql(f"SELECT * FROM neve.{name}").to_pylist()))
        left.append((definition(table.refresh().context.metadata), rows))
    assert left[0] == left[1]


def definition(metadata: TableMetadata) -> dict[str, Any]:
    """What a replacement decides; ids of snapshots differ."""
    snapshots = {snapshot.snapshot_id: at for at, snapshot in enumerate(metadata.snapshots)}
    refs = {name: (ref.model_dump(), snapshots[ref.snapshot_id]) for name, ref in metadata.refs.items()}
    for shown, _ in refs.values():
        shown.pop("snapshot_id", None)
        shown.pop("snapshot-id", None)
    own = {
        name: value
        for name, value in metadata.properties.items()
        if name not in ("owner", "write.parquet.compression-codec")
    }
    return {
        "schemas": [str(schema) for schema in metadata.schemas],
        "schema": metadata.current_schema_id,
        # In version 1, Iceberg lets a void field and another column have one name.
        "specs": [str(spec).replace("region_1000: void", "region: void") for spec in metadata.partition_specs],
        "spec": metadata.default_spec_id,
        "orders": [(order.order_id, str(order)) for order in metadata.sort_orders],
        "order": metadata.default_sort_order_id,
        "last ids": (metadata.last_column_id, metadata.last_partition_id),
        "version": metadata.format_version,
        "properties": own,
        "refs": refs,
        "log": [snapshots[entry.snapshot_id] for entry in metadata.snapshot_log],
        "operations": [snapshot.summary.operation for snapshot in metadata.snapshots if snapshot.summary],
    }
