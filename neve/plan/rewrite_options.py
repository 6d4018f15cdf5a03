"""The options of a compaction, with the names and defaults of Iceberg; contradictions are rejected.

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


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, how its value is parsed, and what it means."""

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


def _positive(name: str, field: str, meaning: str) -> Option:
    return Option(name, field, _whole_number_reader(1), "a whole number above 0", meaning)


def _count(name: str, field: str, meaning: str) -> Option:
    return Option(name, field, _whole_number_reader(0), "a whole number, 0 or more", meaning)


def _flag(name: str, field: str, meaning: str) -> Option:
    return Option(name, field, _read_flag, "true or false", meaning)


_ALL_OPTIONS = (
    _positive("target-file-size-bytes", "target_file_size", "target size of each new file"),
    _count("min-file-size-bytes", "min_file_size", "a smaller file is a candidate"),
    _positive("max-file-size-bytes", "max_file_size", "a larger file is a candidate"),
    _positive("min-input-files", "min_input_files", "number of files that makes a group worth rewriting"),
    _flag("rewrite-all", "rewrite_all", "rewrite every file that the filter selects"),
    _positive("max-file-group-size-bytes", "max_group_size", "maximum input bytes in one group"),
    _positive("max-file-group-input-files", "max_group_files", "maximum input files in one group"),
    _positive("max-files-to-rewrite", "max_files", "stop when this many files are chosen"),
    _count("delete-file-threshold", "delete_file_threshold", "number of delete files that makes a file a candidate"),
    Option(
        "delete-ratio-threshold",
        "delete_ratio_threshold",
        _real_number_reader(1),
        "a number above 0, 1 at most",
        "share of deleted rows that makes a file a candidate",
    ),
    _positive("max-concurrent-file-group-rewrites", "concurrent_groups", "groups rewritten at the same time"),
    _flag("partial-progress.enabled", "partial_progress", "commit groups as they finish"),
    _positive("partial-progress.max-commits", "max_commits", "number of commits that the groups are divided into"),
    _count("partial-progress.max-failed-commits", "max_failed_commits", "the call fails if more commits fail"),
    Option(
        "rewrite-job-order",
        "job_order",
        lambda value: {order: order for order in JOB_ORDERS}[value.lower()],
        f"one of {', '.join(JOB_ORDERS)}",
        "order in which groups run",
    ),
    _flag(
        "use-starting-sequence-number",
        "use_starting_sequence_number",
        "new files get the sequence number of the snapshot that was planned on",
    ),
    _flag(
        "remove-dangling-deletes",
        "remove_dangling_deletes",
        "afterwards remove delete files that apply to no data file",
    ),
    _count("output-spec-id", "output_spec_id", "the partition spec of the new files"),
    Option(
        "compression-factor",
        "compression_factor",
        _real_number_reader(sys.float_info.max),
        "a number above 0",
        "factor for the estimated size of sorted files",
    ),
    _positive(
        "shuffle-partitions-per-file",
        "shuffle_partitions_per_file",
        "accepted and of no effect: a sorted file is one slice, since Spark puts slices together in any order",
    ),
    _positive("var-length-contribution", "var_length_contribution", "bytes of text in a z-order key"),
    _positive("max-output-size", "max_output_size", "maximum bytes of a z-order key"),
)
OPTIONS: dict[str, Option] = {option.name: option for option in _ALL_OPTIONS}
"""Every option by its Iceberg name."""


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """Which files a compaction chooses, and how it rewrites them."""

    target_file_size: int = 512 << 20
    min_file_size: int = (512 << 20) * 3 // 4
    max_file_size: int = (512 << 20) * 9 // 5
    min_input_files: int = 5
    rewrite_all: bool = False
    max_group_size: int = 100 << 30
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
        """Parse options given by their Iceberg names; missing sizes are derived from the target."""
        errors = [UnknownName("option", name, OPTIONS) for name in options if name not in OPTIONS]
        if errors:
            raise errors[0] if len(errors) == 1 else UserError(" ".join(map(str, errors)))
        values: dict[str, Any] = {}
        for name, value in options.items():
            try:
                values[OPTIONS[name].field] = OPTIONS[name].read(value)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                raise UserError(f"Option {name!r} is {value!r}; it must be {OPTIONS[name].accepts}.") from None
        target = values.setdefault("target_file_size", default_target)
        values.setdefault("min_file_size", target * 3 // 4)
        values.setdefault("max_file_size", max(target * 9 // 5, target + 1))
        parsed = cls(**values)
        if parsed.min_file_size >= parsed.target_file_size:
            raise UserError(
                f"min-file-size-bytes ({parsed.min_file_size}) must be less than target-file-size-bytes "
                f"({parsed.target_file_size}): otherwise new files would be candidates again."
            )
        if parsed.max_file_size <= parsed.target_file_size:
            raise UserError(
                f"max-file-size-bytes ({parsed.max_file_size}) must be more than target-file-size-bytes "
                f"({parsed.target_file_size}): otherwise new files would be candidates again."
            )
        return parsed

    @property
    def write_limit(self) -> int:
        """Size at which a new file is closed: above the target, so that a slightly large file leaves no tiny one."""
        return self.target_file_size + (self.max_file_size - self.target_file_size) // 2

    def output_files(self, size: int) -> int:
        """Return how many files `size` bytes become; a small remainder may enlarge the others by up to 10 %."""
        if size < self.target_file_size:
            return 1
        full_files, remainder = divmod(size, self.target_file_size)
        if remainder > self.min_file_size:
            return full_files + 1
        fits = size * 10 < self.target_file_size * 11 * full_files and size < self.write_limit * full_files
        return full_files if fits else full_files + (remainder > 0)

    def split_size(self, size: int) -> int:
        """Return how many bytes one task reads from a group of `size` bytes."""
        even = size // self.output_files(size) + (5 << 10)
        return min(max(even, self.target_file_size), self.write_limit)

    def as_dict(self) -> dict[str, Any]:
        """Return the options by their Iceberg names."""
        names = {option.field: option.name for option in _ALL_OPTIONS}
        return {names[f.name]: getattr(self, f.name) for f in fields(self)}
