"""The options of a compaction: Iceberg's names, Iceberg's defaults, and what contradicts itself is refused.

>>> options = RewriteOptions.of({"target-file-size-bytes": 1000, "min-input-files": "2"}, default_target=512)
>>> options.target_file_size, options.min_file_size, options.max_file_size, options.min_input_files
(1000, 750, 1800, 2)
>>> RewriteOptions.of({"rewriteall": True}, default_target=512)
Traceback (most recent call last):
neve.errors.UnknownName: Unknown option 'rewriteall'. Did you mean 'rewrite-all'?
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from neve.errors import UnknownName, UserError

JobOrder = Literal["none", "bytes-asc", "bytes-desc", "files-asc", "files-desc"]
JOB_ORDERS: tuple[JobOrder, ...] = ("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc")
_NO_LIMIT = (1 << 31) - 1
_MAX_LONG = (1 << 63) - 1
_DEFAULT_GROUP_SIZE = 100 << 30
_MAX_FLOAT = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, how its text is read, and what it means."""

    name: str
    field: str
    read: Callable[[Any], Any]  # raises ValueError
    accepts: str
    meaning: str


def _whole_number_reader(minimum: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = int(value)
        is_whole = isinstance(value, str) or (number == value and not isinstance(value, bool))
        if not is_whole or not minimum <= number <= _MAX_LONG:
            raise ValueError(value)
        return number

    return read


def _real_number_reader(maximum: float) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if isinstance(value, bool) or not 0 < float(value) <= maximum:
            raise ValueError(value)
        return float(value)

    return read


def _read_flag(value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise ValueError(value)
    return str(value).lower() == "true"


def _order(value: Any) -> JobOrder:
    return {order: order for order in JOB_ORDERS}[value.lower()]


_POSITIVE, _COUNT = "a whole number above 0", "a whole number, 0 or more"
_ALL_OPTIONS = (
    Option(
        "target-file-size-bytes",
        "target_file_size",
        _whole_number_reader(1),
        _POSITIVE,
        "size aimed at for each new file",
    ),
    Option("min-file-size-bytes", "min_file_size", _whole_number_reader(0), _COUNT, "a smaller file is a candidate"),
    Option("max-file-size-bytes", "max_file_size", _whole_number_reader(1), _POSITIVE, "a larger file is a candidate"),
    Option(
        "min-input-files", "min_input_files", _whole_number_reader(1), _POSITIVE, "files that make a group worth it"
    ),
    Option("rewrite-all", "rewrite_all", _read_flag, "true or false", "take every file the filter selects"),
    Option(
        "max-file-group-size-bytes", "max_group_size", _whole_number_reader(1), _POSITIVE, "input bytes in one group"
    ),
    Option(
        "max-file-group-input-files", "max_group_files", _whole_number_reader(1), _POSITIVE, "input files in one group"
    ),
    Option(
        "max-files-to-rewrite", "max_files", _whole_number_reader(1), _POSITIVE, "stop when so many files were taken"
    ),
    Option(
        "delete-file-threshold",
        "delete_file_threshold",
        _whole_number_reader(0),
        _COUNT,
        "delete files that make a candidate",
    ),
    Option(
        "delete-ratio-threshold",
        "delete_ratio_threshold",
        _real_number_reader(1),
        "a number above 0, 1 at most",
        "share of deleted rows that makes a candidate",
    ),
    Option(
        "max-concurrent-file-group-rewrites",
        "concurrent_groups",
        _whole_number_reader(1),
        _POSITIVE,
        "groups rewritten at once",
    ),
    Option("partial-progress.enabled", "partial_progress", _read_flag, "true or false", "commit groups as they finish"),
    Option("partial-progress.max-commits", "max_commits", _whole_number_reader(1), _POSITIVE, "batches of groups"),
    Option(
        "partial-progress.max-failed-commits",
        "max_failed_commits",
        _whole_number_reader(0),
        _COUNT,
        "more failed batches fail the call",
    ),
    Option("rewrite-job-order", "job_order", _order, f"one of {', '.join(JOB_ORDERS)}", "order in which groups run"),
    Option(
        "use-starting-sequence-number",
        "use_starting_sequence_number",
        _read_flag,
        "true or false",
        "new files keep the number of the snapshot the plan was made on",
    ),
    Option(
        "remove-dangling-deletes",
        "remove_dangling_deletes",
        _read_flag,
        "true or false",
        "then remove delete files that apply to nothing",
    ),
    Option("output-spec-id", "output_spec_id", _whole_number_reader(0), _COUNT, "the partition spec of the new files"),
    Option(
        "compression-factor",
        "compression_factor",
        _real_number_reader(_MAX_FLOAT),
        "a number above 0",
        "of the estimate of sorted files",
    ),
    Option(
        "shuffle-partitions-per-file",
        "shuffle_partitions_per_file",
        _whole_number_reader(1),
        _POSITIVE,
        "accepted and of no effect: a sorted file is one slice, since Spark puts slices together in any order",
    ),
    Option(
        "var-length-contribution",
        "var_length_contribution",
        _whole_number_reader(1),
        _POSITIVE,
        "bytes of text in a z-order key",
    ),
    Option(
        "max-output-size", "max_output_size", _whole_number_reader(1), _POSITIVE, "bytes of a z-order key that are kept"
    ),
)
OPTIONS: dict[str, Option] = {option.name: option for option in _ALL_OPTIONS}
"""Every option by its Iceberg name."""


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """What a compaction takes and how it works."""

    target_file_size: int = 512 << 20
    min_file_size: int = (512 << 20) * 3 // 4
    max_file_size: int = (512 << 20) * 9 // 5
    min_input_files: int = 5
    rewrite_all: bool = False
    max_group_size: int = _DEFAULT_GROUP_SIZE
    max_group_files: int | None = None
    max_files: int | None = None
    delete_file_threshold: int = _NO_LIMIT
    delete_ratio_threshold: float = 0.3
    concurrent_groups: int = 5
    partial_progress: bool = False
    max_commits: int = 10
    max_failed_commits: int | None = None
    job_order: JobOrder = "none"
    use_starting_sequence_number: bool = True
    remove_dangling_deletes: bool = False
    output_spec_id: int | None = None
    compression_factor: float = 1.0
    shuffle_partitions_per_file: int = 1
    var_length_contribution: int = 8
    max_output_size: int = _NO_LIMIT

    @classmethod
    def of(cls, options: Mapping[str, Any], default_target: int) -> RewriteOptions:
        """The options under their Iceberg names; sizes that are not given follow from the target."""
        _refuse_unknown(options)
        known = {OPTIONS[name].field: _read_option(name, value) for name, value in options.items()}
        target = known.setdefault("target_file_size", default_target)
        known.setdefault("min_file_size", target * 3 // 4)
        known.setdefault("max_file_size", max(target * 9 // 5, target + 1))
        made = cls(**known)
        made._refuse_contradictions()
        return made

    @property
    def write_limit(self) -> int:
        """Bytes at which a new file is closed: beyond the target, so that a fat file does not spill a tiny one."""
        return self.target_file_size + (self.max_file_size - self.target_file_size) // 2

    def output_files(self, size: int) -> int:
        """How many files so many bytes become; a small rest goes into the others if they stay near the target."""
        if size < self.target_file_size:
            return 1
        fewer, rest = divmod(size, self.target_file_size)
        more = fewer + (rest > 0)
        if rest > self.min_file_size:
            return more
        is_below = size * 10 < self.target_file_size * 11 * fewer and size < self.write_limit * fewer
        return fewer if is_below else more

    def split_size(self, size: int) -> int:
        """Bytes one task reads of a group of so many."""
        even = size // self.output_files(size) + (5 << 10)
        return min(max(even, self.target_file_size), self.write_limit)

    def as_dict(self) -> dict[str, Any]:
        """The options by their Iceberg names."""
        named = {option.field: option.name for option in _ALL_OPTIONS}
        return {named[f.name]: getattr(self, f.name) for f in fields(self)}

    def _refuse_contradictions(self) -> None:
        if self.min_file_size >= self.target_file_size:
            raise UserError(
                f"min-file-size-bytes ({self.min_file_size}) must be less than target-file-size-bytes "
                f"({self.target_file_size}): otherwise new files would be candidates again."
            )
        if self.max_file_size <= self.target_file_size:
            raise UserError(
                f"max-file-size-bytes ({self.max_file_size}) must be more than target-file-size-bytes "
                f"({self.target_file_size}): otherwise new files would be candidates again."
            )


def _refuse_unknown(options: Mapping[str, Any]) -> None:
    wrong = [UnknownName("option", name, OPTIONS) for name in options if name not in OPTIONS]
    if len(wrong) > 1:
        raise UserError(" ".join(map(str, wrong)))
    for one in wrong:
        raise one


def _read_option(name: str, value: Any) -> Any:
    try:
        return OPTIONS[name].read(value)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise UserError(f"Option {name!r} is {value!r}; it must be {OPTIONS[name].accepts}.") from None
