"""Scans without Spark: the rows of a plan, and exactly those that meet a condition."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.visitors import bind, rewrite_not
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    UUIDType,
)

from neve.model.partition import Specs
from neve.plan.scan import ScanPlan, plan_scan
from neve.predicate.normalize import normalize_and_bind
from neve.run.read.file_reader import FileTask, ReadTarget, read_batches
from neve.run.read.metadata_columns import POSITION
from neve.run.read.scan import matching_rows_mask, read_plan, read_table
from neve.tree.entries import Content
from neve.tree.read import manifests_of, read_entries
from tests.support.foreign_files import FIXTURES, ForeignTable, shared

needs_fixtures = pytest.mark.skipif(not FIXTURES.exists(), reason=f"no fixtures at {FIXTURES}: no nasty tables")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, made = tmp_path_factory.mktemp("tables"), shared("mktables")
    for name in ("v3_dv_nasty", "v2_eqdel_null", "v3_nanos"):
        made.random.seed(name)
        made.TABLES[name][0](str(root), name, *made.TABLES[name][1:])
    return root


def opened(root: Path, name: str) -> tuple[ForeignTable, dict[str, object]]:
    truth = json.loads((root / name / "EXPECTED.json").read_text())
    return ForeignTable(root / name / "metadata" / truth["metadata"]), truth


def planned(table: ForeignTable, columns: list[str] | None = None) -> ScanPlan:
    specs = Specs.of(table.metadata)
    manifests = manifests_of(table.io, table.metadata, table.metadata.current_snapshot())
    entries = read_entries(table.io, manifests, specs).live()
    data, deletes = entries.of_content(Content.DATA), entries.of_content(*list(Content)[1:])
    return plan_scan(data, deletes, table.metadata, columns=columns)


@needs_fixtures
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", ["v3_dv_nasty", "v2_eqdel_null", "v3_nanos"])
def test_a_plan_reads_the_rows_of_the_table(tables: Path, name: str) -> None:
    table, truth = opened(tables, name)
    found = read_table(planned(table), table.facts)
    assert shared("checksum").of(found)[:2] == (truth["rows"], truth["checksum"])


@needs_fixtures
def test_nanoseconds_are_kept(tables: Path) -> None:
    table, _ = opened(tables, "v3_nanos")
    found = read_table(planned(table), table.facts)
    assert found.schema.field("t").type == pa.timestamp("ns")
    assert any(n % 1000 for n in found["t"].cast(pa.int64()).to_pylist())


@needs_fixtures
def test_a_condition_may_name_columns_the_scan_does_not_return(tables: Path) -> None:
    table, _ = opened(tables, "v3_dv_nasty")
    condition = And(EqualTo("region", "eu"), GreaterThan("st.a", 0))
    found = read_table(planned(table, ["st.b", "id", "_spec_id"]), table.facts, condition)
    assert found.column_names == ["st", "id", "_spec_id"]
    everything = read_table(planned(table), table.facts).to_pylist()
    wanted = {r["id"] for r in everything if r["region"] == "eu" and r["st"] and (r["st"]["a"] or 0) > 0}
    assert set(found["id"].to_pylist()) == wanted
    assert len(wanted) == found.num_rows > 0
    assert len(set(found["_spec_id"].to_pylist())) > 1


@needs_fixtures
def test_a_plan_is_read_as_a_stream(tables: Path) -> None:
    table, _ = opened(tables, "v3_dv_nasty")
    batches = read_plan(planned(table), table.facts)
    assert isinstance(batches, Iterator)
    assert next(batches).num_rows > 0


SCHEMA = Schema(
    NestedField(1, "n", LongType(), required=False),
    NestedField(2, "x", DoubleType(), required=False),
    NestedField(3, "s", StringType(), required=False),
    NestedField(4, "d", DateType(), required=False),
    NestedField(5, "t", TimestampType(), required=False),
    NestedField(6, "m", DecimalType(9, 2), required=False),
    NestedField(7, "b", BooleanType(), required=False),
    NestedField(8, "st", StructType(NestedField(9, "a", LongType(), required=True)), required=False),
)


def rows() -> pa.RecordBatch:
    nan = float("nan")
    columns = {
        "n": pa.array([0, 1, None, -5, 7, 2**40], pa.int64()),
        "x": pa.array([0.0, -0.0, nan, None, 1.5, float("inf")], pa.float64()),
        "s": pa.array(["", "abc", "ab", None, "née", "b"], pa.string()),
        "d": pa.array([dt.date(1960, 1, 1), None, dt.date(1970, 1, 1), dt.date(2020, 2, 2), None, dt.date(1, 1, 1)]),
        "t": pa.array([dt.datetime(1960, 1, 1), None, dt.datetime(2020, 1, 1, 1, 1, 1, 1), None, None, None]),
        "m": pa.array([Decimal("1.10"), Decimal("-1.10"), None, Decimal("0.00"), None, Decimal("9.99")]),
        "b": pa.array([True, False, None, True, False, None]),
        "st": pa.array([{"a": 1}, {"a": 2}, None, {"a": 3}, None, {"a": -1}], pa.struct([("a", pa.int64())])),
    }
    fixed = {"m": pa.decimal128(9, 2), "t": pa.timestamp("us"), "d": pa.date32()}
    return pa.record_batch({name: array.cast(fixed.get(name, array.type)) for name, array in columns.items()})


NAN = "'nan'::double"
CONDITIONS: list[tuple[str, BooleanExpression]] = [
    ("n > 0", GreaterThan("n", 0)),
    ("n <> 1", NotEqualTo("n", 1)),
    ("not (n = 1)", Not(EqualTo("n", 1))),
    ("not (n > 0 or s = 'abc')", Not(Or(GreaterThan("n", 0), EqualTo("s", "abc")))),
    ("n in (1, 7, 100)", In("n", (1, 7, 100))),
    ("n not in (1, 7, 100)", NotIn("n", (1, 7, 100))),
    ("n is null", IsNull("n")),
    ("n is not null and b", And(NotNull("n"), EqualTo("b", True))),
    ("x > 1", GreaterThan("x", 1.0)),
    ("x >= 0", GreaterThanOrEqual("x", 0.0)),
    ("x <= 0", LessThanOrEqual("x", 0.0)),
    ("x = 0", EqualTo("x", 0.0)),
    ("x <> 0", NotEqualTo("x", 0.0)),
    ("x in (0, 1.5)", In("x", (0.0, 1.5))),
    ("x not in (0, 1.5)", NotIn("x", (0.0, 1.5))),
    ("isnan(x)", IsNaN("x")),
    ("s < 'b'", LessThan("s", "b")),
    ("starts_with(s, 'ab')", StartsWith("s", "ab")),
    ("not starts_with(s, 'ab')", NotStartsWith("s", "ab")),
    ("s = 'née'", EqualTo("s", "née")),
    ("d < date '1970-01-01'", LessThan("d", "1970-01-01")),
    ("t > timestamp '2020-01-01 01:01:01'", GreaterThan("t", "2020-01-01T01:01:01")),
    ("m >= 0", GreaterThanOrEqual("m", Decimal("0.00"))),
    ("m in (1.10, 9.99)", In("m", (Decimal("1.10"), Decimal("9.99")))),
    ("b = false", EqualTo("b", False)),
    ("st.a > 1", GreaterThan("st.a", 1)),
    ("st is null", Not(NotNull("st"))),
    ("true", AlwaysTrue()),
    ("false", AlwaysFalse()),
]


@pytest.mark.parametrize(("text", "expression"), CONDITIONS, ids=[text for text, _ in CONDITIONS])
def test_a_row_meets_a_condition_when_it_does_in_sql(text: str, expression: BooleanExpression) -> None:
    batch = rows()
    condition = bind(SCHEMA, rewrite_not(expression), True)
    found = matching_rows_mask(batch, SCHEMA, condition).tolist()
    table = pa.Table.from_batches([batch.append_column("place", pa.array(range(batch.num_rows)))])
    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.execute("create table rows as select * from given")  # Arrow would judge the rows of a view
        expected = {place for (place,) in connection.sql(f"select place from rows where {text}").fetchall()}
    assert {i for i, met in enumerate(found) if met} == expected


def grouped(tmp_path: Path) -> tuple[FileTask, pa.Table]:
    """The rows above, in row groups of their own and together, some twice."""
    one = pa.Table.from_batches([rows()])
    table = pa.concat_tables([one.take([i, j]) for i in range(6) for j in range(i, 6)])
    ids = {"n": 1, "x": 2, "s": 3, "d": 4, "t": 5, "m": 6, "b": 7, "st": 8}
    fields = [f.with_metadata({"PARQUET:field_id": str(ids[f.name])}) for f in table.schema if f.name != "st"]
    inner = pa.struct([pa.field("a", pa.int64(), True, {"PARQUET:field_id": "9"})])
    fields.append(pa.field("st", inner, True, {"PARQUET:field_id": "8"}))
    path = tmp_path / "g.parquet"
    pq.write_table(table.cast(pa.schema(fields)), path, row_group_size=2)
    return FileTask(str(path)), table


@pytest.mark.parametrize(("text", "expression"), CONDITIONS, ids=[text for text, _ in CONDITIONS])
def test_skipped_row_groups_hold_no_matching_row(text: str, expression: BooleanExpression, tmp_path: Path) -> None:
    task, table = grouped(tmp_path)
    target = ReadTarget(Schema(*SCHEMA.fields, POSITION), predicate=normalize_and_bind(expression, SCHEMA))
    found = [p for b in read_batches(load_file_io({}), task, target) for p in b.column("_pos").to_pylist()]
    condition = bind(SCHEMA, rewrite_not(expression), True)
    (whole,) = table.combine_chunks().to_batches()
    wanted = set(matching_rows_mask(whole, SCHEMA, condition).nonzero()[0].tolist())
    assert wanted <= set(found)
    assert len(found) < 42 or text in ("true", "x not in (0, 1.5)", "x <> 0", "st is null")


def test_identifiers_and_nanoseconds_compare_too() -> None:
    schema = Schema(
        NestedField(1, "u", UUIDType(), required=False), NestedField(2, "t", TimestampNanoType(), required=False)
    )
    batch = pa.record_batch(
        {"u": pa.array([bytes(16), b"\xff" * 16, None], pa.binary(16)), "t": pa.array([1, 2, None], pa.timestamp("ns"))}
    )
    condition = bind(schema, EqualTo("u", "ffffffff-ffff-ffff-ffff-ffffffffffff"), True)
    assert matching_rows_mask(batch, schema, condition).tolist() == [False, True, False]
    assert matching_rows_mask(batch, schema, bind(schema, IsNull("t"), True)).tolist() == [False, False, True]
