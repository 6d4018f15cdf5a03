"""The harness of the DML cases is held to its own claims: it tells rows apart, and every case can be played."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

import neve
from tests.support.dml_cases import RUNS, Case, cases, histories
from tests.support.dml_tables import VERBS, flat
from tests.support.spark_oracle import difference, kinds
from tests.support.tables import out_of_reach
from tests.support.text_rows import Rows

TEXT = """
    id bigint | at timestamp     | price decimal(5,2) | s string  | tags array<string> | p struct<x: double>
    1         | 2026-01-01 10:00 | 1.50               | 'a | b'   | ["p", null]        | {"x": 1.5}
    2         | null             | null               | null      | null               | null
    """


def test_cells_are_read_by_the_type_of_their_column():
    first, second = Rows.of_text(TEXT).arrow().to_pylist()
    assert first == {
        "id": 1,
        "at": datetime(2026, 1, 1, 10, tzinfo=UTC),
        "price": Decimal("1.50"),
        "s": "a | b",
        "tags": ["p", None],
        "p": {"x": 1.5},
    }
    assert second == {"id": 2, "at": None, "price": None, "s": None, "tags": None, "p": None}


@pytest.mark.parametrize(
    ("found", "expected"),
    [([0.0], [-0.0]), ([1.0], [float("nan")]), ([1.0, 1.0], [1.0]), ([None], [0.0]), ([], [1.0])],
    ids=["zeros", "nan", "twice", "null", "missing"],
)
def test_rows_that_differ_are_told_apart(found: list[float | None], expected: list[float]):
    one, other = (pa.table({"d": pa.array(values, pa.float64())}) for values in (found, expected))
    assert difference(one, other) and difference(other, one)
    assert not difference(one, one) and not difference(other, other)


def test_types_are_told_apart():
    tables = [pa.table({"x": pa.array([1], kind)}) for kind in (pa.int32(), pa.int64(), pa.float64())]
    assert len({str(kinds(t)) for t in tables}) == 3


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_every_combination_has_its_share_of_cases(run):
    assert sum(case.own_run == run for case in cases()) > len(cases()) / 12


def test_every_history_is_used_and_made_of_known_steps():
    used = {case.history for case in cases() if isinstance(case.history, str)}
    inside = {step for steps in histories().values() for step in steps if isinstance(step, str)}
    assert set(histories()) == used | inside
    assert {next(iter(step)) for name in histories() for step in flat(name)} <= set(VERBS)


def test_a_case_with_a_misspelt_key_is_refused():
    given = {"name": "x", "about": "X.", "family": "x", "statement": "DELETE FROM db.t", "oracle": "SELECT 1"}
    assert Case(**given)
    with pytest.raises(TypeError, match="orakel"):
        Case(**given, orakel="SELECT 1")
    with pytest.raises(AssertionError, match="why"):
        Case(**given, only=["mor"])


def test_files_out_of_reach_are_missed_by_who_needs_them(tmp_path):
    table = neve.connect(tmp_path / "lake").create_table("db.t", "id bigint, region string", ["region"])
    table.append([{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}])
    with out_of_reach(table, "region = 'us'"):
        assert table.scan("region = 'eu'").to_arrow(engine="arrow").num_rows == 1
        with pytest.raises(neve.NeveError):
            table.scan().to_arrow(engine="arrow")
    assert table.scan().to_arrow(engine="arrow").num_rows == 2
