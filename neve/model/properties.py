"""Every supported table property: its name, default, accepted values and meaning.

>>> properties = TableProperties({"commit.retry.num-retries": "7"})
>>> properties.commit_retries, properties.target_file_size
(7, 536870912)
>>> TableProperties({"gc.enabled": "maybe"}).gc_enabled
Traceback (most recent call last):
neve.errors.UserError: Property 'gc.enabled' is 'maybe'; it must be true or false.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from neve.errors import UserError

T_co = TypeVar("T_co", covariant=True)
_METRICS_COLUMN = "write.metadata.metrics.column."
_BLOOM_FILTER = "write.parquet.bloom-filter-"


@dataclass(frozen=True, slots=True)
class PropertyType(Generic[T_co]):
    """The values a property accepts: how text is parsed, and how errors and docs describe them."""

    parse: Callable[[str], T_co]  # raises ValueError
    expected: str


@dataclass(frozen=True, slots=True)
class Property(Generic[T_co]):
    """One table property; as a class attribute of TableProperties it is a descriptor that returns the value."""

    name: str
    default: T_co
    value_type: PropertyType[T_co]
    meaning: str

    def value(self, text: str | None) -> T_co:
        """Parse the text of the property; None stands for the default."""
        if text is None:
            return self.default
        try:
            return self.value_type.parse(text)
        except ValueError:
            raise UserError(f"Property {self.name!r} is {text!r}; it must be {self.value_type.expected}.") from None

    @overload
    def __get__(self, instance: None, owner: type) -> Property[T_co]: ...
    @overload
    def __get__(self, instance: TableProperties, owner: type) -> T_co: ...
    def __get__(self, instance: TableProperties | None, owner: type) -> Property[T_co] | T_co:
        return self if instance is None else self.value(instance.values.get(self.name))


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """The statistics recorded for a column: none, counts, or counts and bounds, full or truncated."""

    counts: bool
    bounds: bool
    length: int | None = None  # None: bounds are not truncated

    @classmethod
    def parse(cls, text: str) -> MetricsMode:
        """Parse none, counts, truncate(n) or full."""
        modes = {"none": cls(False, False), "counts": cls(True, False), "full": cls(True, True)}
        word = text.strip().lower()
        if word in modes:
            return modes[word]
        match = re.fullmatch(r"truncate\(\s*([1-9][0-9]{0,8})\s*\)", word)
        if match is None:
            raise ValueError(text)
        return cls(True, True, int(match[1]))


def _integer_at_least(lowest: int, expected: str) -> PropertyType[int]:
    def parse(text: str) -> int:
        number = int(text.strip())
        if number < lowest:
            raise ValueError(text)
        return number

    return PropertyType(parse, expected)


def _one_of(*choices: str) -> PropertyType[str]:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in choices:
            raise ValueError(text)
        return word

    return PropertyType(parse, f"one of {', '.join(choices)}")


_BOOLEAN = PropertyType(lambda text: _one_of("true", "false").parse(text) == "true", "true or false")
_COUNT = _integer_at_least(0, "a whole number, 0 or more")
_INTEGER = _integer_at_least(-131072, "a whole number")
_POSITIVE = _integer_at_least(1, "a whole number, 1 or more")
_TEXT: PropertyType[str | None] = PropertyType(str, "text")
_METRICS = PropertyType(MetricsMode.parse, "none, counts, truncate(length) or full")
_MODE = _one_of("copy-on-write", "merge-on-read")
_ISOLATION = _one_of("serializable", "snapshot")
_DISTRIBUTION = _one_of("none", "hash", "range")
_FILE_FORMAT = _one_of("parquet", "orc", "avro")
_PARQUET_CODEC = _one_of("zstd", "gzip", "snappy", "lz4", "lz4_raw", "brotli", "lzo", "uncompressed")
_MIB = 1 << 20
_DAY_MS = 24 * 60 * 60 * 1000
_FOREVER = (1 << 63) - 1
_FALSE_POSITIVES = 0.01
_BLOOM_FILTER_NAME = re.compile(re.escape(_BLOOM_FILTER) + r"(enabled|fpp|ndv)\.column\.(.+)")


def _fraction(text: str) -> float:
    number = float(text)
    if not 0 < number < 1:
        raise ValueError(text)
    return number


def _metrics_override(name: str) -> Property[MetricsMode | None]:
    return Property(name, None, _METRICS, "Statistics recorded for one column.")


_BLOOM_FILTER_TYPES: Mapping[str, PropertyType[Any]] = {
    "enabled": _BOOLEAN,
    "fpp": PropertyType(_fraction, "a number between 0 and 1"),
    "ndv": _POSITIVE,
}


def _bloom_filter_property(what: str, column: str) -> Property[Any]:
    name = f"{_BLOOM_FILTER}{what}.column.{column}"
    return Property(name, None, _BLOOM_FILTER_TYPES[what], "Bloom filters for one column.")


@dataclass(frozen=True, slots=True)
class BloomFilterSettings:
    """How a column's bloom filters are written."""

    false_positives: float  # the share of absent values that a filter lets through
    distinct_values: int | None  # None: counted


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties of a table as typed attributes. A bad value raises UserError when it is read, or in `check`."""

    values: Mapping[str, str]

    def check(self) -> None:
        """Reject the first property with a bad value."""
        for name, text in self.values.items():
            if name in PROPERTIES:
                PROPERTIES[name].value(text)
            elif name.startswith(_METRICS_COLUMN):
                _metrics_override(name).value(text)
            elif match := _BLOOM_FILTER_NAME.fullmatch(name):
                _bloom_filter_property(match[1], match[2]).value(text)

    def bloom_filter_of(self, column: str) -> BloomFilterSettings | None:
        """Return the settings for this column; None if it has no bloom filters."""
        enabled, share, count = (
            (each := _bloom_filter_property(what, column)).value(self.values.get(each.name))
            for what in _BLOOM_FILTER_TYPES
        )
        return BloomFilterSettings(share or _FALSE_POSITIVES, count) if enabled else None

    def metrics_mode_of(self, column: str) -> MetricsMode | None:
        """Return the mode set for this column; None means the default."""
        name = _METRICS_COLUMN + column
        return _metrics_override(name).value(self.values.get(name))

    format_version = Property(
        "format-version",
        2,
        _integer_at_least(1, "1, 2, 3 or 4"),
        "Format version of a new table; setting it later upgrades the table.",
    )
    name_mapping = Property("schema.name-mapping.default", None, _TEXT, "Field ids by name, for files without ids.")
    gc_enabled = Property("gc.enabled", True, _BOOLEAN, "Allow maintenance to delete files of this table.")

    # --- writing data ---
    file_format = Property(
        "write.format.default", "parquet", _FILE_FORMAT, "Format of new data files; only Parquet can be written."
    )
    target_file_size = Property(
        "write.target-file-size-bytes",
        512 * _MIB,
        _POSITIVE,
        "Size at which a data file is closed and the next is begun.",
    )
    delete_target_file_size = Property(
        "write.delete.target-file-size-bytes", 64 * _MIB, _POSITIVE, "Size at which a delete file is closed."
    )
    distribution_mode = Property(
        "write.distribution-mode",
        None,
        _DISTRIBUTION,
        "How rows are distributed before writing: none, hash by partition, or range by sort order. Unset: range for a "
        "table with a sort order, hash for a partitioned table, none otherwise.",
    )
    delete_distribution_mode = Property(
        "write.delete.distribution-mode", None, _DISTRIBUTION, "The same for rows that DELETE writes; unset: hash."
    )
    update_distribution_mode = Property(
        "write.update.distribution-mode", None, _DISTRIBUTION, "The same for rows that UPDATE writes; unset: hash."
    )
    merge_distribution_mode = Property(
        "write.merge.distribution-mode", None, _DISTRIBUTION, "The same for rows that MERGE writes; unset: hash."
    )
    fanout = Property(
        "write.spark.fanout.enabled", False, _BOOLEAN, "Keep a file open per partition instead of sorting by it."
    )
    data_path = Property("write.data.path", None, _TEXT, "Folder for data files; unset: data/ in the table location.")
    metadata_path = Property("write.metadata.path", None, _TEXT, "Folder for metadata; unset: metadata/ there.")
    object_storage = Property(
        "write.object-storage.enabled", False, _BOOLEAN, "Spread data files over hashed prefixes of the data path."
    )
    object_storage_partitioned_paths = Property(
        "write.object-storage.partitioned-paths", True, _BOOLEAN, "Keep partition values in hashed data paths."
    )
    partition_summary_limit = Property(
        "write.summary.partition-limit", 0, _COUNT, "Most changed partitions that a snapshot summary lists one by one."
    )

    # --- Parquet ---
    parquet_codec = Property(
        "write.parquet.compression-codec", "zstd", _PARQUET_CODEC, "Compression of data files; lzo cannot be written."
    )
    parquet_level = Property("write.parquet.compression-level", None, _INTEGER, "Level of the codec; 2 for zstd.")
    parquet_row_group_size = Property(
        "write.parquet.row-group-size-bytes", 128 * _MIB, _POSITIVE, "Size of a row group."
    )
    parquet_page_size = Property("write.parquet.page-size-bytes", _MIB, _POSITIVE, "Size of a page.")
    parquet_page_rows = Property("write.parquet.page-row-limit", 20_000, _POSITIVE, "Rows in a page.")
    parquet_dict_size = Property("write.parquet.dict-size-bytes", 2 * _MIB, _POSITIVE, "Size of a dictionary page.")
    bloom_filter_bytes = Property(
        "write.parquet.bloom-filter-max-bytes", _MIB, _POSITIVE, "Size of the bloom filter of a column in a row group."
    )
    delete_parquet_codec = Property(
        "write.delete.parquet.compression-codec",
        None,
        _PARQUET_CODEC,
        "Checked and of no effect: delete files are compressed like data files.",
    )

    # --- column statistics ---
    metrics_default = Property(
        "write.metadata.metrics.default", MetricsMode(True, True, 16), _METRICS, "Statistics recorded for a column."
    )
    metrics_max_inferred_columns = Property(
        "write.metadata.metrics.max-inferred-column-defaults",
        100,
        _COUNT,
        "Number of columns that the default applies to; later columns get none.",
    )

    # --- row-level commands ---
    delete_mode = Property("write.delete.mode", "copy-on-write", _MODE, "How DELETE changes a file.")
    update_mode = Property("write.update.mode", "copy-on-write", _MODE, "How UPDATE changes a file.")
    merge_mode = Property("write.merge.mode", "copy-on-write", _MODE, "How MERGE changes a file.")
    delete_isolation = Property("write.delete.isolation-level", "serializable", _ISOLATION, "Isolation of DELETE.")
    update_isolation = Property("write.update.isolation-level", "serializable", _ISOLATION, "Isolation of UPDATE.")
    merge_isolation = Property("write.merge.isolation-level", "serializable", _ISOLATION, "Isolation of MERGE.")
    delete_granularity = Property(
        "write.delete.granularity",
        "file",
        _one_of("file", "partition"),
        "One position delete file per data file or per partition. Iceberg's library defaults to partition; Iceberg on "
        "Spark and this engine default to file.",
    )

    schema_evolution = Property(
        "write.spark.auto-schema-evolution.enabled",
        True,
        _BOOLEAN,
        "Allow a MERGE with schema evolution to add and widen columns.",
    )
    write_audit_publish = Property(
        "write.wap.enabled",
        False,
        _BOOLEAN,
        "A Spark session with spark.wap.id stages its writes of rows; with spark.wap.branch they go to that branch.",
    )
    reruns = Property(
        "neve.commit.reruns", 3, _COUNT, "Reruns of a row-level statement after a conflict; 0: it fails at once."
    )

    # --- committing ---
    commit_retries = Property(
        "commit.retry.num-retries",
        100,
        _COUNT,
        "Attempts after the first. Other engines stop after 4 by default, so that jobs fail with a dozen concurrent "
        "writers. Here a retry reuses the written files, which giving up would waste. The total timeout still applies.",
    )
    commit_min_wait_ms = Property("commit.retry.min-wait-ms", 100, _COUNT, "Wait before the first retry; then doubled.")
    commit_max_wait_ms = Property("commit.retry.max-wait-ms", 60_000, _COUNT, "Longest wait between attempts.")
    commit_timeout_ms = Property(
        "commit.retry.total-timeout-ms", 1_800_000, _COUNT, "Time after which no retry starts."
    )
    status_checks = Property("commit.status-check.num-retries", 3, _COUNT, "Checks of the table after a lost answer.")
    status_check_min_wait_ms = Property(
        "commit.status-check.min-wait-ms", 1_000, _COUNT, "Wait before the second check; then doubled."
    )
    status_check_max_wait_ms = Property(
        "commit.status-check.max-wait-ms", 60_000, _COUNT, "Longest wait between checks."
    )
    status_check_timeout_ms = Property(
        "commit.status-check.total-timeout-ms",
        1_800_000,
        _COUNT,
        "Checked and of no effect: the number of checks and the waits between them are the limit.",
    )
    manifest_target_size = Property("commit.manifest.target-size-bytes", 8 * _MIB, _POSITIVE, "Size of a manifest.")
    manifest_min_count = Property(
        "commit.manifest.min-count-to-merge", 100, _COUNT, "Number of small manifests at which they are merged."
    )
    manifest_merge = Property("commit.manifest-merge.enabled", True, _BOOLEAN, "Merge small manifests when committing.")
    root_inline_files = Property(
        "neve.root.inline-files",
        0,
        _COUNT,
        "Version 4: a commit with at most this many new files lists them in the root, without a leaf; 0: never.",
    )
    root_inline_rows = Property(
        "neve.root.inline-rows",
        250,
        _COUNT,
        "Version 4: most files that the root itself lists; the commit that exceeds it moves them to leaves.",
    )
    manifest_vectors = Property(
        "neve.manifest-vectors.enabled",
        False,
        _BOOLEAN,
        "Version 4: hide changed rows of a leaf by a vector in the root instead of rewriting the leaf.",
    )
    metadata_codec = Property(
        "write.metadata.compression-codec", "none", _one_of("none", "gzip"), "Compression of metadata files."
    )
    metadata_previous_versions_max = Property(
        "write.metadata.previous-versions-max", 100, _COUNT, "Entries kept in the metadata log."
    )
    metadata_delete_after_commit = Property(
        "write.metadata.delete-after-commit.enabled", False, _BOOLEAN, "Delete metadata files that leave the log."
    )

    # --- history ---
    max_snapshot_age_ms = Property(
        "history.expire.max-snapshot-age-ms", 5 * _DAY_MS, _COUNT, "Age at which snapshots expire."
    )
    min_snapshots_to_keep = Property(
        "history.expire.min-snapshots-to-keep", 1, _POSITIVE, "Snapshots kept regardless of age."
    )
    max_ref_age_ms = Property(
        "history.expire.max-ref-age-ms", _FOREVER, _POSITIVE, "Age at which branches and tags expire."
    )

    # --- reading ---
    split_size = Property("read.split.target-size", 128 * _MIB, _POSITIVE, "Bytes of data per task.")
    metadata_split_size = Property(
        "read.split.metadata-target-size", 32 * _MIB, _POSITIVE, "Checked and of no effect: metadata is read at once."
    )
    split_lookback = Property(
        "read.split.planning-lookback", 10, _POSITIVE, "Checked and of no effect: Spark forms the tasks itself."
    )
    open_file_cost = Property(
        "read.split.open-file-cost", 4 * _MIB, _COUNT, "Checked and of no effect: Spark's own setting applies."
    )


PROPERTIES: dict[str, Property[Any]] = {
    declared.name: declared for declared in vars(TableProperties).values() if isinstance(declared, Property)
}
"""Every property by its Iceberg name."""


def properties_of(values: Mapping[str, str]) -> TableProperties:
    """Return the typed properties of a table: `properties_of(table.metadata.properties).commit_retries`."""
    return TableProperties(values)
