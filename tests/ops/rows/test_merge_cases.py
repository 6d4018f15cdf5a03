"""Every case of MERGE, and at the end what Spark with Iceberg reads from the tables they left."""

from __future__ import annotations

import pytest

from tests.peers.spark import Spark
from tests.support.dml_cases import Case, Run, runs_of
from tests.support.dml_tables import Stage
from tests.support.run_case import play


@pytest.mark.parametrize(("case", "run"), [pytest.param(*p, id=f"{p[0].name}-{p[1]}") for p in runs_of("merge")])
def test_case(stage: Stage, case: Case, run: Run):
    play(stage, case, run)


def test_spark_with_iceberg_reads_the_same_rows(stage: Stage, other_spark: Spark):
    stage.finished.check_by(other_spark)
