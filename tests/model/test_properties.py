"""Table properties: one place, typed, and clear about what they accept."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from pyiceberg.table import TableProperties as IcebergProperties

from neve.errors import UserError
from neve.model import properties
from neve.model.properties import PROPERTIES, MetricsMode, properties_of


def test_the_example_in_the_module_runs() -> None:
    assert doctest.testmod(properties, optionflags=doctest.IGNORE_EXCEPTION_DETAIL).failed == 0


def test_defaults_are_those_of_pyiceberg_where_it_has_them() -> None:
    named = {
        "COMMIT_MIN_RETRY_WAIT_MS": "commit.retry.min-wait-ms",
        "COMMIT_MAX_RETRY_WAIT_MS": "commit.retry.max-wait-ms",
        "COMMIT_TOTAL_RETRY_TIME_MS": "commit.retry.total-timeout-ms",
        "METADATA_PREVIOUS_VERSIONS_MAX": "write.metadata.previous-versions-max",
        "MANIFEST_TARGET_SIZE_BYTES": "commit.manifest.target-size-bytes",
        "MANIFEST_MIN_MERGE_COUNT": "commit.manifest.min-count-to-merge",
        "WRITE_TARGET_FILE_SIZE_BYTES": "write.target-file-size-bytes",
        "PARQUET_PAGE_SIZE_BYTES": "write.parquet.page-size-bytes",
        "PARQUET_PAGE_ROW_LIMIT": "write.parquet.page-row-limit",
        "PARQUET_DICT_SIZE_BYTES": "write.parquet.dict-size-bytes",
        "WRITE_PARTITION_SUMMARY_LIMIT": "write.summary.partition-limit",
    }  # fmt: skip
    for constant, name in named.items():
        assert getattr(IcebergProperties, constant) == name
        default = getattr(IcebergProperties, f"{constant}_DEFAULT")
        if name not in ("commit.retry.min-wait-ms", "commit.retry.max-wait-ms"):  # PyIceberg departs from Iceberg here
            assert default == PROPERTIES[name].default, name


def test_a_default_that_is_not_icebergs_says_so() -> None:
    declared = PROPERTIES[IcebergProperties.COMMIT_NUM_RETRIES]
    assert declared.default != IcebergProperties.COMMIT_NUM_RETRIES_DEFAULT
    assert f"stop after {IcebergProperties.COMMIT_NUM_RETRIES_DEFAULT} by default" in declared.meaning


@pytest.mark.parametrize("name", PROPERTIES)
def test_every_property_has_a_meaning_and_accepts_its_default(name: str) -> None:
    declared = PROPERTIES[name]
    assert declared.meaning.endswith(".")
    assert declared.value(None) == declared.default
    if isinstance(declared.default, bool):
        assert declared.value(str(declared.default).upper()) == declared.default
    elif isinstance(declared.default, int | str):
        assert declared.value(f" {declared.default} ") == declared.default


@pytest.mark.parametrize(
    ("name", "text", "accepts"),
    [
        ("commit.retry.num-retries", "many", "a whole number, 0 or more"),
        ("commit.retry.num-retries", "-1", "a whole number, 0 or more"),
        ("write.target-file-size-bytes", "0", "1 or more"),
        ("gc.enabled", "yes", "true or false"),
        ("write.delete.mode", "mor", "one of copy-on-write, merge-on-read"),
        ("write.update.isolation-level", "none", "one of serializable, snapshot"),
        ("write.distribution-mode", "random", "one of none, hash, range"),
        ("write.metadata.metrics.default", "truncate(0)", "truncate(length)"),
        ("write.metadata.metrics.column.a", "all", "none, counts, truncate(length) or full"),
        ("write.parquet.compression-codec", "zip", "one of zstd"),
    ],
)
def test_a_bad_value_is_refused_with_name_value_and_choice(name: str, text: str, accepts: str) -> None:
    with pytest.raises(UserError) as refused:
        properties_of({"ok": "x", name: text}).check()
    said = str(refused.value)
    assert f"'{name}'" in said
    assert f"'{text}'" in said
    assert accepts in said


def test_values_are_read_by_name() -> None:
    found = properties_of({"write.update.mode": "Merge-On-Read", "gc.enabled": "FALSE", "write.data.path": "s3://b/d"})
    assert (found.update_mode, found.delete_mode, found.gc_enabled) == ("merge-on-read", "copy-on-write", False)
    assert (found.data_path, found.metadata_path) == ("s3://b/d", None)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("none", MetricsMode(False, False)),
        ("counts", MetricsMode(True, False)),
        ("Full", MetricsMode(True, True)),
        ("truncate(16)", MetricsMode(True, True, 16)),
        ("truncate( 4 )", MetricsMode(True, True, 4)),
    ],
)
def test_metrics_modes_are_read(text: str, mode: MetricsMode) -> None:
    found = properties_of({"write.metadata.metrics.column.a.b": text})
    assert found.metrics_mode_of("a.b") == mode
    assert found.metrics_mode_of("a") is None
    assert found.metrics_default == MetricsMode(True, True, 16)


def test_properties_that_mean_nothing_here_are_left_alone() -> None:
    anything: dict[str, Any] = {"owner": "me", "write.orc.stripe-size-bytes": "x"}
    properties_of(anything).check()
