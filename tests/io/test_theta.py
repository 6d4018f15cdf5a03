"""Theta sketches hold what the sketches of DataSketches hold, and DataSketches reads their bytes."""

from __future__ import annotations

from collections.abc import Iterable

import datasketches
import numpy as np
import pyarrow as pa
import pytest

from neve.io.theta import ThetaSketch
from neve.run.value_hashes import hash_values


def sketch(numbers: Iterable[int]) -> ThetaSketch:
    return ThetaSketch.of(hash_values(pa.array(numbers, pa.int64())))


def peer(numbers: Iterable[int]) -> datasketches.update_theta_sketch:
    made = datasketches.update_theta_sketch(12)
    for number in numbers:
        made.update(number)
    made.trim()  # to the 4,096 smallest hashes
    return made


@pytest.mark.parametrize("count", [0, 1, 2, 4096, 4097, 70_000])
def test_hashes_and_estimate_are_those_of_datasketches(count: int):
    ours, theirs = sketch(range(count)), peer(range(count))
    assert ours.estimate == theirs.get_estimate()
    assert ours.hashes.tolist() == sorted(theirs)
    read = datasketches.compact_theta_sketch.deserialize(ours.to_bytes())
    assert (read.get_estimate(), list(read)) == (ours.estimate, ours.hashes.tolist())
    assert read.is_ordered() and read.is_estimation_mode() == (count > 4096)


@pytest.mark.parametrize("counts", [(0, 0), (3, 0), (2000, 4096), (5000, 30_000), (30_000, 100)])
def test_sketches_of_parts_unite_to_that_of_the_whole(counts: tuple[int, int]):
    some, others = range(counts[0]), range(counts[0] // 2, counts[0] // 2 + counts[1])
    union = datasketches.theta_union(12)
    for part in (peer(some), peer(others)):
        union.update(part)
    united = sketch(some) | sketch(others)
    assert united.estimate == union.get_result().get_estimate()
    assert united.hashes.tolist() == sorted(union.get_result())
    assert united.to_bytes() == (sketch(others) | sketch(some)).to_bytes()


def test_adding_values_again_changes_nothing():
    once = sketch(range(10_000))
    again = once.adding(hash_values(pa.array([*range(5000), *range(10_000)], pa.int64())))
    assert again.theta == once.theta and np.array_equal(again.hashes, once.hashes)
