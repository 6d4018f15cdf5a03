"""Options of readers and writers on tables of a lake, and names that `attach` and `spark.catalog` take."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from neve import attach, detach
from neve.errors import UnknownName, UserError

ROWS = [{"id": 1, "s": "a"}, {"id": 2, "s": "b"}]


@pytest.fixture
def table(lakes):
    """A table of two partitions with a branch `audit`."""
    table = lakes["lake"].create_table("db.u", "id bigint, s string", ["s"], format_version=2)
    table.append(ROWS)
    table.create_branch("audit")
    return table


@pytest.fixture
def frame(spark):
    return spark.createDataFrame([(5, "b")], "id bigint, s string")


def ids(spark, name: str) -> list[int]:
    return sorted(row.id for row in spark.sql(f"SELECT id FROM {name}").collect())


# -- where a write goes ----------------------------------------------------------------------------------------------

# Ways to write, each with the rows that it leaves.
WRITES = {
    "append": (lambda frame, name, o: frame.writeTo(name).options(**o).append(), [1, 2, 5]),
    "overwritePartitions": (lambda frame, name, o: frame.writeTo(name).options(**o).overwritePartitions(), [1, 5]),
    "overwrite": (lambda frame, name, o: frame.writeTo(name).options(**o).overwrite("s = 'b'"), [1, 5]),
    "insertInto": (lambda frame, name, o: frame.write.options(**o).insertInto(name), [1, 2, 5]),
    "insertInto overwrite": (lambda frame, name, o: frame.write.options(**o).insertInto(name, overwrite=True), [1, 5]),
    "insertInto mode": (lambda frame, name, o: frame.write.mode("overwrite").options(**o).insertInto(name), [1, 5]),
    "saveAsTable": (lambda frame, name, o: frame.write.mode("append").saveAsTable(name, **o), [1, 2, 5]),
}
BRANCHES = {
    "option": ("lake.db.u", {"branch": "audit"}),
    "option in capitals": ("lake.db.u", {"BRANCH": "audit"}),
    "name": ("lake.db.u.branch_audit", {}),
    "both": ("lake.db.u.branch_audit", {"branch": "audit"}),
}


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("way", WRITES)
def test_a_write_goes_to_the_branch_that_it_names(spark, table, frame, way, branch):
    (write, expected), (name, options) = WRITES[way], BRANCHES[branch]
    write(frame, name, {**options, "Snapshot-Property.Who": "me"})
    assert ids(spark, "lake.db.u") == [1, 2] and ids(spark, "lake.db.u.branch_audit") == expected
    head = table.refresh().context.head("audit")
    assert head.summary.additional_properties["Who"] == "me"
    assert spark.catalog.listTables("lake.db")[-1].name == "u", "no table of that name was made"


@pytest.mark.parametrize("way", WRITES)
def test_a_write_names_one_branch(spark, table, frame, way):
    write, _ = WRITES[way]
    with pytest.raises(UserError, match="Give only one"):
        write(frame, "lake.db.u.branch_audit", {"branch": "main"})
    with pytest.raises(UserError, match="nothing"):
        write(frame, "lake.db.u", {"branch": "nothing"})
    assert ids(spark, "lake.db.u") == [1, 2]


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_branch_is_neither_created_nor_replaced_as_a_table(spark, lakes, table, frame, branch):
    name, options = BRANCHES[branch]
    writes = [
        lambda: frame.write.mode("overwrite").options(**options).saveAsTable(name),
        lambda: frame.writeTo(name).options(**options).createOrReplace(),
        lambda: frame.writeTo(name).options(**options).replace(),
        lambda: frame.writeTo(name).options(**options).create(),
    ]
    for write in writes:
        with pytest.raises(UserError, match="branch"):
            write()
    with pytest.raises(UserError, match="exists already"):
        frame.write.options(**options).saveAsTable(name)
    frame.write.mode("ignore").options(**options).saveAsTable(name)
    assert lakes["lake"].tables() == ["db.t", "db.u"]
    assert ids(spark, "lake.db.u") == ids(spark, "lake.db.u.branch_audit") == [1, 2]


def test_a_new_table_keeps_no_option_of_the_write(spark, lakes, frame, tmp_path):
    options = {"isolation-level": "snapshot", "mergeSchema": "true", "snapshot-property.who": "me", "Path": ""}
    writes = {
        "a": lambda o: frame.writeTo("lake.db.a").options(**o).option("write.parquet.page-row-limit", 7).create(),
        "b": lambda o: frame.write.option("write.parquet.page-row-limit", 7).saveAsTable("lake.db.b", **o),
        "c": lambda o: frame.writeTo("lake.db.a").options(**o).createOrReplace(),
    }
    for name, write in writes.items():
        location = f"{tmp_path}/at-{name}"
        write({**options, "Path": location})
        metadata = lakes["lake"].table("db.b" if name == "b" else "db.a").context.metadata
        assert metadata.location.endswith(location)
        assert not {"path", "Path", "isolation-level", "mergeSchema"} & set(metadata.properties)
        assert metadata.properties["write.parquet.page-row-limit"] == "7"
        assert metadata.current_snapshot().summary.additional_properties["who"] == "me"


def test_buckets_of_a_new_table_are_partitions(lakes, frame):
    frame.write.partitionBy("s").bucketBy(4, "id").saveAsTable("lake.db.b")
    fields = lakes["lake"].table("db.b").context.metadata.spec().fields
    assert [(f.name, str(f.transform)) for f in fields] == [("s", "identity"), ("id_bucket", "bucket[4]")]


@pytest.mark.parametrize(
    "choose",
    [lambda w: w.bucketBy(4, "id", "s"), lambda w: w.bucketBy(4, "id").sortBy("id"), lambda w: w.clusterBy("id")],
)
def test_an_order_of_a_new_table_is_refused(lakes, frame, choose):
    with pytest.raises(UserError, match=r"Cannot write table lake\.db\.b with"):
        choose(frame.write).saveAsTable("lake.db.b")
    assert lakes["lake"].tables() == ["db.t"]


# -- what is read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["start-snapshot-id", "End-Snapshot-Id", "start-timestamp", "end-timestamp"])
def test_options_for_the_rows_between_two_snapshots_are_refused(spark, table, option):
    for read in (
        lambda: spark.read.option(option, 1).table("lake.db.u"),
        lambda: spark.read.format("iceberg").option(option, 1).load("lake.db.u"),
        lambda: spark.read.format("iceberg").load("lake.db.u", **{option: 1}),
    ):
        with pytest.raises(UserError, match=f"option {option}"):
            read()


@pytest.mark.parametrize(("option", "value"), [("snapshot-id", "x"), ("as-of-timestamp", "2026-01-01")])
def test_a_state_that_is_no_number_is_an_error_of_one_sentence(spark, table, option, value):
    with pytest.raises(UserError, match=f"option {option} is '{value}'; it must be a whole number"):
        spark.read.option(option, value).table("lake.db.u")


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "system",
        "session",
        "global_temp",
        "spark_Catalog",
        "parquet",
        "TEXT",
        "select",
        "table",
        "default",
        5,
        None,
        "a-b",
    ],
)
def test_a_lake_is_not_attached_under_a_name_that_means_something_else(spark, lakes, name):
    with pytest.raises(UserError, match="Cannot attach a lake as"):
        attach(spark, lakes["lake"], name=name)
    assert detach(spark) == ["lake", "other"]


@pytest.mark.parametrize("lake", ["x", None, 5])
def test_only_a_lake_is_attached(spark, lakes, lake):
    with pytest.raises(UserError, match=r"neve\.connect"):
        attach(spark, lake, name="third")
    assert detach(spark) == ["lake", "other"]


@pytest.mark.parametrize("current", ["spark_catalog", "other.db"])
def test_the_catalog_takes_the_name_of_a_lake(spark, lakes, current):
    lakes["lake"].create_table(("db", "x.y"), "id int")
    spark.sql(f"USE {current}")
    assert not spark.catalog.databaseExists("lake") and spark.catalog.databaseExists("lake.db")
    assert [each.name for each in spark.catalog.listTables("lake")] == ["t", "x.y"]
    assert spark.catalog.getDatabase("lake.db").catalog == "lake"
    with pytest.raises(UnknownName):
        spark.catalog.getDatabase("lake")
    before = spark.catalog.currentCatalog()
    with pytest.raises((PySparkException, Py4JJavaError)):
        spark.catalog.setCurrentCatalog("db")
    assert spark.catalog.currentCatalog() == before
