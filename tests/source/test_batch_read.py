"""Batch reads through the source, without Spark: rows, conditions, columns and times are those of the table."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.types import LongType as IceLong
from pyiceberg.types import StringType as IceString
from pyspark.sql import datasource as ds
from pyspark.sql.types import LongType, StringType, StructType

import neve
from neve.errors import UnknownName, UnsupportedFeature, UserError
from neve.run.read.scan import read_table
from neve.run.read.types import ArrowFlavor
from neve.source.connection import Connection
from tests.support.coverage import IS_LONG
from tests.support.evolved_tables import Lived
from tests.support.foreign_tables import checksum, made_tables, needs_fixtures
from tests.support.source_calls import Frame, empty, read, source
from tests.test_foreign_tables import MADE


def as_spark(table: neve.Table, **asked: Any) -> list[dict[str, Any]]:
    """The rows the table's own scan gives, in the types Spark has."""
    scan = table.scan(**asked)
    return read_table(scan.plan(), scan._facts, None, ArrowFlavor.SPARK).to_pylist()


def same_rows(found: pa.Table, expected: list[dict[str, Any]]) -> None:
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected))


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_table_with_specs_deletes_and_vectors_is_read_as_its_scan_reads_it(version: int, tmp_path: Path):
    lived = Lived.create(tmp_path, version)
    table = neve.connect(tmp_path).table(".".join(lived.kit.table.name()))
    expected = as_spark(table)
    assert expected
    same_rows(read(tmp_path, table.name), expected)
    same_rows(read(tmp_path, table.name, split_size="500"), expected)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("made")
    return folder, made_tables(folder)


@needs_fixtures
@pytest.mark.skipif(not IS_LONG, reason="the reader is tried on them elsewhere; runs in the long tests")
@pytest.mark.parametrize("name", [n for n in MADE if n != "v3_nanos"])  # Spark has no nanoseconds
def test_tables_with_renames_defaults_and_deletes_of_all_kinds(
    made: tuple[Path, dict[str, dict[str, Any]]], name: str, tmp_path: Path
):
    folder, expected = made
    want = expected[name]
    neve.connect(tmp_path).register_table("db.t", (folder / name / "metadata" / want["metadata"]).as_uri())
    rows = read(tmp_path)
    assert sorted(rows.column_names) == sorted(want["columns"])
    assert checksum().of(rows)[:2] == (want["rows"], want["checksum"])


def test_columns_that_were_renamed_promoted_and_added_with_a_default(lake_dir: Path):
    table = neve.connect(lake_dir).create_table("db.t", "id int, region string", ["region"], format_version=3)
    table.append([{"id": 1, "region": "eu"}])
    with table.evolve_schema() as change:
        change.rename_column("region", "area")
        change.update_column("id", IceLong())
        change.add_column("grade", IceString(), default_value="new")
    table.evolve_partitions(add=["bucket(4, id)"], drop=["region"])
    table.append([{"id": 1 << 40, "area": None, "grade": "old"}])
    expected = [{"id": 1, "area": "eu", "grade": "new"}, {"id": 1 << 40, "area": None, "grade": "old"}]
    same_rows(read(lake_dir), expected)


