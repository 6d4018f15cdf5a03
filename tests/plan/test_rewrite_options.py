"""The options of a compaction: every name, every default, every value that is refused, and the sizes that follow."""

from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from neve.errors import UnknownName, UserError
from neve.plan.rewrite_options import JOB_ORDERS, OPTIONS, RewriteOptions

MIB = 1 << 20
LARGEST = 2**63 - 1
NUMBERS_NOT = ["", "x", "1.5", 1.5, None, True, [], float("nan"), float("inf"), Decimal("1.5"), -1, "-1", 2**63, "1e3"]
FLAGS_NOT = ["", "yes", 1, 0, None, "1"]
SHARES_NOT = [0, -0.1, 1.01, "x", "", None, True, float("nan"), float("inf"), []]
ORDERS_NOT = ["", "bytes", "up", None, 1, "bytes_asc"]

# name: default, values and what they are read as, values that are refused
TABLE: dict[str, tuple[Any, dict[Any, Any], list[Any]]] = {
    "target-file-size-bytes": (512 * MIB, {1: 1, "2048": 2048, 7.0: 7, LARGEST: LARGEST}, [0, *NUMBERS_NOT]),
    "min-file-size-bytes": (384 * MIB, {0: 0, "5": 5}, NUMBERS_NOT),
    "max-file-size-bytes": (512 * MIB * 9 // 5, {10**12: 10**12, str(LARGEST): LARGEST}, [0, *NUMBERS_NOT]),
    "min-input-files": (5, {1: 1, "9": 9}, [0, *NUMBERS_NOT]),
    "rewrite-all": (False, {True: True, "true": True, "FALSE": False}, FLAGS_NOT),
    "max-file-group-size-bytes": (100 * 1024 * MIB, {1: 1, LARGEST: LARGEST, 2**53 + 1: 2**53 + 1}, [0, *NUMBERS_NOT]),
    "max-file-group-input-files": (None, {1: 1, "100": 100}, [0, *NUMBERS_NOT]),
    "max-files-to-rewrite": (None, {1: 1, "100": 100}, [0, *NUMBERS_NOT]),
    "delete-file-threshold": (2147483647, {0: 0, "3": 3}, NUMBERS_NOT),
    "delete-ratio-threshold": (0.3, {1: 1.0, "0.5": 0.5, 0.001: 0.001}, SHARES_NOT),
    "max-concurrent-file-group-rewrites": (5, {1: 1, "8": 8}, [0, *NUMBERS_NOT]),
    "partial-progress.enabled": (False, {True: True, "False": False}, FLAGS_NOT),
    "partial-progress.max-commits": (10, {1: 1, "3": 3}, [0, *NUMBERS_NOT]),
    "partial-progress.max-failed-commits": (None, {0: 0, "3": 3}, NUMBERS_NOT),
    "rewrite-job-order": ("none", {**{o: o for o in JOB_ORDERS}, "BYTES-ASC": "bytes-asc"}, ORDERS_NOT),
    "use-starting-sequence-number": (True, {False: False, "true": True}, FLAGS_NOT),
    "remove-dangling-deletes": (False, {True: True, "false": False}, FLAGS_NOT),
    "output-spec-id": (None, {0: 0, "2": 2}, NUMBERS_NOT),
    "compression-factor": (1.0, {0.5: 0.5, "2": 2.0, 3: 3.0}, [0, -1, "x", None, True, float("nan"), float("inf")]),
    "shuffle-partitions-per-file": (1, {4: 4, "2": 2}, [0, *NUMBERS_NOT]),
    "var-length-contribution": (8, {1: 1, "16": 16}, [0, *NUMBERS_NOT]),
    "max-output-size": (2147483647, {1: 1, "64": 64}, [0, *NUMBERS_NOT]),
}
BAD = [(name, value) for name, (_, _, bad) in TABLE.items() for value in bad]


def test_every_option_is_in_the_table_and_has_a_field() -> None:
    assert set(OPTIONS) == set(TABLE)
    assert {option.field for option in OPTIONS.values()} == {f.name for f in fields(RewriteOptions)}
    for option in OPTIONS.values():
        assert option.meaning and option.accepts


def test_defaults_are_those_of_iceberg() -> None:
    assert RewriteOptions.of({}, 512 * MIB).as_dict() == {name: default for name, (default, _, _) in TABLE.items()}
    assert RewriteOptions() == RewriteOptions.of({}, 512 * MIB)


@pytest.mark.parametrize("name", TABLE)
def test_values_are_read_as_what_they_mean(name: str) -> None:
    for value, meaning in TABLE[name][1].items():
        read = OPTIONS[name].read(value)
        assert (read, type(read)) == (meaning, type(meaning)), value
        if "file-size" not in name:  # those contradict each other
            assert RewriteOptions.of({name: value}, 1000).as_dict()[name] == meaning


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{name}={value!r}" for name, value in BAD])
def test_bad_values_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UserError) as e:
        RewriteOptions.of({"min-input-files": 2, name: value}, 1000)
    assert str(e.value) == f"Option {name!r} is {value!r}; it must be {OPTIONS[name].accepts}."


