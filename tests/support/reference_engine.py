"""Tables that tests are done with, for a witness who is asked about all of them: Spark with Iceberg's own runtime."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from tests.peers.spark import Spark, SparkSaid
from tests.support.spark_oracle import difference


@dataclass
class Finished:
    """Tables by name and metadata file, and the rows they must hold."""

    tables: dict[str, tuple[str, pa.Table]] = field(default_factory=dict)

    def keep(self, name: str, location: str, rows: pa.Table) -> None:
        """Remember a table for later."""
        self.tables[name] = location, rows

    def check_by(self, spark: Spark) -> None:
        """Fail with everything that Spark with Iceberg reads otherwise."""
        if not self.tables:
            pytest.skip("Nothing was played before: there is no table to look at.")
        said = {name: _verdict(spark, *table) for name, table in self.tables.items()}
        assert not any(said.values()), "\n".join(f"{name}: {text}" for name, text in said.items() if text)


def _verdict(spark: Spark, location: str, rows: pa.Table) -> str:
    """How Spark reads a table otherwise than it must; empty when it does not."""
    try:
        return difference(spark.rows(location), rows)
    except SparkSaid as e:
        return str(e).splitlines()[0]
