"""The expression parsed from a condition, and the error if it cannot be parsed."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    EqualTo,
    GreaterThan,
    In,
    IsNull,
    LessThan,
    Not,
    NotEqualTo,
    NotNull,
    Or,
)
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
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
    UUIDType,
)

from neve.errors import UnknownName, UserError
from neve.predicate import columns_of, normalize_expression, parse
from neve.predicate.parse import pruning_expression
from neve.predicate.sql_text import parse_sql

PERSON = StructType(
    NestedField(21, "name", StringType(), required=False),
    NestedField(22, "age", IntegerType(), required=True),
    NestedField(23, "a.b", LongType(), required=False),
)
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "ts", TimestamptzType(), required=False),
    NestedField(4, "ns", TimestampNanoType(), required=False),
    NestedField(5, "score", DoubleType(), required=False),
    NestedField(6, "day", DateType(), required=False),
    NestedField(7, "key", UUIDType(), required=False),
    NestedField(8, "four", FixedType(4), required=False),
    NestedField(9, "at", TimeType(), required=False),
    NestedField(10, "f", FloatType(), required=False),
    NestedField(20, "person", PERSON, required=False),
    NestedField(30, "tags", ListType(31, StringType(), element_required=False), required=False),
    NestedField(
        40,
        "props",
        MapType(41, StringType(), 42, StructType(NestedField(43, "name", StringType())), value_required=False),
        required=False,
    ),
)


def _expression_text(text: str, **options: str) -> str:
    found = parse(text, SCHEMA, **options)
    return str(normalize_expression(found.expression, SCHEMA)) if found.is_exact else f"~{found.expression}"


def test_nothing_and_expressions_are_predicates_too() -> None:
    assert parse(None, SCHEMA).expression is AlwaysTrue()
    assert parse(None, SCHEMA).is_exact
    assert parse(Not(EqualTo("id", 3)), SCHEMA).expression == ~EqualTo("id", 3)
    with pytest.raises(UnknownName, match="Did you mean 'region'"):
        parse(EqualTo("regoin", "eu"), SCHEMA)
    with pytest.raises(UserError, match="does not fit the table"):
        parse(EqualTo("id", "three"), SCHEMA)
    with pytest.raises(UserError, match="Unsupported predicate"):
        parse(bind(SCHEMA, EqualTo("id", 3), True), SCHEMA)


def test_unknown_parts_never_prune_wherever_they_stand() -> None:
    for text in (
        "upper(region) = 'X'",
        "NOT upper(region) = 'X'",
        "NOT (id = 1 AND rand() < 2)",
        "id = 1 OR region = upper('x')",
    ):
        found = parse(text, SCHEMA)
        assert found.expression is AlwaysTrue(), text
        assert not found.is_exact
    assert parse("NOT (id = 1 OR upper(region) = 'X')", SCHEMA).expression == ~EqualTo("id", 1)
    found = parse("FALSE AND rand() < 2", SCHEMA)  # the unknown part may be an error
    assert found.expression is AlwaysFalse() and not found.is_exact


def test_a_null_is_neither_equal_nor_different() -> None:
    assert (
        _expression_text("region <> 'eu'")
        == _expression_text("NOT (region = 'eu')")
        == _expression_text("NOT (region IN ('eu'))")
    )
    assert NotNull("region") in (
        parse("region <> 'eu'", SCHEMA).expression.left,
        parse("region <> 'eu'", SCHEMA).expression.right,
    )
    assert parse("region NOT IN ('eu', NULL)", SCHEMA).expression is AlwaysFalse()
    assert parse("NOT (region = NULL)", SCHEMA).expression is AlwaysFalse()


def test_fields_of_structs_go_by_their_full_name() -> None:
    assert parse("person.name = 'x'", SCHEMA).expression == EqualTo("person.name", "x")
    assert parse("`person`.`name` = 'x'", SCHEMA).columns == ("person.name",)
    assert parse("person.`a.b` = 1", SCHEMA).expression == EqualTo("person.a.b", 1)
    assert parse("person.age IS NULL", SCHEMA).expression == IsNull("person")


def test_columns_in_lists_and_maps_exist_but_prune_nothing() -> None:
    for text in (
        "tags[0] = 'x'",
        "props['k'].name = 'x'",
        "props.k.name = 'x'",
        "exists(tags, t -> t = 'x')",
        "tags IS NULL",
    ):
        assert parse(text, SCHEMA).expression is AlwaysTrue(), text


def test_the_table_may_be_called_by_its_alias() -> None:
    assert parse("t.id = 1 AND T.person.name = 'x'", SCHEMA, alias="t").columns == ("id", "person.name")
    with pytest.raises(UnknownName, match=r"'s\.id'"):
        parse("s.id = 1", SCHEMA, alias="t")


def test_case_matters_only_on_request() -> None:
    with pytest.raises(UnknownName, match="'ID'"):
        parse("ID = 1", SCHEMA)
    assert parse("ID = 1", SCHEMA, case_sensitive=False).expression == EqualTo("id", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("regoin = 'eu'", "Unknown column 'regoin'. Did you mean 'region'"),
        ("upper(regoin) = 'EU'", "Unknown column 'regoin'"),
        ("person.nam = 'x'", "Unknown column 'person.nam'. Did you mean 'person.name'"),
        ("id =", "Cannot parse predicate 'id =': .* at line 1, column 4"),
        ("id = 1\n AND (region = 'x'", "at line 2, column"),
        ("id = 'x", "Cannot parse predicate"),
        ("", "not one condition"),
        ("id = 1; DROP TABLE t", "not one condition"),
        ("SELECT 1", "not one condition"),
        ("id = 1 AS x", "not one condition"),
        ("(" * 300 + "id = 1" + ")" * 300, "nested too deeply"),
        ("NOT " * 3000 + "id = 1", "nested too deeply"),
    ],
)
def test_errors_name_the_problem_and_its_position(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(text, SCHEMA)


def test_a_name_that_can_be_an_alias_is_one() -> None:
    """As in Spark, a struct of the same name comes second."""
    inside = StructType(NestedField(3, "id", LongType(), required=False))
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "t", inside, required=False))
    assert parse("t.id = 3", schema, alias="t").expression == EqualTo("id", 3)
    assert parse("t.id = 3", schema).expression == EqualTo("t.id", 3)
    assert parse("t.t.id = 3", schema, alias="t").expression == EqualTo("t.id", 3)


def test_metadata_columns_are_known_and_left_to_spark() -> None:
    found = parse("_file = 'x' AND id = 3", SCHEMA)
    assert found.expression == EqualTo("id", 3)
    assert not found.is_exact


@pytest.mark.parametrize("name", ["call", "comment", "desc", "insert", "load", "set", "show", "update", "use"])
def test_a_column_may_be_named_like_a_statement(name: str) -> None:
    schema = Schema(NestedField(1, name, LongType()), NestedField(2, "b", LongType()))
    found = parse(f"{name} > 5 AND b = 1", schema)
    assert found.is_exact and found.columns == (name, "b")
    assert found.expression == And(GreaterThan(name, 5), EqualTo("b", 1))


def test_columns_of_text_need_no_schema() -> None:
    text = "a.b > 1 AND upper(c) = `d e` OR x IN (SELECT y FROM z) AND exists(l, e -> e > 1) AND a.b < 9"
    assert columns_of(text) == ("a.b", "c", "d e", "x", "l")


def test_chains_of_any_length_become_shallow_trees() -> None:
    alike = parse(" OR ".join(f"id = {i}" for i in range(3000)), SCHEMA).expression
    assert isinstance(alike, In)
    assert len(alike.literals) == 3000
    mixed = parse(" OR ".join(f"id > {i} AND region = '{i}'" for i in range(1500)), SCHEMA).expression
    assert _depth(mixed) < 16
    assert len(parse(f"id NOT IN ({', '.join(map(str, range(3000)))})", SCHEMA).expression.literals) == 3000


def _depth(expression: object) -> int:
    if not isinstance(expression, And | Or):
        return 1
    return 1 + max(_depth(expression.left), _depth(expression.right))


def test_times_are_read_on_the_clock_of_the_session() -> None:
    berlin = parse("ts >= TIMESTAMP '2024-06-01 00:00:00'", SCHEMA, time_zone="Europe/Berlin").expression
    utc = parse("ts >= TIMESTAMP '2024-05-31 22:00:00'", SCHEMA).expression
    assert berlin == utc
    assert parse("ts >= '2024-06-01 00:00:00+02:00'", SCHEMA).expression == utc
    with pytest.raises(UserError, match="Unknown time zone 'Mars/Olympus'"):
        parse("ts >= '2024-06-01'", SCHEMA, time_zone="Mars/Olympus")


def test_text_in_white_space_that_spark_may_not_trim_is_left_to_it() -> None:
    for text in (
        "id = '{}5'",
        "score < '{}5'",
        "id = CAST('{}5' AS INT)",
        "day = '{}2024-03-10'",
        "ts < '{}2024-03-10'",
    ):
        assert parse(text.format(" "), SCHEMA).is_exact, text
        assert not parse(text.format("\u00a0"), SCHEMA).is_exact, text


def test_decimals_that_spark_rounds_to_compare_them_are_left_to_it() -> None:
    schema = Schema(NestedField(1, "m", DecimalType(38, 10)), NestedField(2, "n", LongType()))
    for text in ("m > CAST(0 AS DECIMAL(30,2))", "m > 0.5", "n = 1.5", "n IN (1, 2.5)"):
        assert parse(text, schema).is_exact, text
    for text in ("m > CAST(0 AS DECIMAL(38,1))", "m > 0.00000000001", "n = 1.0000000000000000000000001"):
        assert not parse(text, schema).is_exact, text


@pytest.mark.parametrize("sign", ["", "-"])
def test_decimals_of_38_digits_keep_all_of_them(sign: str) -> None:
    schema, text = Schema(NestedField(1, "m", DecimalType(38, 10))), f"{sign}{'9' * 28}.{'9' * 10}"
    for where in (f"m = {text}", f"m IN ({text})"):
        assert parse(where, schema).expression == EqualTo("m", Decimal(text))


def test_zones_that_only_look_like_those_of_spark_are_left_to_it() -> None:
    for zone in ("Z", " UTC", "+05:30", "-1:00", " Europe/Paris"):
        assert parse(f"ts < '2024-06-01 12:00:00{zone}'", SCHEMA).is_exact, zone
    for zone in ("z", " utc", "+19:00", "+05:75", " EST", " Nowhere/Land"):
        assert not parse(f"ts < '2024-06-01 12:00:00{zone}'", SCHEMA).is_exact, zone


def test_a_day_with_a_changing_clock_is_left_to_spark() -> None:
    assert parse("CAST(ts AS DATE) = '2024-03-31'", SCHEMA, time_zone="Europe/Berlin").expression is AlwaysTrue()
    assert parse("CAST(ts AS DATE) = '2024-06-01'", SCHEMA, time_zone="Europe/Berlin").is_exact


def test_nanoseconds_are_compared_exactly() -> None:
    found = parse("ns = TIMESTAMP_NTZ '1970-01-01 00:00:00.000001001'", SCHEMA)
    assert found.is_exact
    assert str(bind(SCHEMA, found.expression, True).literal) == "1001"
    assert not parse("ts = TIMESTAMP_NTZ '1970-01-01 00:00:00.000001001'", SCHEMA).is_exact


def test_a_query_lets_nanoseconds_through_whether_or_not_they_are_cut_off() -> None:
    (where,) = parse_sql("ns = TIMESTAMP_NTZ '1970-01-01 00:00:00.000001'")
    bound = bind(SCHEMA, pruning_expression(where, SCHEMA), True)
    assert [str(bound.left.literal), str(bound.right.literal)] == ["1000", "2000"]


def test_types_spark_does_not_have_are_rarely_exact() -> None:
    assert parse("key > '00000000-0000-0000-0000-00000000000a'", SCHEMA).is_exact is False
    assert parse("key = '00000000-0000-0000-0000-00000000000a'", SCHEMA).is_exact, "one text for each"
    assert parse("key = '00000000-0000-0000-0000-00000000000A'", SCHEMA).expression is AlwaysTrue()
    assert parse("four = X'00010203'", SCHEMA).is_exact
    assert parse("four = X'0001'", SCHEMA).expression is AlwaysTrue()
    assert parse("at = '10:00:00'", SCHEMA).expression is AlwaysTrue()


def test_literals_that_depend_on_settings_prune_nothing() -> None:
    for text in (
        "id = '1.5'",
        "id = 'x'",
        "region = 1",
        "f = '0.1'",
        "f = 16777217",
        "day NOT IN ('2024-1-1')",
        "id = true",
    ):
        assert parse(text, SCHEMA).expression is AlwaysTrue(), text


def test_the_normal_form_is_its_own_normal_form() -> None:
    given = Not(And(LessThan("score", 1.0), Or(GreaterThan("f", 0.1), In("id", [1, 2, 2**70]))))
    once = normalize_expression(given, SCHEMA)
    assert normalize_expression(once, SCHEMA) == once


def test_a_comparison_beyond_the_type_excludes_null_only() -> None:
    schema = Schema(NestedField(1, "i", IntegerType(), required=False))
    assert normalize_expression(LessThan("i", 2**40), schema) == NotNull("i")
    assert normalize_expression(GreaterThan("i", 2**40), schema) is AlwaysFalse()
    assert normalize_expression(In("i", [1, 2**40]), schema) == EqualTo("i", 1)
    assert normalize_expression(~In("i", [1, 2**31]), schema) == And(~EqualTo("i", 1), NotNull("i"))
    assert normalize_expression(NotEqualTo("i", 2**40), schema) == NotNull("i")


def test_expressions_nested_too_deeply_are_rejected() -> None:
    deep = EqualTo("id", 0)
    for i in range(200):
        deep = And(Or(deep, EqualTo("region", str(i))), GreaterThan("id", i))
    with pytest.raises(UserError, match="nested too deeply"):
        normalize_expression(deep, SCHEMA)
