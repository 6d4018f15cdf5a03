"""Névé and Spark with Iceberg's own runtime write to one table in turn, and agree on it.

Both use the same catalog. The expected rows come from a plain database that ran the same statements, or from a
plain-Python model. NEVE_PROOF=all runs every history on every version, in both modes and both directions.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from tests.peers.agreement_counts import SHOWN, Tally
from tests.peers.alternating_engines import SharedTable
from tests.peers.engine_comparison import NAMES, SharedLake, read_and_compare
from tests.peers.histories import Scenario, selected_exports, selected_scenarios
from tests.peers.known_bugs import SHARED_FAULTS, SPARK_FAULTS, Fault
from tests.peers.metadata_structure import PARTS, by_neve, by_spark, describe_difference
from tests.peers.readers import READERS
from tests.peers.spark import NAME as SPARK
from tests.support.coverage import IS_LONG, IS_SEARCH, spread
from tests.support.random_histories import Life, lives
from tests.support.row_model import Model

STEPS = 8
HISTORIES = 12 if IS_LONG else 2  # per version; the first one is empty
EVENTS = "CREATE TABLE {t} (id bigint, ts timestamp, region string, n int) USING iceberg PARTITIONED BY (days(ts))"
MERGE_ON_READ = " TBLPROPERTIES ('format-version' = '2', 'write.update.mode' = 'merge-on-read')"
FIRST, SECOND = (  # four rows in one partition each, so that a file keeps rows when one of them changes
    "INSERT INTO {t} VALUES " + ", ".join(f"({i}, TIMESTAMP '2024-01-01 10:00:00', 'eu', {i})" for i in ids)
    for ids in (range(4), range(4, 8))
)
EVOLVE = "ALTER TABLE {t} ADD PARTITION FIELD region"


def specs_of(shared_lake: SharedLake, name: str, content: int) -> list[int]:
    """Return the specs of the manifests with a content type, as Spark with Iceberg shows them."""
    query = f"SELECT partition_spec_id AS spec FROM {name}.manifests WHERE content = {content} ORDER BY 1"
    return shared_lake.spark.sql(query)["spec"].to_pylist()


def test_spark_creates_neve_modifies(shared_lake: SharedLake, tally: Tally):
    compared = shared_lake.table(tally)
    past = [EVENTS + MERGE_ON_READ, FIRST, EVOLVE, SECOND]
    compared.run(("spark", text.format(t=compared.name)) for text in past)
    compared.run([("neve", f"UPDATE {compared.name} SET n = n + 10 WHERE id IN (1, 5)")])
    compared.check_all()
    assert specs_of(shared_lake, compared.name, content=0) == [0, 1, 1], "new rows are under the default spec"
    assert specs_of(shared_lake, compared.name, content=1) == [0, 1], "deletes keep the spec of the file they are for"


def test_neve_creates_spark_reads(shared_lake: SharedLake, tally: Tally):
    compared = shared_lake.table(tally)
    past = [EVENTS + MERGE_ON_READ, FIRST, EVOLVE, SECOND, "UPDATE {t} SET n = 0 WHERE id IN (1, 5)"]
    compared.run(("neve", text.format(t=compared.name)) for text in past)
    compared.check_all()
    assert specs_of(shared_lake, compared.name, content=0) == [0, 1, 1]
    assert specs_of(shared_lake, compared.name, content=1) == [0, 1]


@pytest.mark.parametrize("fault", SPARK_FAULTS, ids=lambda f: f.reason)
def test_a_known_bug_still_exists(shared_lake: SharedLake, tally: Tally, fault: Fault):
    compared = shared_lake.table(Tally())  # a separate tally: the differences here are intended
    table = fault.table(shared_lake.lake, compared.name)
    assert fault.concerns(table.iceberg)
    if fault.by_spark:
        shared_lake.spark.sql(fault.by_spark.format(t=compared.name))
    if not fault.statement:
        theirs, ours = by_spark(shared_lake.spark, compared.name), by_neve(table)
        assert fault.message in "".join(
            describe_difference(getattr(theirs, part), getattr(ours, part)) for part in PARTS
        )
    elif fault.message:
        compared.expect_error(fault.statement.format(t=compared.name), fault)
    else:
        shared_lake.plain.create_table(compared.name, table.scan().to_arrow(engine="arrow"))
        compared.run([("spark", fault.statement.format(t=compared.name))])
        assert "missing" in "".join(compared.rows_by("spark")), "it leaves the right rows: is the bug fixed?"
    tally.other_figures[SHOWN] += 1


@pytest.mark.parametrize("fault", SHARED_FAULTS, ids=lambda f: f"{f.engine} {f.reason}")
def test_a_known_bug_on_tables_of_spark_still_exists(shared_lake: SharedLake, tally: Tally, fault: Fault):
    def result() -> str:
        table = shared_lake.lake.table(compared.name)
        return read_and_compare(
            fault.engine, table.context.iceberg, shared_lake.duckdb, table.scan().to_arrow(engine="arrow")
        )

    compared = shared_lake.table(tally)
    fault.table(shared_lake.lake, compared.name)
    assert result() == "", "it reads the table that Névé wrote"
    shared_lake.spark.sql(fault.by_spark.format(t=compared.name))
    assert fault.concerns(shared_lake.lake.table(compared.name).context.iceberg)
    assert result().startswith(fault.message), f"{fault.engine} now returns {result()!r}: is the bug fixed?"
    tally.other_figures[SHOWN] += 1


@pytest.mark.parametrize("scenario", selected_scenarios(), ids=str)
def test_two_engines_agree_on_a_table_they_both_wrote(shared_lake: SharedLake, tally: Tally, scenario: Scenario):
    compared = shared_lake.table(tally)
    compared.run(scenario.past(compared.name))
    compared.check_all()
    if scenario.fault is not None:
        compared.expect_error(next(scenario.present(compared.name))[1], scenario.fault)
        return
    compared.run(scenario.present(compared.name), watched=True)
    compared.check_all()


@pytest.mark.parametrize("scenario", selected_exports(), ids=str)
def test_exports_of_version_4_are_read_by_all(shared_lake: SharedLake, tally: Tally, scenario: Scenario):
    compared = shared_lake.table(tally)
    compared.run(scenario.past(compared.name))
    compared.exported("halfway").check_all()
    compared.run(scenario.present(compared.name))
    compared.check(compared.rows_by("neve"), compared.audit())
    compared.exported("finally").check_all()


@pytest.mark.parametrize("version", spread([3, 4, 1, 2], every=4))
def test_random_histories_of_two_writers_are_read_the_same_by_all(shared_lake: SharedLake, tally: Tally, version: int):
    @settings(max_examples=HISTORIES, phases=set(Phase) - {Phase.explain})
    @given(life=lives(version, STEPS), turns=st.integers(0, 10_000))
    def run_history(life: Life, turns: int) -> None:
        model = Model(life.start.columns)
        SharedTable(shared_lake.table(tally, model.arrow), model, random.Random(turns)).run_history(life)

    (run_history if IS_SEARCH else seed(version)(run_history))()
    steps = {engine: tally.other_figures[f"steps by {engine}"] for engine in NAMES.values()}
    enough = sum(steps.values()) / 3 if IS_LONG else 1  # one history is too few for a share
    assert version == 4 or steps[SPARK] >= enough, f"Spark has to take its turns: {steps}"


def test_only_comparisons_of_existing_rows_by_another_engine_count(shared_lake: SharedLake):
    compared = shared_lake.table(Tally())
    compared.run(
        [("neve", f"CREATE TABLE {compared.name} (id bigint) USING iceberg TBLPROPERTIES ('format-version' = '1')")]
    )
    compared.check_all()
    assert not compared.tally.agreed, "there was nothing to compare"
    compared.run([("neve", f"INSERT INTO {compared.name} VALUES (1)")])
    compared.check_all()
    assert compared.tally.agreed == dict.fromkeys((SPARK, *(f"{SPARK}, {part}" for part in PARTS), *READERS), 1)
    assert compared.tally.other_figures[f"claims on what {SPARK} shows"] == 3, (
        "version 1 has no numbers, no row ids, no deletes"
    )
    shared_lake.plain.run(f"INSERT INTO {compared.name} VALUES (2)")
    assert len([*compared.rows_by("neve", "spark"), *compared.rows_by_readers()]) == 5
    assert compared.tally.wrong == dict.fromkeys((SPARK, *READERS), 1)
