"""dbt-spark in session mode on an attached lake: seeds, views, incremental MERGE models, snapshots, tests and docs.

`make tools` runs this file in an environment of its own, because dbt needs other versions of what the tests use.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import neve

dbt_main = pytest.importorskip("dbt.cli.main", reason="dbt is not installed: run `make tools`")

FILES = {
    "dbt_project.yml": """
        {name: shop, version: "1.0", config-version: 2, profile: shop, models: {shop: {+file_format: iceberg}}}
    """,
    "profiles.yml": """
        shop: {target: dev, outputs: {dev: {type: spark, method: session, schema: shop, host: NA, threads: 2}}}
    """,
    "seeds/regions.csv": "code,name\neu,Europe\nus,America\n",
    "models/models.yml": """
version: 2
sources: [{name: raw, schema: raw, tables: [{name: orders}]}]
models:
  - name: orders
    description: "all orders"
    columns:
      - {name: id, description: "the key", data_tests: [unique, not_null]}
      - {name: region_name, data_tests: [{accepted_values: {arguments: {values: [Europe, America]}}}]}
""",
    "models/some_orders.sql": """
        {{ config(materialized='view') }}
        select id, region, amount, updated_at from {{ source('raw', 'orders') }} where amount is not null
    """,
    "models/orders.sql": """
        {{ config(materialized='incremental', incremental_strategy='merge', unique_key='id', partition_by=['region'],
                  on_schema_change='append_new_columns', persist_docs={'relation': true, 'columns': true}) }}
        select o.id, o.region, o.amount, o.updated_at, r.name as region_name
        from {{ ref('some_orders') }} o left join {{ ref('regions') }} r on o.region = r.code
        {% if is_incremental() %} where o.updated_at > (select max(updated_at) from {{ this }}) {% endif %}
    """,
    "models/totals.sql": """
        {{ config(materialized='table') }}
        select region, sum(amount) as total, count(*) as n from {{ ref('orders') }} group by region
    """,
    "models/runs.sql": """
        {{ config(materialized='incremental', incremental_strategy='append') }}
        select max(id) as last_id from {{ ref('orders') }}
    """,
    "snapshots/history.sql": """
        {% snapshot history %}
        {{ config(target_schema='shop', unique_key='id', strategy='timestamp', updated_at='updated_at',
                  file_format='iceberg') }}
        select * from {{ source('raw', 'orders') }}
        {% endsnapshot %}
    """,
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[neve.Lake]:
    """A lake whose table was partitioned anew, and lost a column."""
    lake = neve.connect(tmp_path / "lake")
    spark = lake.spark()
    neve.attach(spark, lake, name="lake", default=True)
    for statement in (
        "CREATE NAMESPACE shop",
        "CREATE TABLE raw.orders (id bigint, region string, amount decimal(9, 2), updated_at timestamp, old string) "
        "USING iceberg PARTITIONED BY (region)",
        "INSERT INTO raw.orders VALUES (1, 'eu', 1.5, timestamp'2026-01-01', 'x'), "
        "(2, 'us', 2.5, timestamp'2026-01-02', 'x'), (3, 'eu', null, timestamp'2026-01-03', 'x')",
        "ALTER TABLE raw.orders DROP COLUMN old",
        "ALTER TABLE raw.orders ADD PARTITION FIELD bucket(2, id)",
        "USE lake.shop",
    ):
        spark.sql(statement)
    yield lake
    neve.detach(spark)


@pytest.fixture
def dbt(tmp_path: Path) -> Callable[..., None]:
    """Run a command of dbt on the project; it must succeed."""
    os.environ["DBT_SEND_ANONYMOUS_USAGE_STATS"] = "false"
    for name, text in FILES.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    folders = ["--project-dir", f"{tmp_path}/project", "--profiles-dir", f"{tmp_path}/project"]

    def run(*command: str) -> None:
        result = dbt_main.dbtRunner().invoke([*command, *folders])
        problems = [f"{r.node.name}: {r.message}" for r in getattr(result.result, "results", ()) if r.status == "error"]
        assert result.success, (command, problems or result.exception)

    return run


def rows(lake: neve.Lake, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = lake.table(f"shop.{table}").scan(columns=columns).to_arrow(engine="arrow")
    return sorted(zip(*(found[name].to_pylist() for name in columns), strict=True), key=str)


def test_a_project_is_built_changed_tested_and_snapshot(lake: neve.Lake, dbt: Callable[..., None]):
    for command in ("seed", "run", "test", "snapshot"):
        dbt(command)
    assert rows(lake, "orders", "id", "region_name") == [(1, "Europe"), (2, "America")]
    spark = lake.spark()
    spark.sql("UPDATE raw.orders SET amount = 9, updated_at = timestamp'2026-02-01' WHERE id = 1")
    spark.sql("INSERT INTO raw.orders VALUES (4, 'us', 4, timestamp'2026-02-02')")
    spark.sql("ALTER TABLE shop.orders ADD PARTITION FIELD bucket(2, id)")
    for command in ("run", "snapshot", "test", "seed"):
        dbt(command)
    changed = [(1, Decimal("9.00"), "Europe"), (2, Decimal("2.50"), "America"), (4, Decimal("4.00"), "America")]
    assert rows(lake, "orders", "id", "amount", "region_name") == changed
    assert rows(lake, "totals", "region", "total", "n") == [("eu", Decimal("9.00"), 1), ("us", Decimal("6.50"), 2)]
    assert rows(lake, "runs", "last_id") == [(2,), (4,)]
    ended = datetime.datetime(2026, 2, 1, tzinfo=datetime.UTC)
    history = rows(lake, "history", "id", "amount", "dbt_valid_to")
    expected = [(1, Decimal("1.50"), ended), (1, Decimal("9.00"), None), (2, Decimal("2.50"), None), (3, None, None)]
    assert history == [*expected, (4, Decimal("4.00"), None)]
    orders = lake.table("shop.orders")
    assert orders.schema.find_field("id").doc == "the key"
    assert orders.context.metadata.properties["comment"] == "all orders"
    assert len(orders.context.metadata.partition_specs) == 2 and orders.verify().is_sound
    dbt("run", "--full-refresh")
    dbt("docs", "generate")
    assert rows(lake, "orders", "id", "amount", "region_name") == changed
    assert rows(lake, "runs", "last_id") == [(4,)]
