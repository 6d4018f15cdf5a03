"""Spark with Iceberg reads copies of tables, and what it rewrites itself is what Névé rewrites."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import neve
from tests.peers.spark import Spark
from tests.support.copied_tables import evolved, rows


@pytest.mark.parametrize("version", [1, 2, 3])
def test_spark_reads_a_copy_without_the_original(other_spark: Spark, tmp_path: Path, version: int):
    t = evolved(neve.connect(tmp_path / "lake"), version)
    t.append(rows([80]))
    want = sorted(map(str, t.scan().to_arrow(engine="arrow").to_pylist()))
    result = t.copy_to(str(tmp_path / "copy")).execute()
    shutil.rmtree(tmp_path / "lake")
    assert sorted(map(str, other_spark.rows(result.metadata_location).to_pylist())) == want
