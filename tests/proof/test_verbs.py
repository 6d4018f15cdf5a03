"""The list of verbs is complete: it has every public method that changes a table."""

from __future__ import annotations

from neve import Lake, Table
from tests.proof.operations import BY_OTHER_NAMES, VERBS

READERS = {
    *("refresh", "name", "iceberg", "schema", "scan", "to_spark", "to_arrow", "inspect", "verify", "report"),
    *("spark", "time_zone", "table", "tables", "view", "views", "context"),
}
FRONTS = {"sql"}  # the statements it runs are in the list under their own names


def test_every_public_verb_is_in_the_list():
    public = {name for kind in (Table, Lake) for name, part in vars(kind).items() if _is_verb(name, part)}
    assert public - READERS - FRONTS == {*(name.split(",")[0] for name in VERBS), *BY_OTHER_NAMES} & public


def test_no_listed_verb_has_an_exemption():
    assert not {*BY_OTHER_NAMES} & {*VERBS}
    assert {*BY_OTHER_NAMES} <= {*vars(Table), *vars(Lake)}


def _is_verb(name: str, part: object) -> bool:
    return not name.startswith("_") and (callable(part) or isinstance(part, property))
