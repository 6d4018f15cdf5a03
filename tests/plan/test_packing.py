"""Files packed into groups: as a plain packer does it that looks back at one open group."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from neve.plan.packing import GroupSlices, pack_files, sort_by_partition_and_size
from tests.support.entry_tables import entries, specs_of
from tests.support.rewrite_plans import BY_REGION, BY_REGION_AND_DAY, EVERYTHING, SCHEMA

SPECS = specs_of(SCHEMA, EVERYTHING, BY_REGION, BY_REGION_AND_DAY)


def plain(sizes: list[int], partitions: list[int], most_bytes: int, most_files: int | None) -> list[list[int]]:
    """Groups of row numbers: a group is closed when the next file is of another partition or would exceed a limit."""
    groups: list[list[int]] = []
    for row, size in enumerate(sizes):
        last = groups[-1] if groups else []
        same = bool(last) and partitions[last[-1]] == partitions[row]
        fits = sum(sizes[r] for r in last) + size <= most_bytes and (most_files is None or len(last) < most_files)
        if same and fits:
            last.append(row)
        else:
            groups.append([row])
    return groups


FILES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30) | st.just(0)), max_size=40).map(sorted)
LIMIT = st.integers(1, 60) | st.sampled_from([2**53 + 1, 2**63 - 1])


@given(FILES, LIMIT, st.none() | st.integers(1, 5))
def test_packing_equals_a_plain_packer(files: list[tuple[int, int]], limit: int, most: int | None) -> None:
    partitions, sizes = [f[0] for f in files], [f[1] for f in files]
    made = pack_files(np.array(sizes, np.int64), np.array(partitions, np.int64), limit, most)
    expected = plain(sizes, partitions, limit, most)
    assert [list(range(s, e)) for s, e in zip(made.starts, made.ends, strict=True)] == expected
    assert made.rows().tolist() == list(range(len(files)))
    assert made.partition.tolist() == [partitions[group[0]] for group in expected]
    assert made.sums(np.array(sizes, np.int64)).tolist() == [sum(sizes[r] for r in group) for group in expected]
    firsts = made.partition.tolist()
    assert made.index_in_partition.tolist() == [firsts[:n].count(partition) for n, partition in enumerate(firsts)]


@given(FILES, st.integers(1, 5), st.integers(1, 50) | st.just(2**63 - 1))
def test_the_first_files_are_whole_groups_and_one_that_is_cut(files: Any, most: int, cap: int) -> None:
    sizes, partitions = np.array([f[1] for f in files], np.int64), np.array([f[0] for f in files], np.int64)
    made = pack_files(sizes, partitions, 40, most)
    cut = made.limit_files(cap)
    assert cut.rows().tolist() == made.rows().tolist()[:cap]
    assert cut.starts.tolist() == made.starts.tolist()[: len(cut)]
    assert cut.ends.tolist()[:-1] == made.ends.tolist()[: max(len(cut) - 1, 0)]
    assert (cut.file_counts > 0).all()


def test_no_files_make_no_groups() -> None:
    nothing = np.zeros(0, np.int64)
    made = pack_files(nothing, nothing, 10, None)
    assert len(made) == 0 and made.index_in_partition.tolist() == [] and made.rows().tolist() == []
    assert isinstance(made.limit_files(3), GroupSlices)


REGIONS = st.none() | st.sampled_from(["eu", "us", "", "é"])
DAYS = st.none() | st.integers(-3, 3)
PLACES = st.one_of(
    st.just((0, None)),
    st.tuples(st.just(1), st.tuples(REGIONS)),
    st.tuples(st.just(2), st.tuples(REGIONS, DAYS)),
)


@given(st.lists(st.tuples(PLACES, st.integers(0, 3)), max_size=12), st.randoms())
def test_the_order_is_that_of_keys_sizes_and_paths_whatever_order_files_come_in(files: Any, random: Any) -> None:
    made = [
        {"spec_id": spec_id, "partition": values, "file_size_in_bytes": size, "file_path": f"p{n % 7}-{n}"}
        for n, ((spec_id, values), size) in enumerate(files)
    ]
    shuffled = random.sample(made, len(made))
    table = entries(SPECS, shuffled)
    rows, partitions = sort_by_partition_and_size(table, np.arange(len(table)))
    keys = [table.partition_key(int(row)).sort_key() for row in rows]
    facts = [(-shuffled[row]["file_size_in_bytes"], shuffled[row]["file_path"]) for row in rows]
    ordered = list(zip(keys, facts, strict=True))
    assert ordered == sorted(ordered)
    assert partitions.tolist() == [sorted(set(keys)).index(key) for key in keys]
