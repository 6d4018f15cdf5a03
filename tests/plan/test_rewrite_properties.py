"""Plans of compactions against brute force: over rows, over the order of manifests, and over many files."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neve
from neve.commit.actions import Append, RowDelta
from neve.model.partition import Specs
from neve.plan.metrics_filter import STATISTICS
from neve.plan.partition_filter import FilterStats, PartitionFilter
from neve.plan.rewrite import Reason, plan_rewrite
from neve.plan.rewrite_plan import RewritePlan
from neve.predicate import parse
from neve.tree.entries import DETAIL, Content, EntryTable, Manifest, Status
from neve.tree.read import manifests_of, read_entries
from tests.support.metadata_tables import Kit, plus
from tests.support.rewrite_plans import (
    BY_MYSTERY,
    BY_REGION,
    BY_REGION_AND_DAY,
    EVERYTHING,
    applied,
    chosen,
    described,
    metadata_of,
    options_of,
    result,
)
from tests.support.tables import local

# rows --------------------------------------------------------------------------------------------------------------

REGIONS = ["eu-north", "eu-south", "us", "", None]
FIRST = datetime(2024, 1, 1)


@dataclass(frozen=True)
class Lived:
    """A table of four specs, and the rows of each of its files under the names of today."""

    table: neve.Table
    rows: dict[str, list[dict[str, Any]]]
    manifests: tuple[Manifest, ...]
    entries: EntryTable

    def chosen(self, where: str) -> set[str]:
        """The files a compaction takes, of manifests that are opened; read once for all conditions."""
        metadata = self.table.context.metadata
        filter_ = PartitionFilter.of(parse(where, metadata.schema()).expression, self.entries.specs, metadata.schema())
        opened = filter_.may_match_each(self.manifests)[self.entries.numpy("manifest")]
        files, none = self.entries.filter(pa.array(opened)), EntryTable.empty(self.entries.specs)
        made = plan_rewrite(files, none, metadata, options_of({"rewrite_all": True}), partitions=filter_)
        assert made.filter_stats == FilterStats() and not made.plan.diagnostics
        return chosen(made.plan)


def row(n: int) -> dict[str, Any]:
    ts = None if n % 11 == 5 else FIRST + timedelta(hours=7 * n)
    return {"id": None if n % 13 == 3 else 5 * n - 40, "ts": ts, "region": REGIONS[n % len(REGIONS)]}


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """Partitioned by a column that is gone, by day and region, by bucket and truncated text, and not at all."""
    folder = tmp_path_factory.mktemp("lived")
    ddl = "id bigint, ts timestamp_ntz, region string, old string"
    table = neve.connect(folder).create_table("db.t", ddl, partition_by=["old", "months(ts)"])
    table.append([row(n) | {"old": "ab"[n % 2]} for n in range(10)])
    table.evolve_partitions(add=["days(ts)", "region"], drop=["old", "months(ts)"])
    with table.evolve_schema() as change:
        change.delete_column("old")
    table.append([row(n) for n in range(10, 20)])
    with table.evolve_schema() as change:
        change.rename_column("region", "area")
    table.evolve_partitions(add=["bucket(3, id)", "truncate(2, area)"], drop=["days(ts)", "region"])
    renamed = [{"area" if key == "region" else key: v for key, v in row(n).items()} for n in range(20, 60)]
    table.append(renamed[:10])
    table.evolve_partitions(drop=["bucket(3, id)", "truncate(2, area)"])
    for at in range(10, 40, 6):
        table.append(renamed[at : at + 6])
    context = table.refresh().context
    manifests = manifests_of(context.io, context.metadata, context.head())
    entries = read_entries(context.io, manifests, context.specs, detail=STATISTICS)
    return Lived(table, {path: _rows(path) for path in entries["file_path"].to_pylist()}, manifests, entries)


def _rows(path: str) -> list[dict[str, Any]]:
    found = pq.read_table(local(path)).to_pylist()
    return [{"id": r["id"], "ts": r["ts"], "area": r.get("area", r.get("region"))} for r in found]


Truth = bool | None
Test = Callable[[dict[str, Any]], Truth]
Condition = tuple[str, Test]  # in SQL, and in plain Python with three truth values
COMPARE = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def quoted(value: Any) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


def compared(column: str, sign: str, value: Any) -> Condition:
    def test(of: dict[str, Any]) -> Truth:
        return None if of[column] is None else COMPARE[sign](of[column], value)

    return f"{column} {sign} {quoted(value)}", test


def among(column: str, values: list[Any], with_null: bool) -> Condition:
    def test(of: dict[str, Any]) -> Truth:
        if of[column] is None:
            return None
        return True if of[column] in values else None if with_null else False

    shown = [*map(quoted, values), *(["NULL"] if with_null else [])]
    return f"{column} IN ({', '.join(shown)})", test


def is_null(column: str) -> Condition:
    return f"{column} IS NULL", lambda of: of[column] is None


def starts_with(prefix: str) -> Condition:
    return f"area LIKE '{prefix}%'", lambda of: None if of["area"] is None else of["area"].startswith(prefix)


def negated(one: Condition) -> Condition:
    def test(of: dict[str, Any]) -> Truth:
        found = one[1](of)
        return None if found is None else not found

    return f"NOT ({one[0]})", test


def joined(word: str, one: Condition, other: Condition) -> Condition:
    decides = word == "OR"

    def test(of: dict[str, Any]) -> Truth:
        found = (one[1](of), other[1](of))
        return decides if decides in found else None if None in found else not decides

    return f"({one[0]}) {word} ({other[0]})", test


VALUES = {
    "id": st.integers(-60, 280),
    "ts": st.integers(-30, 450).map(lambda hours: FIRST + timedelta(hours=hours)),
    "area": st.sampled_from(["eu", "eu-north", "eu-south", "us", "", "zz"]),
}
OF_COLUMN = [
    leaf
    for column, values in VALUES.items()
    for leaf in (
        st.builds(compared, st.just(column), st.sampled_from(list(COMPARE)), values),
        st.builds(among, st.just(column), st.lists(values, min_size=1, max_size=3), st.booleans()),
        st.just(is_null(column)),
    )
]
LEAVES = st.one_of(*OF_COLUMN, st.sampled_from(["eu", "u", ""]).map(starts_with))
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.builds(negated, inner) | st.builds(joined, st.sampled_from(["AND", "OR"]), inner, inner),
    max_leaves=4,
)


@given(CONDITIONS)
@settings(max_examples=80)
def test_no_file_with_a_matching_row_is_left_out(lived: Lived, condition: Condition) -> None:
    text, test = condition
    needed = {path for path, rows in lived.rows.items() if any(test(r) for r in rows)}
    assert lived.chosen(text) >= needed, text


@pytest.mark.parametrize(
    ("where", "specs"),
    [
        ("id = 60 AND area = 'eu-north'", {0: 0, 1: 0, 2: 1, 3: 0}),
        ("ts < TIMESTAMP '2024-01-01 12:00:00'", {0: 2, 1: 0, 2: 0, 3: 0}),
        ("area IS NULL", {0: 2, 1: 2, 2: 2, 3: 5}),
    ],
)
def test_a_filter_leaves_out_most_files_that_hold_no_matching_row(lived: Lived, where: str, specs: Any) -> None:
    made = lived.table.rewrite_data_files().where(where).option("rewrite-all", True).plan()
    found = Counter(g.partition.spec_id for g in made.groups for _ in range(len(g.files)))
    assert {spec_id: found[spec_id] for spec_id in specs} == specs
    assert chosen(made) == lived.chosen(where)


# the order of manifests --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_manifest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Specs, list[EntryTable], list[EntryTable]]:
    """Files of three specs with deletes of all three kinds, in a manifest for nearly each; what each manifest lists."""
    t = Kit.create(tmp_path_factory.mktemp("kit"), commit__manifest_merge__enabled="false")
    eu = [t.data(f"eu{n}", region="eu") for n in range(4)]
    for files in (*eu, t.data("us0", "us1", region="us"), t.data("w0", "w1", spec=2), t.data("b0", "b1", spec=1)):
        t.ok(Append(files, fast=True))
    t.ok(RowDelta(added_deletes=plus(t.positions("p0", of=eu[0]), t.equality("e0", spec=2))))
    t.ok(RowDelta(added_deletes=plus(t.positions("p1"), t.equality("e1", region="us"))))
    t.upgrade(3)
    t.ok(RowDelta(added_deletes=plus(t.vector("v1", eu[1]), t.vector("v2", eu[2]))))
    lists = {m: read_entries(t.io, [m], t.specs, detail=DETAIL.names) for m in t.manifests()}
    data, deletes = ([listed for m, listed in lists.items() if m.is_deletes == kind] for kind in (False, True))
    return t.metadata, t.specs, data, deletes


@given(st.data())
@settings(max_examples=20)
def test_the_order_manifests_are_read_in_does_not_matter(by_manifest: Any, data: st.DataObject) -> None:
    metadata, specs, files, deletes = by_manifest
    everything = PartitionFilter.of(None, specs, metadata.schema())
    options = options_of({"target_file_size_bytes": 100_000, "min_input_files": 2, "max_file_group_input_files": 2})

    def planned(some: list[EntryTable], others: list[EntryTable]) -> RewritePlan:
        data, deletes = EntryTable.concat(some, specs), EntryTable.concat(others, specs)
        return plan_rewrite(data, deletes, metadata, options, partitions=everything).plan

    once = planned(files, deletes)
    assert once.files == 10 and sum(len(g.scan.deletes) for g in once.groups) >= 8
    assert described(planned(data.draw(st.permutations(files)), data.draw(st.permutations(deletes)))) == described(once)
    assert planned(files, deletes) == once


# many files --------------------------------------------------------------------------------------------------------

MANY = metadata_of(EVERYTHING, BY_REGION, BY_REGION_AND_DAY, BY_MYSTERY)
SPECS = Specs.of(MANY)
COUNT = 40_000


def many_files() -> EntryTable:
    """Ten thousand files of each spec, a tenth of each region; every other ten are small; the others of a good size."""
    number = np.arange(COUNT) // 4
    spec_id = np.arange(COUNT) % 4
    day = pa.array((19_723 + number // 20 % 4).astype(np.int32)).cast(pa.date32())
    columns = {
        "manifest": 0,
        "row": np.arange(COUNT, dtype=np.int32),
        "status": int(Status.EXISTING),
        "snapshot_id": 1,
        "sequence_number": 1,
        "file_sequence_number": 1,
        "content": int(Content.DATA),
        "file_path": [f"f{n:05}" for n in range(COUNT)],
        "file_format": ["PARQUET"] * COUNT,
        "spec_id": spec_id.astype(np.int32),
        "record_count": 10,
        "file_size_in_bytes": np.where(number // 10 % 2 == 0, 100, 1000),
        "p1000": _where(np.isin(spec_id, [1, 2]), pa.array([f"r{n}" for n in number % 10])),
        "p1001": _where(spec_id == 2, day),
        "p1002": _where(spec_id == 3, pa.array([f"m{n}" for n in number % 7])),
    }
    return EntryTable.from_columns(columns, SPECS, COUNT)


def _where(mask: np.ndarray, values: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(mask), values, pa.scalar(None, values.type))


def many_deletes() -> EntryTable:
    """A vector for a hundred files of spec 1, two position delete files for each partition of spec 2, one that is
    global, and for every other region some that apply to no file the filter selects."""
    vectors = [4 * (10 * n + 3) + 1 for n in range(1, 1000, 10)]
    rows = [
        {"spec_id": 1, "p1000": "r3", "file_path": "vectors", "file_format": "PUFFIN", "content_offset": 4 + n,
         "referenced_data_file": f"f{file:05}", "record_count": 4}
        for n, file in enumerate(vectors)
    ]  # fmt: skip
    rows += [
        {"spec_id": 2, "p1000": f"r{r}", "p1001": date(2024, 1, 1 + day), "file_path": f"p{r}{day}{n}"}
        for r in range(10) for day in range(4) for n in range(2)
    ]  # fmt: skip
    equality = {"content": int(Content.EQUALITY_DELETES), "equality_ids": [1]}
    rows += [{"spec_id": 1, "p1000": f"r{r}", "file_path": f"e{r}"} | equality for r in range(10) if r != 3]
    rows += [{"spec_id": 0, "file_path": "everywhere"} | equality]
    defaults = {"content": int(Content.POSITION_DELETES), "file_format": "PARQUET", "record_count": 1}
    full = [defaults | delete for delete in rows]
    names = {name for delete in full for name in delete}
    columns: dict[str, Any] = {name: [delete.get(name) for delete in full] for name in names}
    return EntryTable.from_columns(
        columns | {"status": int(Status.EXISTING), "sequence_number": 5, "snapshot_id": 1, "file_size_in_bytes": 9},
        SPECS,
        len(full),
        DETAIL.names,
    )


def test_many_files_of_four_specs_with_deletes_of_three_kinds() -> None:
    files, deletes = many_files(), many_deletes()
    options: dict[str, Any] = {"delete_file_threshold": 3, "max_file_group_input_files": 1000}
    made = result(files, deletes, where="region = 'r3'", table=MANY, **options)
    assert made.filter_stats == FilterStats(unevaluable_specs=1, fail_open_partitions=7, fail_open_files=5000)
    assert Counter(made.plan.reason_codes.tolist()) == {
        Reason.NOT_MATCHING_PARTITION: 2 * 9000,  # nine of ten regions under specs 1 and 2
        Reason.WELL_SIZED: 5000 + 400 + 5000,  # of specs 0, 1 and 3
        Reason.TOO_SMALL: 5000 + 500 + 500 + 5000,  # of every spec
        Reason.DELETE_FILES: 500,  # of spec 2: two of positions and the global one
        Reason.DELETED_ROWS: 100,  # of spec 1: a vector of four rows of ten
    }
    assert made.plan.files == 11_600
    assert made.plan.bytes == 11_000 * 100 + 600 * 1000
    sizes = [(g.partition.spec_id, len(g.files)) for g in made.plan.groups]
    assert sizes[:10] == [(0, 1000)] * 5 + [(1, 600)] + [(2, 250)] * 4
    assert [spec_id for spec_id, _ in sizes[10:]] == [3] * 7 and sum(n for _, n in sizes[10:]) == 5000
    attached = [g.scan.attached.num_rows for g in made.plan.groups]
    assert attached == [1000] * 5 + [600 + 100] + [3 * 250] * 4 + [n for _, n in sizes[10:]]
    assert [len(g.scan.deletes) for g in made.plan.groups] == [1] * 5 + [101] + [3] * 4 + [1] * 7
    assert {d for _, d in applied(made.plan.groups[6])} == {"everywhere", "p300", "p301"}
    assert len(applied(made.plan.groups[9])) == 750, "three for each file"
    (undecided,) = made.plan.diagnostics.undecided
    assert (undecided.spec_id, undecided.partitions, undecided.files) == (3, 7, 5000)

    shuffled = np.random.default_rng(5).permutation(COUNT), np.random.default_rng(6).permutation(len(deletes))
    again = result(files.take(shuffled[0]), deletes.take(shuffled[1]), where="region = 'r3'", table=MANY, **options)
    assert described(again.plan) == described(made.plan) and again.filter_stats == made.filter_stats
    assert result(files, deletes, where="region = 'r3'", table=MANY, **options) == made