class TestColumnsAndTimes:
    @pytest.fixture
    def table(self, lake_dir: Path) -> neve.Table:
        table = neve.connect(lake_dir).create_table("db.t", "id bigint, region string", ["region"])
        table.append([{"id": 1, "region": "eu"}])
        table.create_tag("first")
        table.append([{"id": 2, "region": "us"}])
        return table

    def test_a_schema_chooses_columns_in_its_order(self, table: neve.Table, lake_dir: Path):
        wanted = StructType().add("_spec_id", "integer").add("region", StringType()).add("id", LongType())
        found = Frame(source(lake_dir), wanted).rows()
        assert found.column_names == ["_spec_id", "region", "id"]
        same_rows(found, [{"_spec_id": 0, "region": r, "id": i} for i, r in ((1, "eu"), (2, "us"))])

    def test_a_column_that_is_not_there_or_of_another_type_is_refused(self, table: neve.Table, lake_dir: Path):
        with pytest.raises(UnknownName, match="Did you mean 'region'"):
            Frame(source(lake_dir), StructType().add("regoin", StringType())).rows()
        with pytest.raises(UserError, match=r"'id' of table db\.t is bigint, not int"):
            Frame(source(lake_dir), StructType().add("id", "integer")).rows()

    def test_the_snapshot_is_chosen_by_icebergs_options(self, table: neve.Table, lake_dir: Path):
        first, second = table.iceberg.metadata.snapshots
        with table.evolve_schema() as change:
            change.rename_column("region", "area")
        past = [{"id": 1, "region": "eu"}]
        same_rows(read(lake_dir, snapshot_id=str(first.snapshot_id)), past)
        same_rows(read(lake_dir, as_of_timestamp=str(second.timestamp_ms - 1)), past)
        same_rows(read(lake_dir, tag="first"), past)
        same_rows(read(lake_dir, branch="main"), [{"id": 1, "area": "eu"}, {"id": 2, "area": "us"}])

    def test_two_names_of_a_snapshot_are_refused(self, table: neve.Table, lake_dir: Path):
        with pytest.raises(UserError, match="Choose one of the options snapshot-id and tag"):
            read(lake_dir, snapshot_id="1", tag="first")

    def test_a_frame_reads_the_snapshot_it_was_made_on(self, table: neve.Table, lake_dir: Path):
        frame = Frame(source(lake_dir))
        table.append([{"id": 3, "region": "eu"}])
        with table.evolve_schema() as change:
            change.rename_column("region", "area")
        same_rows(frame.rows(), [{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}])

    def test_a_table_nobody_wrote_to_has_no_rows(self, lake_dir: Path):
        neve.connect(lake_dir).create_table("db.new", "id bigint")
        frame = Frame(source(lake_dir, "db.new"))
        assert frame.rows() == empty(frame.schema)

    def test_a_condition_on_values_that_spark_is_shown_otherwise_is_refused(self, lake_dir: Path):
        """It would be applied to the text of a UUID, which is no UUID."""
        lake = neve.connect(lake_dir)
        lake.create_table("db.u", "id bigint, u uuid", format_version=2).append([{"id": 1, "u": b"0" * 16}])
        with pytest.raises(UnsupportedFeature, match=r"'u' of type uuid .*with \.where"):
            read(lake_dir, "db.u", where="u = '30303030-3030-3030-3030-303030303030'")
        assert read(lake_dir, "db.u", where="id = 1 AND u IS NOT NULL").num_rows == 1

    def test_a_condition_names_columns_as_the_snapshot_does(self, lake_dir: Path):
        table = neve.connect(lake_dir).create_table("db.r", "id bigint, old string", format_version=2)
        table.append([{"id": 1, "old": "a"}])
        snapshot_id = table.refresh().iceberg.metadata.current_snapshot_id
        with table.evolve_schema() as change:
            change.rename_column("old", "new")
        assert read(lake_dir, "db.r", where="old = 'a'", snapshot_id=str(snapshot_id)).num_rows == 1

    def test_an_option_nobody_knows_is_refused(self, table: neve.Table, lake_dir: Path):
        with pytest.raises(UnknownName, match="Did you mean 'snapshot-id'"):
            read(lake_dir, snapshotid="1")

    def test_a_place_that_is_not_there_is_not_made(self, table: neve.Table, lake_dir: Path, tmp_path: Path):
        with pytest.raises(UserError, match="No lake folder"):
            read(lake_dir, lake=str(tmp_path / "nowhere"))
        assert not (tmp_path / "nowhere").exists()
        same_rows(read(tmp_path / "nowhere", lake=str(lake_dir)), read(lake_dir).to_pylist())

    def test_a_lake_keeps_the_properties_of_its_storage(self, table: neve.Table, lake_dir: Path):
        lake = neve.connect(lake_dir, **{"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"})
        io = Connection.of(lake, "UTC").table("db.t").io
        assert isinstance(io, FsspecFileIO)

    def test_credentials_are_not_shown(self, table: neve.Table, lake_dir: Path):
        assert "hush" not in repr(Connection(catalog="c", properties={"s3.secret-access-key": "hush"}))


