"""Tables written by Spark, Impala, Flink, Trino, DuckDB, PyIceberg and Go are read with the rows others read."""

from __future__ import annotations

from pathlib import Path

import pytest

import neve
from tests.support.foreign_tables import Foreign, checksum, foreign_tables, made_tables, needs_fixtures, relocated

MADE = [
    "v123_upgraded",
    "v1_plain",
    "v1_schema",
    "v1_specs",
    "v2_compacted",
    "v2_empty",
    "v2_eqdel",
    "v2_eqdel_null",
    "v2_nested",
    "v2_plain",
    "v2_posdel",
    "v2_posdel_file",
    "v2_posdel_nasty",
    "v2_schema",
    "v2_specs",
    "v3_defaults",
    "v3_dv",
    "v3_dv_nasty",
    "v3_dv_one_each",
    "v3_empty",
    "v3_nanos",
    "v3_plain",
    "v3_schema",
    "v3_specs",
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory, spark):
    return neve.connect(tmp_path_factory.mktemp("foreign"), spark=spark)


@pytest.fixture(scope="module")
def generated_tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return folder, made_tables(folder)


@needs_fixtures
@pytest.mark.parametrize("foreign", foreign_tables(), ids=lambda f: f.name.replace("/", "-"))
def test_rows_are_those_other_engines_agree_on(foreign: Foreign, lake, tmp_path: Path):
    if foreign.rows is None:
        pytest.skip("no engine could read it")
    table = lake.register_table(f"foreign.{foreign.name.replace('/', '_')}", relocated(foreign.name, tmp_path))
    rows = table.scan().to_arrow(engine="spark")
    assert checksum().of(rows)[:2] == (foreign.rows, foreign.checksum)


@needs_fixtures
@pytest.mark.parametrize("foreign", foreign_tables(), ids=lambda f: f.name.replace("/", "-"))
def test_rows_without_spark_are_the_same(foreign: Foreign, lake, tmp_path: Path):
    """The reader of the executors, run in this process, is a second opinion."""
    if foreign.rows is None:
        pytest.skip("no engine could read it")
    table = lake.register_table(f"again.{foreign.name.replace('/', '_')}", relocated(foreign.name, tmp_path))
    rows = table.scan().to_arrow(engine="arrow")
    assert checksum().of(rows)[:2] == (foreign.rows, foreign.checksum)


@needs_fixtures
@pytest.mark.parametrize("name", MADE)
def test_nasty_tables_are_read_exactly(name: str, lake, generated_tables):
    folder, expected = generated_tables
    want = expected[name]
    location = (folder / name / "metadata" / want["metadata"]).as_uri()
    table = lake.register_table(f"made.{name}", location)
    for engine in ("arrow", "auto"):
        rows = table.scan().to_arrow(engine=engine)
        assert sorted(rows.column_names) == sorted(want["columns"])
        assert checksum().of(rows)[:2] == (want["rows"], want["checksum"]), engine
    if name != "v3_nanos":  # Spark has no nanoseconds
        assert checksum().of(table.scan().to_arrow(engine="spark"))[:2] == (want["rows"], want["checksum"])