def test_sizes_follow_from_the_target() -> None:
    made = RewriteOptions.of({"target-file-size-bytes": 1000}, 5)
    assert (made.min_file_size, made.max_file_size) == (750, 1800)
    made = RewriteOptions.of({"min-file-size-bytes": 1}, 1000)
    assert (made.target_file_size, made.min_file_size, made.max_file_size) == (1000, 1, 1800)
    for target in (1, 2, 3, 2**60 + 1):
        sizes = RewriteOptions.of({"target-file-size-bytes": target}, 5)
        assert sizes.min_file_size < target < sizes.max_file_size


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"min-file-size-bytes": 1000}, r"min-file-size-bytes \(1000\) must be less than target-file-size-bytes"),
        ({"max-file-size-bytes": 1000}, r"max-file-size-bytes \(1000\) must be more than target-file-size-bytes"),
        ({"target-file-size-bytes": 10, "min-file-size-bytes": 11}, r"min-file-size-bytes \(11\)"),
        ({"target-file-size-bytes": 10, "max-file-size-bytes": 9}, r"max-file-size-bytes \(9\)"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(given: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RewriteOptions.of(given, 1000)


def test_all_unknown_names_are_told_at_once() -> None:
    with pytest.raises(UnknownName, match=r"^Unknown option 'min_input_files'. Did you mean 'min-input-files'"):
        RewriteOptions.of({"min_input_files": 1}, 1000)
    with pytest.raises(UserError) as e:
        RewriteOptions.of({"a": 1, "rewrite-all": "maybe", "b": 2, "rewrite-al": 3}, 1000)
    assert all(f"Unknown option '{name}'" in str(e.value) for name in ("a", "b", "rewrite-al"))
    assert "Did you mean 'rewrite-all'" in str(e.value)


# sizes of the output -----------------------------------------------------------------------------------------------


@st.composite
def sized(draw: st.DrawFn) -> tuple[RewriteOptions, int]:
    target = draw(st.integers(2, 10**6))
    lowest, highest = draw(st.integers(0, target - 1)), draw(st.integers(target + 1, 4 * target))
    near = st.integers(1, 40).flatmap(lambda n: st.integers(-3, 3).map(lambda d: max(n * target + d, 0)))
    size = draw(st.integers(0, 50 * target) | near)
    return replace(RewriteOptions(), target_file_size=target, min_file_size=lowest, max_file_size=highest), size


def files_by_the_rules(o: RewriteOptions, size: int) -> int:
    """The rules as they are written down, in exact numbers."""
    target = Fraction(o.target_file_size)
    limit = o.target_file_size + (o.max_file_size - o.target_file_size) // 2
    if size < target:
        return 1
    more, fewer = ceil(size / target), floor(size / target)
    if size - fewer * target > o.min_file_size:
        return more
    return fewer if size / Fraction(fewer) < min(Fraction(11, 10) * target, limit) else more


@given(sized())
def test_output_files_follow_the_rules(case: tuple[RewriteOptions, int]) -> None:
    options, size = case
    assert options.output_files(size) == files_by_the_rules(options, size)


@given(sized())
def test_a_task_reads_no_less_than_the_target_and_no_more_than_a_file_holds(case: tuple[RewriteOptions, int]) -> None:
    options, size = case
    halfway = (options.target_file_size + options.max_file_size) // 2
    assert options.write_limit == halfway
    even = size // files_by_the_rules(options, size) + 5 * 1024
    assert options.split_size(size) == min(max(even, options.target_file_size), halfway)


@given(sized())
def test_files_of_the_expected_number_are_no_candidates_again(case: tuple[RewriteOptions, int]) -> None:
    """Unless all of it is less than a file, or the numbers leave no room between the limits."""
    options, size = case
    assume(size >= options.target_file_size and options.min_file_size * 4 <= options.target_file_size * 3)
    assume(options.max_file_size * 5 >= options.target_file_size * 9)
    average = size / options.output_files(size)
    assert average <= options.max_file_size
    assert average >= options.target_file_size / 2