class TestConditions:
    """What Spark hands over leaves out rows and files; never one that the condition lets through."""

    ROWS = tuple(
        {
            "id": i,
            "region": ("eu", "us", None)[i % 3],
            "x": float("nan") if i % 7 == 0 else i / 2,
            "d": dt.date(2026, 1, 1 + i),
            "ts": dt.datetime(2026, 1, 1 + i),
            "m": Decimal(i) / 4,
            "b": bytes([i]),
            "s": {"n": i},
        }
        for i in range(12)
    )
    TYPES = "id bigint, region string, x double, d date, ts timestamp_ntz, m decimal(10,2), b binary, s struct<n: int>"

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("conditions")
        table = neve.connect(folder).create_table("db.t", cls.TYPES, ["region"])
        for row in cls.ROWS:
            table.append([row])
        return folder

    @pytest.mark.parametrize(
        ("given", "meets"),
        [
            (ds.EqualTo(("region",), "eu"), lambda r: r["region"] == "eu"),
            (ds.Not(ds.EqualTo(("region",), "eu")), lambda r: r["region"] == "us"),
            (ds.EqualNullSafe(("region",), None), lambda r: r["region"] is None),
            (ds.EqualNullSafe(("region",), "us"), lambda r: r["region"] == "us"),
            (ds.IsNull(("region",)), lambda r: r["region"] is None),
            (ds.IsNotNull(("region",)), lambda r: r["region"] is not None),
            (ds.Not(ds.IsNull(("region",))), lambda r: r["region"] is not None),
            (ds.In(("id",), [3, 5, None]), lambda r: r["id"] in (3, 5)),
            (ds.Not(ds.In(("id",), [3, 5])), lambda r: r["id"] not in (3, 5)),
            (ds.GreaterThan(("x",), 4.0), lambda r: r["x"] != r["x"] or r["x"] > 4),
            (ds.LessThanOrEqual(("x",), 1.0), lambda r: r["x"] <= 1),
            (ds.Not(ds.LessThan(("x",), 1.0)), lambda r: not r["x"] < 1),
            (ds.GreaterThanOrEqual(("d",), dt.date(2026, 1, 9)), lambda r: r["id"] >= 8),
            (ds.LessThan(("ts",), dt.datetime(2026, 1, 3)), lambda r: r["id"] < 2),
            (ds.EqualTo(("m",), Decimal("1.5")), lambda r: r["id"] == 6),
            (ds.EqualTo(("b",), b"\x04"), lambda r: r["id"] == 4),
            (ds.StringStartsWith(("region",), "u"), lambda r: r["region"] == "us"),
            (ds.LessThan(("s", "n"), 2), lambda r: r["id"] < 2),
        ],
        ids=lambda v: "" if callable(v) else repr(v),
    )
    def test_a_filter_lets_through_exactly_its_rows(self, place: Path, given: ds.Filter, meets: Any):
        found = read(place, filters=[given], filter_pushdown="true")
        assert sorted(found["id"].to_pylist()) == [r["id"] for r in self.ROWS if meets(r)]

    @pytest.mark.parametrize(
        "given",
        [
            ds.StringEndsWith(("region",), "u"),
            ds.StringContains(("region",), "u"),
            ds.Not(ds.In(("region",), ["eu", None])),
            ds.EqualTo(("m",), Decimal("1.501")),
            ds.EqualTo(("region",), 5),
            ds.EqualTo(("gone",), 5),
        ],
        ids=lambda v: "" if callable(v) else repr(v),
    )
    def test_a_filter_that_cannot_be_said_leaves_out_nothing(self, place: Path, given: ds.Filter):
        assert read(place, filters=[given], filter_pushdown="true").num_rows == len(self.ROWS)

    def test_filters_leave_out_files(self, place: Path):
        reader = source(place, filter_pushdown="true")
        made = reader.reader(reader.schema())
        made.pushFilters([ds.EqualTo(("region",), "eu"), ds.GreaterThan(("id",), 5)])
        assert made._read_plan.tasks.num_rows == 2  # type: ignore[attr-defined]

    def test_the_option_where_leaves_out_rows_and_must_be_exact(self, place: Path):
        assert sorted(read(place, where="region = 'eu' AND d < DATE '2026-01-05'")["id"].to_pylist()) == [0, 3]
        with pytest.raises(UserError, match="comparisons of columns with values only"):
            read(place, where="upper(region) = 'EU'")

    def test_without_the_option_the_reader_takes_no_filters(self, place: Path):
        made = source(place)
        reader = made.reader(made.schema())
        assert type(reader).pushFilters is ds.DataSourceReader.pushFilters
