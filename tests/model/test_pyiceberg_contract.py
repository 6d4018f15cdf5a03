"""What we rely on in PyIceberg beyond its public names; a new release that breaks a promise fails here first."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import BoundIn, BoundNotIn, BoundSetPredicate, In, NotIn, Reference, SetPredicate
from pyiceberg.expressions.literals import LongLiteral
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import IntegerType, ListType, LongType, MapType, NestedField, StringType, StructType

import neve
from neve.model.pyiceberg_private import (
    columns_after_changes,
    fields_by_id,
    ids_by_name,
    make_set_predicate,
    parents_by_id,
    schema_without_ids,
)

PACKAGE = Path(neve.__file__).parent
ADAPTER = PACKAGE / "model" / "pyiceberg_private.py"

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "place", StructType(NestedField(3, "city", StringType()), NestedField(4, "zip", IntegerType()))),
    NestedField(5, "tags", ListType(6, StringType(), False)),
    NestedField(7, "counts", MapType(8, StringType(), 9, LongType(), False)),
)


def test_fields_by_id_knows_every_nested_field() -> None:
    found = fields_by_id(SCHEMA)
    assert set(found) == set(range(1, 10))
    assert all(found[i] == SCHEMA.find_field(i) for i in found)


def test_fields_by_id_are_made_once() -> None:
    assert fields_by_id(SCHEMA) is fields_by_id(SCHEMA)


def test_ids_by_name_has_full_names() -> None:
    found = ids_by_name(SCHEMA)
    assert (found["id"], found["place.city"], found["tags.element"], found["counts.value"]) == (1, 3, 6, 9)
    assert "city" not in found


def test_parents_by_id_leads_to_the_top() -> None:
    assert parents_by_id(SCHEMA) == {3: 2, 4: 2, 6: 5, 8: 7, 9: 7}


def test_an_arrow_schema_becomes_one_without_ids() -> None:
    arrow = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.struct([("x", pa.string())]))])
    found = schema_without_ids(arrow)
    assert [(f.name, f.field_id, f.required) for f in found.fields] == [("id", -1, True), ("p", -1, False)]
    fresh = assign_fresh_schema_ids(found)
    assert {name: fresh.find_field(name).field_id for name in ("id", "p", "p.x")} == {"id": 1, "p": 2, "p.x": 3}


@pytest.mark.parametrize(("kind", "bound"), [(In, BoundIn), (NotIn, BoundNotIn)])
def test_sets_without_checks_are_like_those_with_checks(
    kind: type[SetPredicate], bound: type[BoundSetPredicate]
) -> None:
    literals = {LongLiteral(1), LongLiteral(5)}
    made = make_set_predicate(kind, Reference("id"), literals)
    assert made == kind("id", literals)
    assert str(made) == str(kind("id", literals))
    assert pickle.loads(pickle.dumps(made)) == made
    term = made.term.bind(SCHEMA)
    assert make_set_predicate(bound, term, literals) == made.bind(SCHEMA)
    assert make_set_predicate(bound, term, literals).value_set == {1, 5}


def test_changed_columns_are_what_pyiceberg_would_commit(tmp_path: Path) -> None:
    table = neve.connect(tmp_path).create_table("db.t", SCHEMA).iceberg
    change = table.update_schema().add_column(("place", "street"), StringType()).delete_column("tags").move_first("id")
    assert columns_after_changes(change) == change._apply().fields
    assert columns_after_changes(table.update_schema()) == table.schema().fields


# What the catalogs of neve.catalog and the schema changes of neve.ops call or override in the classes above them.
HOOKS: dict[type, dict[str, tuple[str, ...]]] = {
    Catalog: {
        "_load_file_io": ("properties", "location"),
        "_convert_schema_if_needed": ("schema", "format_version"),
    },
    MetastoreCatalog: {
        "_resolve_table_location": ("location", "database_name", "table_name"),
        "_update_and_stage_table": ("current_table", "table_identifier", "requirements", "updates"),
        "_write_metadata": ("metadata", "io", "metadata_path"),
    },
    SqlCatalog: {
        "_convert_orm_to_iceberg": ("orm_table",),
        "_create_table_row": ("namespace", "table_name", "metadata_location"),
        "_iceberg_type_filter": (),
        "_init_catalog": (),
    },
    RestCatalog: {
        "_check_endpoint": ("endpoint",),
        "_refresh_token": (),
        "_resolve_storage_credentials": ("storage_credentials", "location"),
        "_split_identifier_for_path": ("identifier", "kind"),
    },
    UpdateSchema: {"_apply": (), "_commit": (), "_find_for_move": ("name",)},
}


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in HOOKS.items() for name in names])
def test_the_hooks_are_where_they_were(owner: type, name: str) -> None:
    parameters = inspect.signature(getattr(owner, name)).parameters
    assert tuple(p for p in parameters if p != "self") == HOOKS[owner][name]


def test_private_names_of_schemas_are_in_one_module() -> None:
    private = re.compile(r"\b_lazy_id_to|\._name_to_id|import _pyarrow")
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path != ADAPTER and private.search(path.read_text())
    }
    assert not found
