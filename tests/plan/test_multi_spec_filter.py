"""One filter over files of many specs: its key, its evaluators, its counts, and the plans made with it."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan, Not, NotEqualTo

import neve
from neve.errors import TableError, UnknownName, UserError
from neve.model.partition import PartitionKey, Specs
from neve.plan import partition_filter as diagnostics
from neve.plan import ranges
from neve.plan.partition_filter import (
    Diagnostics,
    FilterStats,
    MultiSpecPartitionFilter,
    PartitionFilter,
    PartitionFilterEvaluator,
    UndecidedPartition,
)
from neve.plan.rewrite_plan import (
    RewriteDataFilesPlan,
    RewriteDataFilesPlanningResult,
    RewritePlan,
    RewritePlanningResult,
)
from neve.predicate.normalize import normalize_and_bind
from neve.tree.entries import EntryTable
from tests.support.entry_tables import entries, spec
from tests.support.rewrite_plans import (
    BY_MYSTERY,
    BY_REGION,
    BY_REGION_AND_DAY,
    EVERYTHING,
    SCHEMA,
    chosen,
    described,
    metadata_of,
    result,
)

VOID = spec(4, (1000, 3, "void", "region"))
TABLE = metadata_of(EVERYTHING, VOID, BY_REGION, BY_REGION_AND_DAY, BY_MYSTERY)
SPECS = Specs.of(TABLE)
DAY = date(2024, 1, 1)
FILES: list[dict[str, Any]] = [
    {"spec_id": 0, "file_path": "whole"},
    {"spec_id": 1, "partition": ("eu",), "file_path": "eu"},
    {"spec_id": 1, "partition": ("us",), "file_path": "us"},
    {"spec_id": 2, "partition": ("eu", DAY), "file_path": "eu-day"},
    {"spec_id": 2, "partition": ("us", DAY), "file_path": "us-day"},
    {"spec_id": 3, "partition": ("x",), "file_path": "mystery-x"},
    {"spec_id": 3, "partition": ("y",), "file_path": "mystery-y"},
]


def kept(files: EntryTable, filter_: PartitionFilter) -> list[str]:
    return files.filter(pa.array(filter_.judge(files).keep))["file_path"].to_pylist()


def of_specs(*spec_ids: int) -> EntryTable:
    return entries(SPECS, [f for f in FILES if f["spec_id"] in spec_ids])


def filter_of(expression: Any, specs: Specs = SPECS) -> PartitionFilter:
    return PartitionFilter.of(expression, specs, SCHEMA)


def damaged(*values: str) -> tuple[EntryTable, Specs]:
    """Files partitioned by a number, whose manifests hold texts."""
    specs = Specs.of(metadata_of(spec(1, (1000, 1, "identity", "id"))))
    good = entries(specs, [{"spec_id": 1, "partition": (n,)} for n in range(len(values))]).columns
    return EntryTable(good.set_column(good.schema.get_field_index("p1000"), "p1000", pa.array(values)), specs), specs


# the key -----------------------------------------------------------------------------------------------------------


def test_partition_key_from_partitioned_spec() -> None:
    files = entries(SPECS, FILES)
    assert files.partition_key(1) == PartitionKey(1, ("eu",))
    assert files.partition_key(3) == PartitionKey(2, ("eu", DAY))
    nowhere = entries(SPECS, [{"spec_id": 2, "partition": (None, None)}])
    assert nowhere.partition_key(0) == PartitionKey(2, (None, None)), "null values are values"


def test_partition_key_from_unpartitioned_spec() -> None:
    assert TABLE.default_spec_id == 3, "what the table partitions by now says nothing about older files"
    assert entries(SPECS, FILES).partition_key(0) == PartitionKey(0, None)
    assert entries(SPECS, [{"spec_id": 4, "partition": (None,)}]).partition_key(0) == PartitionKey(4, None)
    with pytest.raises(ValueError, match="use None"):
        PartitionKey(0, ())


def test_partition_key_hash_equality() -> None:
    one, other = PartitionKey(1, ("eu", DAY)), PartitionKey(1, ("eu", date(2024, 1, 1)))
    assert one == other and hash(one) == hash(other) and len({one, other}) == 1
    assert len({PartitionKey(s, v) for s in (0, 1) for v in (None, ("eu",), (None,))}) == 6
    assert pickle.loads(pickle.dumps(one)) == one


def test_partition_key_sort_key_stable() -> None:
    keys = [
        PartitionKey(0, None),
        PartitionKey(1, (None,)),
        PartitionKey(1, (2,)),
        PartitionKey(1, (9,)),
        PartitionKey(1, (10,)),
        PartitionKey(2, (None, DAY)),
        PartitionKey(2, ("eu", None)),
        PartitionKey(2, ("eu", DAY)),
        PartitionKey(3, (0.5,)),
        PartitionKey(3, (float("nan"),)),
    ]
    for shift in range(len(keys)):
        assert sorted(keys[shift:] + keys[:shift], key=PartitionKey.sort_key) == keys
    assert keys[4].sort_key() == PartitionKey(1, (10,)).sort_key()


# the filter --------------------------------------------------------------------------------------------------------


def test_multi_spec_single_spec_table() -> None:
    only = Specs.of(metadata_of(BY_REGION))
    files = entries(only, [f for f in FILES if f["spec_id"] == 1])
    made = filter_of(EqualTo("region", "eu"), only)
    assert kept(files, made) == ["eu"] and made.judge(files).stats == FilterStats()
    assert kept(files, filter_of(None, only)) == ["eu", "us"]


def test_multi_spec_evolved_table() -> None:
    files = of_specs(0, 1, 2)
    assert kept(files, filter_of(EqualTo("region", "eu"))) == ["whole", "eu", "eu-day"]
    late = And(EqualTo("region", "us"), GreaterThanOrEqual("ts", datetime(2024, 1, 2)))
    assert kept(files, filter_of(late)) == ["whole", "us"], "only the spec that knows days can leave a day out"
    assert kept(files, filter_of(LessThan("ts", datetime(2023, 1, 1)))) == ["whole", "eu", "us"]


def test_multi_spec_unevaluable_spec_fail_open() -> None:
    made, files = filter_of(EqualTo("region", "eu")), of_specs(1, 3)
    assert kept(files, made) == ["eu", "mystery-x", "mystery-y"]
    assert made.judge(files).fail_open.tolist() == [False, False, True, True]
    assert made.unevaluable_specs == (3,)
    assert made.evaluators[3].predicate is None and "mystery" in made.evaluators[3].reason_unevaluable
    assert filter_of(EqualTo("id", 1)).unevaluable_specs == (), "a column it is not made from is no obstacle"


def test_multi_spec_eval_error_fail_open() -> None:
    files, specs = damaged("1", "broken", "2")
    verdict = filter_of(EqualTo("id", 1), specs).judge(files)
    assert verdict.keep.tolist() == [True, True, False]
    assert verdict.fail_open.tolist() == [False, True, False]
    assert verdict.stats == FilterStats(eval_errors=1, fail_open_partitions=1, fail_open_files=1)


def test_multi_spec_memoization(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    real = ranges.may_match
    monkeypatch.setattr(ranges, "may_match", lambda r, e: (judged.append(len(r)), real(r, e))[1])
    files = of_specs(0, 1, 2)
    many = files.take([n % len(files) for n in range(500)])
    assert int(filter_of(EqualTo("region", "eu")).judge(many).keep.sum()) == 300
    assert sum(judged) == len(files)


def test_multi_spec_stats_counting() -> None:
    files = of_specs(1, 3)
    twice = files.take([0, 1, 2, 2, 2, 3])
    verdict = filter_of(EqualTo("region", "eu")).judge(twice)
    assert verdict.stats == FilterStats(unevaluable_specs=1, fail_open_partitions=2, fail_open_files=4)
    candidates = np.array([True, True, True, False, True, False])
    assert verdict.stats_for(candidates) == replace(verdict.stats, fail_open_files=2)
    broken, specs = damaged("a", "b", "b", "3")
    assert filter_of(EqualTo("id", 1), specs).judge(broken).stats == FilterStats(0, 2, 2, 3)
    assert filter_of(EqualTo("region", "eu")).judge(of_specs(1)).stats == FilterStats(unevaluable_specs=1)


def test_multi_spec_unknown_spec_hard_error() -> None:
    files = of_specs(1).with_columns(spec_id=pa.array([1, 77], pa.int32()))
    for expression in (None, EqualTo("region", "eu")):
        with pytest.raises(TableError, match=r"spec 77 in file us: the table has \[0, 1, 2, 3, 4\]"):
            filter_of(expression).judge(files)


# what the tasks ask for ------------------------------------------------------------------------------------------


def test_filter_stats_are_a_public_value_of_four_counts() -> None:
    assert neve.FilterStats is FilterStats
    assert [f.name for f in fields(FilterStats)] == [
        "unevaluable_specs",
        "eval_errors",
        "fail_open_partitions",
        "fail_open_files",
    ]
    assert FilterStats() == FilterStats(0, 0, 0, 0) and "fail_open_files=0" in repr(FilterStats())
    assert replace(FilterStats(), eval_errors=2).eval_errors == 2


def test_an_evaluator_takes_a_predicate_that_is_bound_already() -> None:
    """`NOT` is rewritten before it is bound, so the evaluator of a spec never meets one."""
    ready = normalize_and_bind(Not(NotEqualTo("region", "eu")), SCHEMA)
    for spec_id, expected in ((1, [True, False]), (2, [True, False])):
        made = PartitionFilterEvaluator.from_bound(ready, SPECS, spec_id)
        judged, failures = made.judge(of_specs(spec_id))
        assert (made.spec_id, judged.tolist(), failures) == (spec_id, expected, {})


def test_the_filter_binds_once_and_makes_an_evaluator_of_every_spec() -> None:
    assert MultiSpecPartitionFilter is PartitionFilter
    made = filter_of(EqualTo("region", "eu"))
    assert set(made.evaluators) == set(SPECS.by_id)
    for spec_id, evaluator in made.evaluators.items():
        assert evaluator == PartitionFilterEvaluator.from_bound(made.predicate, SPECS, spec_id)
    with pytest.raises(UnknownName, match="'regoin'"):
        filter_of(EqualTo("regoin", "eu"))
    with pytest.raises(UserError, match="does not fit"):
        filter_of(EqualTo("id", "seven"))


def test_plans_go_by_both_names() -> None:
    assert RewriteDataFilesPlan is RewritePlan and RewriteDataFilesPlanningResult is RewritePlanningResult
    made = result(FILES, table=TABLE)
    assert isinstance(made, RewriteDataFilesPlanningResult) and isinstance(made.plan, RewriteDataFilesPlan)


# plans of evolved tables -------------------------------------------------------------------------------------------


@pytest.fixture
def evolved(tmp_path: Path) -> neve.Table:
    """A real table of three specs, whose first partition column was dropped from the schema since."""
    table = neve.connect(tmp_path).create_table("db.t", "id bigint, region string, old string", partition_by=["old"])
    table.append([{"id": n, "region": "eu", "old": "a"} for n in (1, 2)])
    table.evolve_partitions(add=["region"], drop=["old"])
    with table.evolve_schema() as change:
        change.delete_column("old")
    for n in range(3):
        table.append([{"id": 10 * n + k, "region": region} for k, region in enumerate(("eu", "us"))])
    table.evolve_partitions(add=["bucket(4, id)"])
    for n in range(2):
        table.append([{"id": n, "region": "us"}])
    return table


def test_plan_evolved_table_no_filter(evolved: neve.Table) -> None:
    made = evolved.rewrite_data_files().option("rewrite-all", True).plan_with_stats()
    assert made.filter_stats == FilterStats() and not made.plan.diagnostics
    assert made.plan.files == evolved.inspect.files().num_rows
    keys = [group.partition for group in made.plan.groups]
    assert keys == sorted(keys, key=PartitionKey.sort_key) and len(set(keys)) == len(keys)
    assert keys[:3] == [PartitionKey(0, ("a",)), PartitionKey(1, ("eu",)), PartitionKey(1, ("us",))]
    assert evolved.rewrite_data_files().option("rewrite-all", True).plan() == made.plan


def test_plan_evolved_table_with_filter(evolved: neve.Table) -> None:
    made = evolved.rewrite_data_files().where("region = 'eu'").option("rewrite-all", True).plan_with_stats()
    assert made.filter_stats == FilterStats()
    by_spec = {g.partition.spec_id: len(g.files) for g in made.plan.groups}
    assert by_spec == {0: 1, 1: 3}, "no file of the newest spec, and of the oldest what may match"
    by_id = evolved.rewrite_data_files().where("id = 1 AND region = 'us'").option("rewrite-all", True).plan()
    assert [(g.partition.spec_id, len(g.files)) for g in by_id.groups] == [(1, 1), (2, 1)]
    with pytest.raises(UnknownName, match="'old'"):
        evolved.rewrite_data_files().where("old = 'a'").plan()


def test_plan_evolved_table_fail_open_stats() -> None:
    sizes = [f | {"file_size_in_bytes": 1000 if f["file_path"].endswith("-y") else 10} for f in FILES]
    made = result(sizes, where="region = 'eu'", table=TABLE, min_input_files=1)
    assert made.filter_stats == FilterStats(unevaluable_specs=1, fail_open_partitions=2, fail_open_files=1)
    (undecided,) = made.plan.diagnostics.undecided
    assert (undecided.spec_id, undecided.partition, undecided.partitions, undecided.files) == (3, None, 2, 1)
    assert "unclear  spec 3: unknown transform" in made.plan.explain()
    every = result(sizes, where="region = 'eu'", table=TABLE, rewrite_all=True)
    assert chosen(every.plan) == {"whole", "eu", "eu-day", "mystery-x", "mystery-y"}
    assert every.filter_stats.fail_open_files == 2


def test_plan_deterministic_group_ids() -> None:
    some = [f | {"file_path": f"{f['file_path']}-{n}"} for n in range(9) for f in FILES]
    many = [f | {"file_size_in_bytes": 1 + n % 3} for n, f in enumerate(some)]
    once = result(many, table=TABLE, max_file_group_input_files=4).plan
    assert [g.group_id for g in once.groups] == list(range(len(once.groups)))
    for shift in (1, 20, 40):
        again = result(many[shift:][::-1] + many[:shift], table=TABLE, max_file_group_input_files=4).plan
        assert described(again) == described(once)


# why it could not be judged ----------------------------------------------------------------------------------------


def test_diagnostics_name_each_partition_once_and_why() -> None:
    files, specs = damaged("torn", "broken", "broken", "3")
    verdict = filter_of(EqualTo("id", 1), specs).judge(files)
    told = verdict.diagnostics(np.array([True, True, True, True]))
    assert [(u.partition, u.partitions, u.files) for u in told.undecided] == [
        (PartitionKey(1, ("broken",)), 1, 2),
        (PartitionKey(1, ("torn",)), 1, 1),
    ]
    assert all("broken" in u.why or "torn" in u.why for u in told.undecided)
    assert told.left_out == 0 and bool(told)
    assert "spec 1, partition ('broken',): " in str(told) and "2 files of 1 partition taken" in str(told)


def test_diagnostics_are_bounded_and_do_not_depend_on_the_order_of_files() -> None:
    texts = [f"broken{n:03}" for n in range(diagnostics.MAX_LISTED + 8)]
    files, specs = damaged(*texts, *texts)
    made = filter_of(EqualTo("id", 1), specs)
    told = made.judge(files).diagnostics(np.ones(len(files), bool))
    assert [u.partition for u in told.undecided] == [PartitionKey(1, (t,)) for t in texts[: diagnostics.MAX_LISTED]]
    assert told.left_out == 8 and str(told).endswith("\nand 8 more")
    assert made.judge(files.take(range(len(files) - 1, -1, -1))).diagnostics(np.ones(len(files), bool)) == told


def test_diagnostics_cut_long_reasons() -> None:
    files, specs = damaged("x" * 10_000)
    (undecided,) = filter_of(EqualTo("id", 1), specs).judge(files).diagnostics(np.ones(1, bool)).undecided
    assert len(undecided.why) == 200 and undecided.why.endswith("…")


def test_diagnostics_of_a_filter_that_was_judged_are_empty() -> None:
    made = result(FILES[:5], where="region = 'eu'", table=metadata_of(EVERYTHING, BY_REGION, BY_REGION_AND_DAY))
    assert made.plan.diagnostics == Diagnostics() and not made.plan.diagnostics
    assert "unclear" not in made.plan.explain()


def test_diagnostics_say_when_a_condition_chooses_files_only_in_part(tmp_path: Path) -> None:
    table = neve.connect(tmp_path).create_table("db.t", "id bigint, region string", partition_by=["region"])
    table.append([{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}])
    rewrite = table.rewrite_data_files().option("rewrite-all", True)
    made = rewrite.where("region = 'eu' AND bucket(4, id) = 1").plan_with_stats()
    assert made.plan.files == 1 and made.filter_stats == FilterStats()
    assert made.plan.diagnostics.judged_in_part == "region = 'eu' AND bucket(4, id) = 1"
    assert "unclear  only comparisons of columns with constants choose files" in made.plan.explain()
    assert not rewrite.where("region = 'eu' AND id > 0").plan().diagnostics


def test_a_spec_without_files_is_counted_and_named() -> None:
    made = result(FILES[:3], where="region = 'eu'", table=TABLE)
    assert made.filter_stats == FilterStats(unevaluable_specs=1)
    assert made.plan.diagnostics.undecided == (
        UndecidedPartition(3, None, made.plan.diagnostics.undecided[0].why, partitions=0, files=0),
    )
