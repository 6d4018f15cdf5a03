"""Data files read by Python on the executors, against what Spark itself reads and what other engines agree on."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from neve.model.partition import Specs
from neve.run.read.metadata_columns import FILE, POSITION
from neve.run.read.tasks import build_task_table
from neve.run.spark.read import arrow_scan
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable
from tests.support.foreign_files import FIXTURES, ForeignTable, shared

SECRET = "s3cr3t-key-of-the-store"


def column(field_id: int, name: str, kind: IcebergType) -> NestedField:
    return NestedField(field_id, name, kind, required=False)


def facts_of(schema: Schema, location: Path) -> TableFacts:
    specs = Specs({0: UNPARTITIONED_PARTITION_SPEC}, 0, (schema,))
    return TableFacts(specs, 2, str(location), io_properties={"s3.secret-access-key": SECRET})


def tasks_for(facts: TableFacts, paths: Sequence[Path], file_format: str = "PARQUET") -> pa.Table:
    columns: dict[str, Any] = {
        "file_path": [str(p) for p in paths],
        "file_format": pa.array([file_format] * len(paths)),
        "file_size_in_bytes": [p.stat().st_size for p in paths],
        "spec_id": 0,
        "status": 1,
        "content": 0,
    }
    files = EntryTable.from_columns(columns, facts.specs, len(paths))
    nothing = pa.table({"file": pa.array([], pa.int64()), "delete": pa.array([], pa.int64())})
    return build_task_table(files, EntryTable.empty(facts.specs), nothing)


@pytest.mark.skipif(not FIXTURES.exists(), reason=f"no fixtures at {FIXTURES}: foreign tables are not read")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", ["v2_posdel_nasty", "v2_eqdel_null"])
def test_a_nasty_table_reads_the_same_on_executors(spark: SparkSession, tmp_path: Path, name: str) -> None:
    made = shared("mktables")
    made.random.seed(name)
    made.TABLES[name][0](str(tmp_path), name, *made.TABLES[name][1:])
    truth = json.loads((tmp_path / name / "EXPECTED.json").read_text())
    table = ForeignTable(tmp_path / name / "metadata" / truth["metadata"])
    found = arrow_scan(spark, table.task_table(), table.metadata.schema(), table.facts).toArrow()
    assert shared("checksum").of(found)[:2] == (truth["rows"], truth["checksum"])


NESTED = Schema(
    column(1, "id", LongType()),
    column(2, "ts", TimestamptzType()),
    column(3, "price", DecimalType(9, 2)),
    column(4, "wide", DecimalType(30, 4)),
    column(5, "tags", ListType(6, StringType())),
    column(7, "points", ListType(8, StructType(column(9, "x", IntegerType()), column(10, "y", StringType())))),
    column(11, "m", MapType(12, StringType(), 13, ListType(14, LongType()))),
    column(15, "deep", StructType(column(16, "ok", BooleanType()), column(17, "ds", ListType(18, DateType())))),
)

SPELLED = """
select id,
       timestamp_micros(id * 123456789012 - 9000000000000) as ts,
       cast(if(id % 5 = 0, null, id / 7) as decimal(9, 2)) as price,
       cast(id / 7 as decimal(30, 4)) as wide,
       if(id % 4 = 0, null, transform(sequence(1, id % 4), x -> if(x = 2, null, concat('t', x)))) as tags,
       transform(sequence(1, id % 3 + 1), x -> named_struct('x', cast(x as int), 'y', string(id))) as points,
       if(id % 6 = 0, null, map(string(id), array(id, id + 1), 'none', cast(array() as array<bigint>))) as m,
       if(id % 7 = 0, null, named_struct('ok', id % 2 = 0, 'ds', array(date_from_unix_date(cast(id as int))))) as deep
