"""Névé and Spark with Iceberg's own runtime write to one table in turn, and agree on it.

The table is in one catalog that both use. What its rows must be says a plain database that ran the same statements, or
a plain model. NEVE_PROOF=all plays every history on every version, in both modes and both directions.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from tests.peers.agreement_counts import SHOWN, Tally
from tests.peers.alternating_engines import Shared
from tests.peers.engine_comparison import NAMES, Ground, answer
from tests.peers.histories import Scenario, chosen, chosen_exports
from tests.peers.known_bugs import SHARED_FAULTS, SPARK_FAULTS, Fault
from tests.peers.metadata_structure import PARTS, by_neve, by_spark, unlike
from tests.peers.readers import READERS
from tests.peers.spark import NAME as SPARK
from tests.support.coverage import IS_LONG, IS_SEARCH, spread
from tests.support.random_histories import Life, lives
from tests.support.row_model import Model

STEPS = 8
LIVES = 12 if IS_LONG else 2  # of each version; the first is an empty one
EVENTS = "CREATE TABLE {t} (id bigint, ts timestamp, region string, n int) USING iceberg PARTITIONED BY (days(ts))"
MERGE_ON_READ = " TBLPROPERTIES ('format-version' = '2', 'write.update.mode' = 'merge-on-read')"
FIRST, SECOND = (  # four rows of one partition each, so that a file keeps some when one of them changes
    "INSERT INTO {t} VALUES " + ", ".join(f"({i}, TIMESTAMP '2024-01-01 10:00:00', 'eu', {i})" for i in ids)
    for ids in (range(4), range(4, 8))
)
EVOLVE = "ALTER TABLE {t} ADD PARTITION FIELD region"


def specs_of(ground: Ground, name: str, content: int) -> list[int]:
    """The specs of the manifests of a kind, as Spark with Iceberg sees them."""
    query = f"SELECT partition_spec_id AS spec FROM {name}.manifests WHERE content = {content} ORDER BY 1"
    return ground.spark.sql(query)["spec"].to_pylist()


def test_spark_creates_neve_modifies(ground: Ground, tally: Tally):
    played = ground.table(tally)
    past = [EVENTS + MERGE_ON_READ, FIRST, EVOLVE, SECOND]
    played.play(("spark", text.format(t=played.name)) for text in past)
    played.play([("neve", f"UPDATE {played.name} SET n = n + 10 WHERE id IN (1, 5)")])
    played.check_all()
    assert specs_of(ground, played.name, content=0) == [0, 1, 1], "new rows are under the default spec"
    assert specs_of(ground, played.name, content=1) == [0, 1], "deletes keep the spec of the file they are for"


def test_neve_creates_spark_reads(ground: Ground, tally: Tally):
    played = ground.table(tally)
    past = [EVENTS + MERGE_ON_READ, FIRST, EVOLVE, SECOND, "UPDATE {t} SET n = 0 WHERE id IN (1, 5)"]
    played.play(("neve", text.format(t=played.name)) for text in past)
    played.check_all()
    assert specs_of(ground, played.name, content=0) == [0, 1, 1]
    assert specs_of(ground, played.name, content=1) == [0, 1]


@pytest.mark.parametrize("fault", SPARK_FAULTS, ids=lambda f: f.reason)
def test_a_fault_that_is_listed_is_still_there(ground: Ground, tally: Tally, fault: Fault):
    played = ground.table(Tally())  # its own: what is wrong here is meant to be
    table = fault.table(ground.lake, played.name)
    assert fault.concerns(table.iceberg)
    if fault.by_spark:
        ground.spark.sql(fault.by_spark.format(t=played.name))
    if not fault.statement:
        theirs, ours = by_spark(ground.spark, played.name), by_neve(table)
        assert fault.says in "".join(unlike(getattr(theirs, part), getattr(ours, part)) for part in PARTS)
    elif fault.says:
        played.refuse(fault.statement.format(t=played.name), fault)
    else:
        ground.plain.hold(played.name, table.scan().to_arrow(engine="arrow"))
        played.play([("spark", fault.statement.format(t=played.name))])
        assert "missing" in "".join(played.rows_by("spark")), "it leaves the rows it was told to: is the fault gone?"
    tally.told[SHOWN] += 1


@pytest.mark.parametrize("fault", SHARED_FAULTS, ids=lambda f: f"{f.witness} {f.reason}")
def test_a_fault_over_what_spark_wrote_is_still_there(ground: Ground, tally: Tally, fault: Fault):
    def said() -> str:
        table = ground.lake.table(played.name)
        return answer(fault.witness, table.context.iceberg, ground.duckdb, table.scan().to_arrow(engine="arrow"))

    played = ground.table(tally)
    fault.table(ground.lake, played.name)
    assert said() == "", "what Névé wrote it reads"
    ground.spark.sql(fault.by_spark.format(t=played.name))
    assert fault.concerns(ground.lake.table(played.name).context.iceberg)
    assert said().startswith(fault.says), f"{fault.witness} now says {said()!r}: is the fault gone?"
    tally.told[SHOWN] += 1


@pytest.mark.parametrize("scenario", chosen(), ids=str)
def test_two_engines_agree_on_a_table_they_both_wrote(ground: Ground, tally: Tally, scenario: Scenario):
    played = ground.table(tally)
    played.play(scenario.past(played.name))
    played.check_all()
    if scenario.fault is not None:
        played.refuse(next(scenario.present(played.name))[1], scenario.fault)
        return
    played.play(scenario.present(played.name), watched=True)
    played.check_all()


@pytest.mark.parametrize("scenario", chosen_exports(), ids=str)
def test_exports_of_version_4_are_read_by_all(ground: Ground, tally: Tally, scenario: Scenario):
    played = ground.table(tally)
    played.play(scenario.past(played.name))
    played.exported("halfway").check_all()
    played.play(scenario.present(played.name))
    played.check(played.rows_by("neve"), played.audit())
    played.exported("finally").check_all()


@pytest.mark.parametrize("version", spread([3, 4, 1, 2], every=4))
def test_random_lives_with_two_writers_are_read_the_same_by_all(ground: Ground, tally: Tally, version: int):
    @settings(max_examples=LIVES, phases=set(Phase) - {Phase.explain})
    @given(life=lives(version, STEPS), turns=st.integers(0, 10_000))
    def live(life: Life, turns: int) -> None:
        model = Model(life.start.columns)
        Shared(ground.table(tally, model.arrow), model, random.Random(turns)).live(life)

    (live if IS_SEARCH else seed(version)(live))()
    steps = {engine: tally.told[f"steps by {engine}"] for engine in NAMES.values()}
    enough = sum(steps.values()) / 3 if IS_LONG else 1  # one life does not say much about chances
    assert version == 4 or steps[SPARK] >= enough, f"Spark has to take its turns: {steps}"


def test_only_comparisons_that_another_engine_made_of_something_count(ground: Ground):
    played = ground.table(Tally())
    played.play(
        [("neve", f"CREATE TABLE {played.name} (id bigint) USING iceberg TBLPROPERTIES ('format-version' = '1')")]
    )
    played.check_all()
    assert not played.tally.agreed, "there was nothing to look at"
    played.play([("neve", f"INSERT INTO {played.name} VALUES (1)")])
    played.check_all()
    assert played.tally.agreed == dict.fromkeys((SPARK, *(f"{SPARK}, {part}" for part in PARTS), *READERS), 1)
    assert played.tally.told[f"claims on what {SPARK} shows"] == 3, "version 1 has no numbers, no row ids, no deletes"
    ground.plain.run(f"INSERT INTO {played.name} VALUES (2)")
    assert len([*played.rows_by("neve", "spark"), *played.rows_by_readers()]) == 5
    assert played.tally.wrong == dict.fromkeys((SPARK, *READERS), 1)
