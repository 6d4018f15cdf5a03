"""Spark with Iceberg and PyIceberg read tables that were copied or moved, after the original is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

import neve
from tests.peers.spark import Spark
from tests.support.copied_tables import evolved, rows


@pytest.mark.parametrize("version", [1, 2, 3])
def test_others_read_a_copy_without_the_original(other_spark: Spark, tmp_path: Path, version: int):
    t = evolved(neve.connect(tmp_path / "lake"), version)
    t.append(rows([80]))
    want = sorted(map(str, t.scan().to_arrow(engine="arrow").to_pylist()))
    result = t.copy_to(str(tmp_path / "copy")).execute()
    shutil.rmtree(tmp_path / "lake")
    assert sorted(map(str, other_spark.rows(result.metadata_location).to_pylist())) == want
    assert sorted(map(str, StaticTable.from_metadata(result.metadata_location).scan().to_arrow().to_pylist())) == want


@pytest.mark.parametrize("version", [1, 2, 3])
def test_others_read_a_table_that_was_moved(other_spark: Spark, tmp_path: Path, version: int):
    t = evolved(neve.connect(tmp_path / "lake"), version)
    old = t.context.metadata.location.removeprefix("file://")
    t.relocate(str(tmp_path / "new")).execute()
    shutil.rmtree(old)
    t.refresh().append(rows([80]))
    want = sorted(map(str, t.scan().to_arrow(engine="arrow").to_pylist()))
    location = t.refresh().iceberg.metadata_location
    assert sorted(map(str, other_spark.rows(location).to_pylist())) == want
    assert sorted(map(str, StaticTable.from_metadata(location).scan().to_arrow().to_pylist())) == want
