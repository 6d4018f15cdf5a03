"""Columns change under the rules of the format, errors are ours, and the table sees what landed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

import neve
from neve.catalog import LostRace, open_catalog
from neve.catalog.sql import EmbeddedCatalog
from neve.commit.environment import Environment
from neve.errors import CommitConflict, NeveError, UnknownName, UserError
from neve.model.schema_rules import can_promote
from tests.support.tables import sorted_rows

DDL = """
    id bigint not null, region string, n int, price decimal(9, 2), day date, ratio float,
    place struct<city: string, zip: int>, tags array<struct<name: string>>, marks map<string, struct<at: int>>
"""
NAMES = ["id", "region", "n", "price", "day", "ratio", "place", "tags", "marks"]
versions = pytest.mark.parametrize("version", [1, 2, 3, 4])


def made(lake: neve.Lake, version: int = 3, by: Any = ("region",), ddl: Any = DDL, **how: Any) -> neve.Table:
    return lake.create_table("db.t", ddl, partition_by=by, format_version=version, **how)


def type_of(t: neve.Table, name: str) -> Any:
    return t.schema.find_field(name).field_type


@versions
def test_every_kind_of_change_lands_and_is_seen(lake, version):
    t = made(lake, version)
    with t.evolve_schema() as change:
        assert isinstance(change, UpdateSchema)
        change.add_column("note", StringType(), doc="free text")
        change.add_column(("place", "street"), StringType())
        change.add_column(("tags", "weight"), DoubleType())
        change.add_column(("marks", "by"), StringType())
        change.delete_column("ratio").delete_column(("place", "zip"))
        change.rename_column("region", "area").rename_column("place.city", "town")
        change.update_column("n", LongType()).update_column("price", DecimalType(12, 2))
        change.move_first("note").move_before("day", "n").move_after("place.street", "place.city")
        change.make_column_optional("id")
    assert [f.name for f in t.schema.fields] == ["note", "id", "area", "day", "n", "price", "place", "tags", "marks"]
    assert [f.name for f in type_of(t, "place").fields] == ["town", "street"]
    assert (type_of(t, "n"), type_of(t, "price")) == (LongType(), DecimalType(12, 2))
    assert t.schema.find_field("tags.element.weight").field_type == DoubleType()
    assert t.schema.find_field("marks.value.by").field_type == StringType()
    assert not t.schema.find_field("id").required and t.schema.find_field("note").doc == "free text"
    assert lake.table("db.t").schema == t.schema
    assert t.verify().is_sound


def test_ids_of_dropped_columns_are_not_given_again(lake):
    t = made(lake, ddl="id bigint, x int", by=())
    for _ in range(2):
        with t.evolve_schema() as change:
            change.delete_column("x")
        with t.evolve_schema() as change:
            change.add_column("x", IntegerType())
    assert t.schema.find_field("x").field_id == 4


def test_a_change_that_changes_nothing_commits_nothing(lake):
    t = made(lake)
    before = t.iceberg.metadata_location
    with t.evolve_schema() as change:
        change.rename_column("n", "n").update_column("id", LongType())
    with t.evolve_schema():
        pass
    assert t.iceberg.metadata_location == before


def test_an_error_inside_the_block_commits_nothing(lake):
    t = made(lake)
    before = t.iceberg.metadata_location
    with pytest.raises(ZeroDivisionError), t.evolve_schema() as change:
        change.add_column("x", IntegerType()).add_column(str(1 / 0), IntegerType())
    assert t.iceberg.metadata_location == before and "x" not in t.schema.column_names


WRONG: dict[str, tuple[Callable[[Any], Any], type[NeveError], str]] = {
    "drop": (lambda c: c.delete_column("regoin"), UnknownName, "'regoin'.*db.t.*'region'"),
    "rename": (lambda c: c.rename_column("idd", "key"), UnknownName, "'idd'.*'id'"),
    "promote": (lambda c: c.update_column("prise", DecimalType(12, 2)), UnknownName, "'prise'.*'price'"),
    "nullability": (lambda c: c.make_column_optional("idd"), UnknownName, "'idd'.*'id'"),
    "default": (lambda c: c.set_default_value("m", 1), UnknownName, "'m'"),
    "move": (lambda c: c.move_first("regoin"), UnknownName, "'regoin'.*'region'"),
    "move beside": (lambda c: c.move_after("id", "regoin"), UnknownName, "'regoin'.*'region'"),
    "move before": (lambda c: c.move_before("id", ("place", "citty")), UnknownName, "'place.citty'.*'place.city'"),
    "add inside": (lambda c: c.add_column(("plaice", "x"), IntegerType()), UnknownName, "'plaice'.*'place'"),
    "identifier": (lambda c: c.set_identifier_fields("idd"), UnknownName, "'idd'.*'id'"),
    "add what is there": (lambda c: c.add_column("n", LongType()), UserError, "n"),
    "add twice": (lambda c: c.add_column("x", LongType()).add_column("x", LongType()), UserError, "x"),
    "rename to what is there": (lambda c: c.rename_column("n", "id"), UserError, "id"),
    "dots in a name": (lambda c: c.add_column("a.b", LongType()), UserError, r"a\.b.*tuple"),
    "no name": (lambda c: c.rename_column("n", ""), UserError, "empty name"),
    "no type": (lambda c: c.add_column("x", "bigint"), UserError, "'x'.*LongType.*'bigint'"),
    "add to a number": (lambda c: c.add_column(("n", "x"), LongType()), UserError, "non-struct"),
    "add to map keys": (lambda c: c.add_column(("marks", "key", "x"), LongType()), UserError, "non-struct"),
    "make required": (lambda c: c.update_column("n", required=True), UserError, "n: optional -> required"),
    "add required": (lambda c: c.add_column("x", LongType(), required=True), UserError, "required column: x"),
    "narrow": (lambda c: c.update_column("id", IntegerType()), UserError, "'id' from long to int"),
    "decimal scale": (lambda c: c.update_column("price", DecimalType(12, 3)), UserError, "'price' from decimal"),
    "text to bytes": (lambda c: c.update_column("region", BinaryType()), UserError, "'region' from string to binary"),
    "struct to number": (lambda c: c.update_column("place", LongType()), UserError, "'place'"),
    "drop then rename": (lambda c: c.delete_column("n").rename_column("n", "m"), UserError, "deleted: n"),
    "rename then drop": (lambda c: c.rename_column("n", "m").delete_column("n"), UserError, "updates: n"),
    "drop and move": (lambda c: c.move_first("n").delete_column("n"), UserError, "Cannot move the column 'n'"),
    "move beside a dropped": (lambda c: c.delete_column("n").move_after("id", "n"), UserError, "move the column 'id'"),
    "add to a dropped struct": (
        lambda c: c.delete_column("place").add_column(("place", "x"), LongType()),
        UserError,
        "add the column 'x'",
    ),
    "move out of a struct": (lambda c: c.move_after("place.city", "id"), UserError, "different struct"),
    "drop a partition source": (lambda c: c.delete_column("region"), UserError, r"drop=\['region'\]"),
    "float as identifier": (lambda c: c.set_identifier_fields("ratio"), UserError, "dentifier field"),
    "optional identifier": (lambda c: c.set_identifier_fields("n"), UserError, "not a required field"),
    "union of other kinds": (lambda c: c.union_by_name(pa.schema({"id": pa.string()})), UserError, "'id'"),
    "union of other scales": (
        lambda c: c.union_by_name(pa.schema({"price": pa.decimal128(9, 3)})),
        UserError,
        "'price' from decimal",
    ),
    "union with a type there is not": (
        lambda c: c.union_by_name(pa.schema({"x": pa.month_day_nano_interval()})),
        UserError,
        "'x' has an unsupported type",
    ),
    "union with no schema": (lambda c: c.union_by_name("id bigint"), UserError, "db.t"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_changes_are_refused_and_nothing_lands(what, lake):
    ask, kind, message = WRONG[what]
    t = made(lake)
    before = t.iceberg.metadata_location
    with pytest.raises(kind, match=rf"(?s){message}") as caught, t.evolve_schema() as change:
        ask(change)
    assert isinstance(caught.value, UserError)
    assert t.iceberg.metadata_location == before and t.schema.column_names[:2] == ["id", "region"]


def test_a_table_keeps_a_column(lake):
    t = made(lake, by=())
    change = t.evolve_schema()
    for name in NAMES:
        change.delete_column(name)
    with pytest.raises(UserError, match="all columns"):
        change.commit()


class TestPartitionNames:
    """The name of a partition field is taken as long as it means something."""

    def moved_on(self, lake: neve.Lake, version: int) -> neve.Table:
        t = made(lake, version)
        t.append([{"id": 1, "region": "eu"}])
        return t.evolve_partitions(add=["bucket(2, id)"], drop=["region"])

    @pytest.mark.parametrize("version", [2, 4])
    def test_a_column_may_have_the_name_of_an_old_field_whose_source_is_gone(self, lake, version):
        t = self.moved_on(lake, version)
        with t.evolve_schema() as change:
            change.delete_column("region")
        with t.evolve_schema() as change:
            change.add_column("region", IntegerType())
        t.append([{"id": 2, "region": 7}])
        assert [row["region"] for row in sorted_rows(t)] == [None, 7]
        assert t.scan("region = 7").to_arrow(engine="arrow")["id"].to_pylist() == [2]
        assert t.scan("region is null").to_arrow(engine="arrow")["id"].to_pylist() == [1]
        assert {p["spec_id"]: p["partition"]["region"] for p in t.inspect.partitions().to_pylist()} == {
            0: "eu",
            1: None,
        }
        assert t.verify().is_sound

    @pytest.mark.parametrize("version", [3, 4])
    def test_it_may_take_the_place_of_the_source_in_one_change(self, lake, version):
        t = self.moved_on(lake, version)
        with t.evolve_schema() as change:
            change.delete_column("region").add_column("region", IntegerType()).move_first("region")
        assert t.schema.column_names[0] == "region" and type_of(t, "region") == IntegerType()

    def test_not_while_the_source_lives_under_another_name(self, lake):
        t = self.moved_on(lake, 2)
        with t.evolve_schema() as change:
            change.rename_column("region", "area")
        with pytest.raises(UserError, match="'region': partition spec 0"), t.evolve_schema() as change:
            change.add_column("region", IntegerType())

    @versions
    def test_not_the_name_of_a_field_of_the_default_spec(self, lake, version):
        t = made(lake, version, by=("region", "days(day)"))
        with t.evolve_schema() as change:
            change.rename_column("region", "area")
        for name in ("region", "day_day"):
            with pytest.raises(UserError, match=f"'{name}': partition spec 0"), t.evolve_schema() as change:
                change.add_column(name, IntegerType())
            with pytest.raises(UserError, match=f"'{name}': partition spec 0"), t.evolve_schema() as change:
                change.rename_column("n", name)

    def test_a_clash_that_is_there_already_does_not_stop_other_changes(self, lake):
        """Another engine may have named a column so."""
        t = self.moved_on(lake, 2)
        with t.evolve_schema() as change:
            change.rename_column("region", "area").add_column("zone", IntegerType())
        fields = [f.model_copy(update={"name": "region"}) if f.name == "zone" else f for f in t.schema.fields]
        clashing = AddSchemaUpdate(schema=Schema(*fields, schema_id=9))
        t.context.catalog.commit_table(t.iceberg, (), (clashing, SetCurrentSchemaUpdate(schema_id=-1)))
        with t.evolve_schema() as change:
            change.add_column("x", IntegerType())
        assert {"region", "area", "x"} <= set(t.schema.column_names)

    def test_a_column_the_table_is_sorted_by_stays(self, lake):
        order = SortOrder(SortField(1, IdentityTransform()))
        schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "n", LongType()))
        t = made(lake, by=(), ddl=schema, sort_order=order)
        with pytest.raises(UserError, match=r"'id'.*sorted by it"), t.evolve_schema() as change:
            change.delete_column("id")


class TestPromotion:
    @pytest.mark.parametrize(
        ("now", "wanted", "since"),
        [
            (IntegerType(), LongType(), 1),
            (DecimalType(9, 2), DecimalType(18, 2), 1),
            (DateType(), TimestampType(), 3),
            (DateType(), TimestampNanoType(), 3),
        ],
    )
    def test_what_is_possible_since_when(self, now, wanted, since):
        assert [v for v in (1, 2, 3, 4) if can_promote(now, wanted, v)] == list(range(since, 5))

    @pytest.mark.parametrize(
        ("now", "wanted"),
        [
            (LongType(), IntegerType()),
            (DecimalType(9, 2), DecimalType(12, 3)),
            (DecimalType(9, 2), DecimalType(8, 2)),
            (DateType(), TimestamptzType()),
            (StringType(), BinaryType()),
            (StringType(), UUIDType()),
        ],
    )
    def test_what_never_is(self, now, wanted):
        assert not can_promote(now, wanted, 4)

    def test_dates_become_timestamps(self, lake):
        t = made(lake, 3, by=("months(day)",), ddl="id bigint, day date")
        t.append([{"id": 1, "day": dt.date(2024, 2, 29)}])
        with t.evolve_schema() as change:
            change.update_column("day", TimestampType())
        t.append([{"id": 2, "day": dt.datetime(2024, 3, 1, 12)}])
        assert [row["day"] for row in sorted_rows(t)] == [dt.datetime(2024, 2, 29), dt.datetime(2024, 3, 1, 12)]
        assert t.scan("day < TIMESTAMP '2024-03-01'").to_arrow(engine="arrow")["id"].to_pylist() == [1]
        assert t.verify().is_sound

    @pytest.mark.parametrize("by", ["day", "bucket(4, day)"])
    def test_dates_that_are_partition_values_stay(self, lake, by):
        t = made(lake, 3, by=(by,), ddl="id bigint, day date").evolve_partitions(drop=[by])
        with pytest.raises(UserError, match="partition spec 0"), t.evolve_schema() as change:
            change.update_column("day", TimestampType())

    def test_dates_with_a_default_stay(self, lake):
        t = made(lake, 3, by=(), ddl="id bigint, day date")
        with t.evolve_schema() as change:
            change.set_default_value("day", dt.date(2024, 1, 1))
        with pytest.raises(UserError, match="default value"), t.evolve_schema() as change:
            change.update_column("day", TimestampType())

    def test_what_was_asked_for_explicitly_is_done(self, lake):
        t = made(lake, by=())
        with t.evolve_schema(allow_incompatible_changes=True) as change:
            change.update_column("n", StringType()).update_column("region", required=True)
        assert type_of(t, "n") == StringType() and t.schema.find_field("region").required


class TestDefaults:
    VALUES: ClassVar[dict[str, tuple[Any, Any]]] = {
        "text": (StringType(), "x"),
        "day": (DateType(), dt.date(2024, 2, 29)),
        "at": (TimestampType(), dt.datetime(2024, 2, 29, 1, 2, 3, 4)),
        "price": (DecimalType(9, 2), Decimal("1.50")),
        "count": (IntegerType(), 7),
        "ratio": (DoubleType(), 0.5),
        "raw": (BinaryType(), b"\x01\xff"),
    }

    def test_rows_from_before_have_the_default_of_a_new_column(self, lake):
        t = made(lake, 3, by=(), ddl="id bigint")
        t.append([{"id": 1}])
        with t.evolve_schema() as change:
            for name, (kind, value) in self.VALUES.items():
                change.add_column(name, kind, default_value=value, required=name == "count")
        t = lake.table("db.t")
        t.append([{"id": 2}])
        wanted = {name: value for name, (_, value) in self.VALUES.items()}
        assert sorted_rows(t) == [{"id": i, **wanted} for i in (1, 2)]

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_a_default_that_json_cannot_hold_is_refused(self, lake, value):
        t = lake.create_table("db.t", "id bigint", format_version=3)
        with pytest.raises(UserError, match="JSON"), t.evolve_schema() as change:
            change.add_column("d", DoubleType(), default_value=value)

    def test_a_default_set_later_is_for_rows_written_later(self, lake):
        t = made(lake, 3, by=(), ddl="id bigint, place struct<zip: int>")
        with t.evolve_schema() as change:
            change.add_column("tier", StringType(), default_value="basic")
        t.append([{"id": 1}])
        with t.evolve_schema() as change:
            change.set_default_value("tier", "gold").set_default_value("place.zip", 5)
        t.append([{"id": 2}])
        with t.evolve_schema() as change:
            change.set_default_value("tier", None).rename_column("tier", "level")
        t.append([{"id": 3}])
        assert [row["level"] for row in sorted_rows(t)] == ["basic", "gold", None]
        assert t.schema.find_field("level").initial_default == "basic"

    @pytest.mark.parametrize("value", ["many", 1 << 40])
    def test_a_default_of_another_type_is_refused(self, lake, value):
        t = made(lake, 3)
        with pytest.raises(UserError, match="default value"), t.evolve_schema() as change:
            change.add_column("count", IntegerType(), default_value=value)
        with pytest.raises(UserError, match="default value"), t.evolve_schema() as change:
            change.set_default_value("n", value)

    def test_defaults_inside_a_new_struct_are_kept(self, lake):
        t = made(lake, 3, by=(), ddl="id bigint")
        inner = NestedField(1, "zip", IntegerType(), initial_default=5, write_default=6, doc="code")
        with t.evolve_schema() as change:
            change.add_column("place", StructType(inner))
            change.add_column("places", ListType(1, StructType(inner), True))
        for name in ("place.zip", "places.element.zip"):
            field = lake.table("db.t").schema.find_field(name)
            assert (field.initial_default, field.write_default, field.doc) == (5, 6, "code")
        assert len({t.schema.find_field(n).field_id for n in t.schema.column_names}) == 6


class TestIdentifiers:
    NESTED = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "key", StructType(NestedField(3, "code", StringType(), required=True)), required=True),
        identifier_field_ids=[3],
    )

    def test_they_are_set_by_name_also_to_new_names(self, lake):
        t = made(lake, by=(), ddl="id bigint not null, code string not null")
        with t.evolve_schema() as change:
            change.rename_column("code", "key").set_identifier_fields("key", "id")
        assert t.schema.identifier_field_names() == {"id", "key"}

    def test_they_follow_a_rename_of_their_own_and_of_the_struct_around_them(self, lake):
        t = made(lake, by=(), ddl=self.NESTED)
        with t.evolve_schema() as change:
            change.rename_column("key", "name")
        assert t.schema.identifier_field_names() == {"name.code"}
        with t.evolve_schema() as change:
            change.rename_column("name.code", "value")
        assert t.schema.identifier_field_names() == {"name.value"}

    @pytest.mark.parametrize("dropped", ["key", "key.code"])
    def test_they_are_not_dropped(self, lake, dropped):
        t = made(lake, by=(), ddl=self.NESTED)
        with pytest.raises(UserError, match=r"identifier field.*set_identifier_fields"), t.evolve_schema() as change:
            change.delete_column(dropped)
        with t.evolve_schema() as change:
            change.delete_column(dropped).set_identifier_fields("id")
        assert t.schema.identifier_field_names() == {"id"}

    def test_they_stay_required(self, lake):
        t = made(lake, by=(), ddl=self.NESTED)
        with pytest.raises(UserError, match="not a required field"), t.evolve_schema() as change:
            change.make_column_optional("key.code")


class TestUnionByName:
    def test_it_adds_and_widens_and_leaves_the_rest(self, lake):
        t = made(lake)
        place = pa.struct([("zip", pa.int64()), ("street", pa.string())])
        with t.evolve_schema() as change:
            change.union_by_name(pa.schema({"n": pa.int64(), "id": pa.int32(), "place": place, "note": pa.string()}))
        assert (type_of(t, "n"), type_of(t, "id"), type_of(t, "place.zip")) == (LongType(), LongType(), LongType())
        assert type_of(t, "place.street") == type_of(t, "note") == StringType()
        assert not t.schema.find_field("id").required

    @pytest.mark.parametrize("version", [3, 4])
    def test_arrow_types_mean_what_they_mean_in_the_version_of_the_table(self, lake, version):
        t = made(lake, version)
        with t.evolve_schema() as change:
            change.union_by_name(pa.schema({"at": pa.timestamp("ns")}))
        assert type_of(t, "at") == TimestampNanoType()

    def test_names_may_differ_in_case(self, lake):
        t = made(lake)
        with t.evolve_schema(case_sensitive=False) as change:
            change.union_by_name(pa.schema({"N": pa.int64(), "Region": pa.string()}))
        assert type_of(t, "n") == LongType() and "Region" not in t.schema.column_names


class TestOtherWriters:
    def test_lost_races_are_tried_again_after_a_wait(self, tmp_path):
        class Losing(EmbeddedCatalog):
            races = 3

            def swap(self, *given: Any) -> Any:
                Losing.races -= 1
                if Losing.races >= 0:
                    raise LostRace("another writer was faster")
                return super().swap(*given)

        waits: list[float] = []
        catalog = open_catalog(Losing(tmp_path))
        lake = neve.connect(catalog=catalog, environment=Environment(sleep=waits.append, jitter=lambda: 1.0))
        t = lake.create_table("db.t", "id bigint")
        with t.evolve_schema() as change:
            change.add_column("x", IntegerType())
        assert t.schema.column_names == ["id", "x"]
        assert len(waits) == 3 and all(0 < wait <= 60 for wait in waits)

    def test_rows_committed_meanwhile_do_not_disturb(self, lake):
        t = made(lake, by=())
        with t.evolve_schema() as change:
            lake.table("db.t").append([{"id": 1}])
            lake.table("db.t").set_properties(owner="me")
            change.add_column("x", IntegerType())
        assert t.scan().to_arrow(engine="arrow").select(["id", "x"]).to_pylist() == [{"id": 1, "x": None}]
        assert t.iceberg.properties["owner"] == "me"

    def test_columns_changed_meanwhile_are_a_conflict(self, lake):
        t = made(lake)
        change = t.evolve_schema().add_column("y", IntegerType())
        with lake.table("db.t").evolve_schema() as faster:
            faster.add_column("x", IntegerType())
        with pytest.raises(CommitConflict, match="concurrent writer"):
            change.commit()
        assert "y" not in t.refresh().schema.column_names

    def test_there_and_back_again_is_a_conflict_too(self, lake):
        """The schema is the same again, but the next free id is not."""
        t, other = made(lake), lake.table("db.t")
        change = t.evolve_schema().add_column("y", IntegerType())
        with other.evolve_schema() as faster:
            faster.add_column("x", IntegerType())
        with other.evolve_schema() as faster:
            faster.delete_column("x")
        with pytest.raises(CommitConflict, match="concurrent writer"):
            change.commit()

    def test_a_partition_field_added_meanwhile_takes_its_name(self, lake):
        t = made(lake)
        change = t.evolve_schema().add_column("day_month", IntegerType())
        lake.table("db.t").evolve_partitions(add=["months(day)"])
        with pytest.raises(UserError, match="'day_month': partition spec 1"):
            change.commit()


def test_the_name_mapping_learns_new_names(lake):
    mapping = '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["n"]}]'
    t = made(lake, by=(), ddl="id bigint, n int", properties={"schema.name-mapping.default": mapping})
    with t.evolve_schema() as change:
        change.rename_column("n", "m").add_column("x", IntegerType())
    found = {f.field_id: set(f.names) for f in t.iceberg.name_mapping()}
    assert found == {1: {"id"}, 2: {"n", "m"}, 3: {"x"}}


def test_a_source_that_was_dropped_under_an_old_spec_can_be_replaced_in_version_one(lake):
    t = made(lake, 1).evolve_partitions(drop=["region"])
    with t.evolve_schema() as change:
        change.delete_column("region")
    assert "region" not in t.schema.column_names
    spec = t.iceberg.metadata.spec()
    assert spec == PartitionSpec(PartitionField(2, 1000, spec.fields[0].transform, "region"), spec_id=1)


def test_identifier_fields_are_known_by_their_ids(tmp_path):
    """Names that change hands, or come back with another column, do not take the identifier with them."""
    table = neve.connect(tmp_path).create_table("db.t", "a bigint not null, b bigint not null", format_version=3)
    with table.evolve_schema() as change:
        change.set_identifier_fields("a")
    with table.evolve_schema() as change:
        change.rename_column("a", "b").rename_column("b", "a")
    assert (table.refresh().schema.identifier_field_ids, table.schema.identifier_field_names()) == ([1], {"b"})
    with table.evolve_schema() as change:
        change.rename_column("b", "c")
        change.set_identifier_fields("b", "a")
    assert table.refresh().schema.identifier_field_names() == {"c", "a"}
    with pytest.raises(UserError, match="'c': it is an identifier field"), table.evolve_schema() as change:
        change.delete_column("c").add_column("c", StringType(), required=True, default_value="x")
    with pytest.raises(UserError, match="give names"), table.evolve_schema() as change:
        change.set_identifier_fields(["a"])