from range(1000)
"""


OLD = ("repeated int32 field_id=-1 array (Date)", "repeated group field_id=-1 bag", "int96 field_id=-1 ts")


@pytest.mark.parametrize("is_old", [True, False], ids=["old", "new"])
def test_files_without_ids_in_old_and_new_layouts_read_as_spark_reads_them(
    spark: SparkSession, tmp_path: Path, is_old: bool
) -> None:
    """The old layouts: lists of two levels, decimals as fixed bytes, timestamps as INT96."""
    path = tmp_path / "t"
    options = {
        "spark.sql.parquet.writeLegacyFormat": str(is_old).lower(),
        "spark.sql.parquet.outputTimestampType": "INT96" if is_old else "TIMESTAMP_MICROS",
    }
    for name, value in options.items():
        spark.conf.set(name, value)
    try:
        spark.sql(SPELLED).coalesce(1).write.parquet(str(path))
    finally:
        for name in options:
            spark.conf.unset(name)
    files = sorted(path.glob("*.parquet"))
    layout = str(pq.ParquetFile(files[0]).schema)
    assert [part in layout for part in OLD] == [is_old] * 3
    facts = replace(facts_of(NESTED, path), name_mapping=None if is_old else create_mapping_from_schema(NESTED))
    found = arrow_scan(spark, tasks_for(facts, files), NESTED, facts)
    assert sorted(map(str, found.collect())) == sorted(map(str, spark.read.parquet(str(path)).collect()))


def test_spark_gets_every_type_it_can_carry(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema(
        column(1, "u", UUIDType()),
        column(2, "f", FixedType(2)),
        column(3, "n", TimestampNanoType()),
        column(4, "t", TimeType()),
        column(5, "x", UnknownType()),
        column(6, "d", DoubleType()),
    )
    one = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    values = [
        ("u", pa.binary(16), [one.bytes, None]),
        ("f", pa.binary(2), [b"ab", None]),
        ("n", pa.timestamp("ns"), [-1, None]),
        ("t", pa.time64("us"), [dt.time(23, 59, 59, 999999), None]),
    ]
    fields = [pa.field(n, t, True, {"PARQUET:field_id": str(i)}) for i, (n, t, _) in enumerate(values, 1)]
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table([pa.array(v, t) for _, t, v in values], schema=pa.schema(fields)), path)
    facts = facts_of(schema, tmp_path)
    first, second = arrow_scan(spark, tasks_for(facts, [path]), schema, facts).collect()
    before_epoch = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)
    assert tuple(first) == (str(one), bytearray(b"ab"), before_epoch, dt.time(23, 59, 59, 999999), None, None)
    assert tuple(second) == (None,) * 6


def many_files(folder: Path, count: int, rows: int = 2_000) -> list[Path]:
    field = pa.field("id", pa.int64(), True, {"PARQUET:field_id": "1"})
    paths = [folder / f"{i}.parquet" for i in range(count)]
    for i, path in enumerate(paths):
        values = pa.array(range(i * rows, (i + 1) * rows))
        pq.write_table(pa.table([values], schema=pa.schema([field])), path, row_group_size=100, compression="none")
    return paths


def test_a_large_file_is_divided_and_positions_stay_those_of_the_file(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema(column(1, "id", LongType()), POSITION, FILE)
    facts = facts_of(Schema(column(1, "id", LongType())), tmp_path)
    (path,) = many_files(tmp_path, 1)
    found = arrow_scan(spark, tasks_for(facts, [path]), schema, facts, split_bytes=path.stat().st_size // 4)
    rows = found.select("id", "_pos", "_file", spark_partition_id().alias("task")).collect()
    assert sorted((r["id"], r["_pos"]) for r in rows) == [(i, i) for i in range(2_000)]
    assert {r["_file"] for r in rows} == {str(path)}
    assert len({r["task"] for r in rows}) >= 4


def test_every_group_of_files_is_a_task_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema(column(1, "id", LongType()))
    facts = facts_of(schema, tmp_path)
    paths = many_files(tmp_path, 24, 10)
    found = arrow_scan(spark, tasks_for(facts, paths), schema, facts)  # eight files make a group
    counts = found.groupBy(spark_partition_id().alias("task")).count().collect()
    assert sorted(r["count"] for r in counts) == [80, 80, 80]


def test_no_credential_is_in_the_plan_or_in_an_error(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema(column(1, "id", LongType()))
    facts = facts_of(schema, tmp_path)
    paths = many_files(tmp_path, 2, 10)
    found = arrow_scan(spark, tasks_for(facts, paths), schema, facts)
    assert found.count() == 20
    assert SECRET not in found._jdf.queryExecution().toString()
    assert SECRET not in repr(facts)
    paths[0].write_bytes(b"broken" * 100)
    broken = arrow_scan(spark, tasks_for(facts, paths), schema, facts)
    with pytest.raises(Exception, match="Corrupt file") as caught:
        broken.collect()
    assert SECRET not in str(caught.value)


def test_a_scan_of_no_files_has_the_columns_of_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    facts = facts_of(NESTED, tmp_path)
    found = arrow_scan(spark, tasks_for(facts, []), NESTED, facts)
    assert found.columns == [f.name for f in NESTED.fields]
    assert found.count() == 0


def test_the_file_access_of_the_driver_is_that_of_the_executors(tmp_path: Path) -> None:
    io = load_file_io({"s3.endpoint": "http://localhost:1"})
    facts = replace(facts_of(NESTED, tmp_path), io_properties=io.properties)
    assert facts.io().properties["s3.endpoint"] == "http://localhost:1"
