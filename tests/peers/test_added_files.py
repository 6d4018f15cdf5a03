"""Files added to a table by Névé and by Spark with Iceberg: the same entries, and each reads the table of the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.peers.engine_comparison import SharedLake
from tests.support.spark_oracle import multiset

COLUMNS = (
    "id bigint, n int, ratio double, price decimal(9, 2), note string, at timestamp_ntz, tags array<string>, "
    "place struct<city: string, zip: int>, region string, day date"
)
SOURCE = (
    "SELECT id, if(id % 4 = 0, NULL, int(id)) n, double(id) / 4 ratio, CAST(id / 8 AS decimal(9, 2)) price, "
    "repeat('ä', int(id)) note, timestamp_ntz'2024-01-01 10:00:00' at, array('a', NULL) tags, "
    "named_struct('city', 'x', 'zip', int(id)) place, "
    "element_at(array('eu', 'us/west', 'a b=%'), int(id % 4) + 1) region, date_add(date'2024-01-01', int(id % 2)) day "
    "FROM range(40)"
)
ENTRIES = (
    "SELECT file_path, file_format, spec_id, partition.region AS region, partition.day AS day, record_count, "
    "{statistics} file_size_in_bytes FROM {t}.files"
)
STATISTICS = "column_sizes, value_counts, null_value_counts, lower_bounds, upper_bounds, "


@pytest.mark.parametrize(("version", "file_format"), [(1, "parquet"), (2, "parquet"), (3, "parquet"), (2, "orc")])
def test_both_add_the_same_files(
    shared_lake: SharedLake, spark: SparkSession, tmp_path: Path, version: int, file_format: str
):
    folder = tmp_path / "src"
    rows = spark.sql(SOURCE.replace("element_at", "try_element_at")).repartition(2)
    rows = rows.drop("at") if file_format == "orc" else rows  # Spark writes it as a number, which is no timestamp
    rows.write.format(file_format).partitionBy("region", "day").save(str(folder))
    ours, theirs = (f"db.added_{who}_{version}_{file_format}" for who in ("ours", "theirs"))
    for name in (ours, theirs):
        shared_lake.spark.sql(
            f"CREATE TABLE {name} ({COLUMNS}) USING iceberg PARTITIONED BY (region, day) "
            f"TBLPROPERTIES ('format-version' = '{version}')"
        )
    call = "CALL system.add_files(table => '{t}', source_table => '`{f}`.`{folder}`')"
    said = shared_lake.spark.sql(call.format(t=theirs, f=file_format, folder=folder))
    result = shared_lake.lake.sql(call.format(t=ours, f=file_format, folder=folder))
    # Java knows the changed partitions only of entries that it adds one by one, not of whole manifests.
    assert result.output_rows.schema.names == said.schema.names
    assert result.files_added == said["added_files_count"][0].as_py()
    for name in (ours, theirs):
        found = shared_lake.spark.sql(f"SELECT * FROM {name}")
        assert multiset(found) == multiset(shared_lake.lake.table(name).to_arrow()) and found.num_rows == 40
    # Java's statistics of ORC files come with the reader of ORC; ours are left out.
    statistics = STATISTICS if file_format == "parquet" else ""
    entries = [
        shared_lake.spark.sql(ENTRIES.format(t=name, statistics=statistics)).to_pylist() for name in (ours, theirs)
    ]
    for mine, other in zip(*(sorted(rows, key=file_name) for rows in entries), strict=True):
        for name in ("value_counts", "null_value_counts") if statistics else ():
            # Java counts no elements of lists.
            mine[name] = [pair for pair in mine[name] if pair[0] in dict(other[name])]
            assert len(other[name]) >= 8, "every other column"
        differing = [name for name in mine if mine[name] != other[name]]
        assert {name: (mine[name], other[name]) for name in differing if name != "file_path"} == {}


def file_name(row: dict[str, Any]) -> str:
    return Path(row["file_path"]).as_posix().rpartition("/src/")[2]
