"""Opening and adopting catalogs, and the verbs on tables by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.glue.models import glue_backends
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.sql import SqlCatalog as IcebergSqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate, UpgradeFormatVersionUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from neve.catalog import (
    EmbeddedCatalog,
    LostRace,
    MaybeSwapped,
    NeveCatalog,
    RequirementFailed,
    SwapStatus,
    adopt_catalog,
    create_table,
    drop_table,
    identifier_of,
    list_tables,
    load_table,
    open_catalog,
    register_table,
    rename_table,
)
from neve.errors import CorruptFile, MissingFile, UnknownName, UnsupportedFeature, UserError
from neve.model.metadata import TableMetadata

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=False))


@pytest.fixture
def catalog(tmp_path: Path) -> NeveCatalog:
    return open_catalog(tmp_path / "lake")


def test_a_path_opens_an_embedded_lake_and_opens_it_again(tmp_path: Path) -> None:
    first = open_catalog(str(tmp_path / "new" / "lake"))
    table = create_table(first, "db.t", SCHEMA)
    assert isinstance(first, EmbeddedCatalog)
    assert (tmp_path / "new" / "lake" / "catalog.db").is_file()
    assert table.location() == f"file://{tmp_path}/new/lake/db/t"
    for spec in (tmp_path / "new" / "lake", f"file://{tmp_path}/new/lake"):
        assert load_table(open_catalog(spec), "db.t").metadata == table.metadata


def test_a_folder_with_spaces_and_accents_is_fine(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path / "névé lake")
    create_table(catalog, "db.t", SCHEMA)
    assert (tmp_path / "névé lake" / "db" / "t" / "metadata").is_dir()
    assert load_table(catalog, "db.t").schema() == SCHEMA


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("s3://bucket/lake", "must be local"),
        ("/lakes/a#b", "must not contain"),
        ("/lakes/a?b", "must not contain"),
        ("/lakes/a%20b", "must not contain"),
    ],
)
def test_folders_that_cannot_be_a_lake_are_rejected(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_catalog(spec)


def test_a_lake_folder_takes_properties_of_its_storage(tmp_path: Path) -> None:
    fsspec = "pyiceberg.io.fsspec.FsspecFileIO"
    catalog = open_catalog(tmp_path / "lake", **{"py-io-impl": fsspec, "s3.region": "eu-north-1"})
    io = create_table(catalog, "db.t", SCHEMA).io
    assert isinstance(io, FsspecFileIO)
    assert io.properties["s3.region"] == "eu-north-1"


@pytest.mark.parametrize("name", ["uri", "warehouse", "type"])
def test_a_lake_folder_has_a_catalog_of_its_own(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=f"cannot be opened with {name}"):
        open_catalog(tmp_path / "lake", **{name: "sqlite://"})
    assert not (tmp_path / "lake").exists()


def test_a_file_is_no_lake(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    with pytest.raises(UserError, match="is a file"):
        open_catalog(tmp_path / "lake")


def test_an_unknown_name_is_rejected_and_properties_name_a_new_catalog(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="'nowhere'"):
        open_catalog("nowhere")
    with pytest.raises(UserError, match="Cannot open catalog 'x'"):
        open_catalog("x", uri="ftp://example")
    named = open_catalog("mine", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    assert named.name == "mine"
    assert isinstance(named, IcebergSqlCatalog)


def test_adoption_shares_all_state_and_leaves_the_class_alone(tmp_path: Path) -> None:
    theirs = IcebergSqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    ours = adopt_catalog(theirs)
    create_table(ours, "db.t", SCHEMA, format_version=3)
    assert theirs.__dict__ is ours.__dict__
    assert type(theirs) is IcebergSqlCatalog
    assert theirs.list_tables("db") == [("db", "t")]
    assert adopt_catalog(ours) is ours
    assert type(adopt_catalog(theirs)) is type(ours)


def test_the_in_memory_catalog_is_adopted(tmp_path: Path) -> None:
    ours = adopt_catalog(InMemoryCatalog("m", warehouse=f"file://{tmp_path}"))
    assert isinstance(ours, InMemoryCatalog)
    assert create_table(ours, "db.t", SCHEMA, format_version=4).metadata.format_version == 4


def test_a_catalog_of_an_unknown_kind_is_rejected() -> None:
    with pytest.raises(UnsupportedFeature, match="NoopCatalog"):
        adopt_catalog(NoopCatalog("n"))


def test_our_sql_catalog_can_be_named_in_configuration(tmp_path: Path) -> None:
    properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    catalog = load_catalog("c", **{"py-catalog-impl": "neve.catalog.SqlCatalog"}, **properties)
    catalog.create_namespace("db")
    assert catalog.create_table("db.t", SCHEMA, properties={"format-version": "4"}).metadata.format_version == 4


# --- tables by name ---


def test_a_table_is_created_as_specified(catalog: NeveCatalog, tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="name"))
    order = SortOrder(SortField(source_id=1, transform=IdentityTransform()))
    location, properties = f"file://{tmp_path}/apart/", {"owner": "me", "format-version": "3"}
    create_table(catalog, ("a", "b", "t"), SCHEMA, spec, order, location, properties)
    table = load_table(catalog, "a.b.t")
    assert (table.metadata.format_version, table.properties) == (3, {"owner": "me"})
    assert table.location() == f"file://{tmp_path}/apart"
    assert table.metadata_location.startswith(f"file://{tmp_path}/apart/metadata/00000-")
    assert table.spec().fields[0].name == "name"
    assert table.sort_order().fields[0].source_id == 1


def test_a_create_transaction_of_pyiceberg_ends_here(catalog: NeveCatalog) -> None:
    catalog.create_namespace("db")
    transaction = catalog.create_table_transaction("db.t", SCHEMA, properties={"format-version": "3", "a": "1"})
    table = transaction.commit_transaction()
    assert isinstance(table.metadata, TableMetadata)
    assert (table.metadata.format_version, table.properties) == (3, {"a": "1"})
    with pytest.raises(CommitFailedException):
        catalog.create_table_transaction("db.t", SCHEMA).commit_transaction()


@pytest.mark.parametrize(
    "name", ["t", "", "db.", ".t", "db..t", ("db", ".."), ("db", "a/b"), ("db", "a\nb"), ("..", "t")]
)
def test_invalid_names_are_rejected(catalog: NeveCatalog, name: Any) -> None:
    with pytest.raises(UserError, match="Table name"):
        create_table(catalog, name, SCHEMA)
    assert list_tables(catalog) == []


@pytest.mark.parametrize("name", ["a b", "a#b", "a?b", "50%", "a'b;--", "ünï", "${x}", "a*b"])
def test_names_with_odd_letters_work_and_their_paths_are_safe(catalog: NeveCatalog, name: str) -> None:
    table = create_table(catalog, ("db", name), SCHEMA)
    again = load_table(catalog, ("db", name))
    assert again.metadata == table.metadata
    assert not set("#?%*;' ") & set(again.location().rsplit("/", 1)[1])
    catalog.swap(again, (), [SetPropertiesUpdate(updates={"a": "1"})])
    assert list_tables(catalog) == [("db", name)]


def test_an_unknown_table_is_named_with_the_nearest_ones(catalog: NeveCatalog) -> None:
    create_table(catalog, "db.events", SCHEMA)
    with pytest.raises(UnknownName, match=r"Unknown table 'db\.evnets' in catalog 'neve'\. Did you mean 'db\.events'"):
        load_table(catalog, "db.evnets")
    for call in (lambda: drop_table(catalog, "no.such"), lambda: rename_table(catalog, "no.such", "db.u")):
        with pytest.raises(UnknownName, match=r"no\.such"):
            call()
    with pytest.raises(UnknownName, match="'dc'"):
        list_tables(catalog, "dc")


def test_a_table_is_created_once(catalog: NeveCatalog) -> None:
    create_table(catalog, "db.t", SCHEMA)
    with pytest.raises(UserError, match=r"Table db\.t already exists"):
        create_table(catalog, "db.t", SCHEMA)


def test_two_creators_leave_one_table_and_no_debris(catalog: Any, tmp_path: Path) -> None:
    original = catalog._swap_location

    def slower(*arguments: Any) -> None:
        catalog._swap_location = original
        create_table(catalog, "db.t", SCHEMA, properties={"who": "first"})
        original(*arguments)

    catalog._swap_location = slower
    with pytest.raises(UserError, match="already exists"):
        create_table(catalog, "db.t", SCHEMA, properties={"who": "second"})
    table = load_table(catalog, "db.t")
    assert table.properties == {"who": "first"}
    assert [f"file://{path}" for path in tmp_path.rglob("*.metadata.json")] == [table.metadata_location]


def test_bad_properties_and_versions_are_rejected_before_anything_is_written(
    catalog: NeveCatalog, tmp_path: Path
) -> None:
    for properties in ({"write.delete.mode": "fast"}, {"format-version": "two"}):
        with pytest.raises(UserError, match="Property"):
            create_table(catalog, "db.t", SCHEMA, properties=properties)
    with pytest.raises(UserError, match="Format version 7"):
        create_table(catalog, "db.t", SCHEMA, format_version=7)
    assert not list(tmp_path.rglob("*.json"))


def test_dropping_keeps_the_files_and_registering_brings_the_table_back(catalog: NeveCatalog) -> None:
    table = create_table(catalog, "db.t", SCHEMA)
    drop_table(catalog, "db.t")
    assert list_tables(catalog) == []
    back = register_table(catalog, "other.back", table.metadata_location)
    assert back.metadata == table.metadata
    with pytest.raises(UserError, match="already exists"):
        register_table(catalog, "other.back", table.metadata_location)


def test_what_cannot_be_read_is_not_registered(catalog: NeveCatalog, tmp_path: Path) -> None:
    (tmp_path / "bad.metadata.json").write_text("{}")
    with pytest.raises(CorruptFile, match="bad"):
        register_table(catalog, "db.t", f"file://{tmp_path}/bad.metadata.json")
    with pytest.raises(MissingFile, match="none"):
        register_table(catalog, "db.t", f"file://{tmp_path}/none.metadata.json")
    assert list_tables(catalog) == []


def test_a_hadoop_style_metadata_file_is_continued_with_the_next_number(catalog: NeveCatalog, tmp_path: Path) -> None:
    table = create_table(catalog, "db.t", SCHEMA)
    old = Path(table.metadata_location.removeprefix("file://"))
    renamed = old.rename(old.with_name("v7.metadata.json"))
    drop_table(catalog, "db.t")
    back = register_table(catalog, "db.t", f"file://{renamed}")
    done = catalog.swap(back, (), [SetPropertiesUpdate(updates={"a": "1"})])
    assert done.metadata_location.rsplit("/", 1)[1].startswith("00008-")


def test_renaming_makes_the_namespace_and_respects_what_is_there(catalog: NeveCatalog) -> None:
    create_table(catalog, "db.t", SCHEMA)
    create_table(catalog, "db.u", SCHEMA)
    assert rename_table(catalog, "db.t", "x.y.z").name() == ("x", "y", "z")
    assert list_tables(catalog) == [("db", "u"), ("x", "y", "z")]
    with pytest.raises(UserError, match="already exists"):
        rename_table(catalog, "x.y.z", "db.u")


def test_identifiers_are_text_or_parts() -> None:
    assert identifier_of("a.b.c") == identifier_of(("a", "b", "c")) == ("a", "b", "c")


# --- another metastore: AWS Glue, mocked by moto ---


@pytest.fixture
def glue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    moto = mock_aws()
    moto.start(reset=False)  # a reset empties the object store of other tests too, which moto mocks in this process
    glue_backends[DEFAULT_ACCOUNT_ID]["us-east-1"].reset()
    try:
        yield adopt_catalog(GlueCatalog("glue", **{"glue.region": "us-east-1", "warehouse": f"file://{tmp_path}"}))
    finally:
        moto.stop(remove_data=False)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_metastore_creates_commits_and_evolves(glue: Any, version: int) -> None:
    table = create_table(glue, "db.t", SCHEMA, format_version=version)
    with table.update_schema() as schema:
        schema.add_column("more", IntegerType())
    done = glue.swap(load_table(glue, "db.t"), (), [SetPropertiesUpdate(updates={"a": "1"})])
    again = load_table(glue, "db.t")
    assert again.metadata == done.metadata
    assert isinstance(again.metadata, TableMetadata)
    assert (again.metadata.format_version, again.schema().column_names) == (version, ["id", "name", "more"])
    assert again.metadata_location == done.metadata_location


def test_a_metastore_rejects_version_4_before_it_writes(glue: Any) -> None:
    with pytest.raises(UnsupportedFeature, match="1 to 3, not 4"):
        create_table(glue, "db.t", SCHEMA, format_version=4)
    table = create_table(glue, "db.t", SCHEMA, format_version=3)
    with pytest.raises(UnsupportedFeature, match="1 to 3, not 4"):
        glue.swap(table, (), [UpgradeFormatVersionUpdate.model_validate({"format-version": 4})])
    assert load_table(glue, "db.t").metadata_location == table.metadata_location


def test_a_metastore_reports_how_a_swap_ended(glue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create_table(glue, "db.t", SCHEMA)
    requirement = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": 5})
    with pytest.raises(RequirementFailed):
        glue.swap(table, [requirement], [SetPropertiesUpdate(updates={"a": "1"})])

    def lose(**_: Any) -> None:
        raise CommitFailedException("version changed")

    monkeypatch.setattr(glue, "_update_glue_table", lose)
    with pytest.raises(LostRace, match="version changed") as lost:
        glue.swap(table, (), [SetPropertiesUpdate(updates={"a": "1"})])
    assert Path(lost.value.location.removeprefix("file://")).is_file()

    monkeypatch.undo()
    real = glue._update_glue_table

    def land_and_break(**arguments: Any) -> None:
        real(**arguments)
        raise ConnectionError("reset")

    monkeypatch.setattr(glue, "_update_glue_table", land_and_break)
    with pytest.raises(MaybeSwapped, match="reset") as unknown:
        glue.swap(table, (), [SetPropertiesUpdate(updates={"b": "2"})])
    assert glue.swap_status(unknown.value) is SwapStatus.LANDED
    assert load_table(glue, "db.t").properties["b"] == "2"
