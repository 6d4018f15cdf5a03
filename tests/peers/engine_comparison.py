"""Run statements on a table with several engines, and compare the rows that all of them read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table as IcebergTable

from neve import Lake, Table
from tests.peers.agreement_counts import Tally
from tests.peers.duckdb_oracle import PlainDatabase
from tests.peers.known_bugs import READ, Fault, faults_in, faults_of
from tests.peers.metadata_structure import CLAIMS, PARTS, StructureView, by_neve, by_spark, describe_difference
from tests.peers.readers import CACHING_DUCKDB, READERS, duckdb_rows, for_peers
from tests.peers.spark import NAME as SPARK
from tests.peers.spark import Spark, SparkSaid
from tests.support.duckdb_reader import DuckDB
from tests.support.spark_oracle import difference

ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
OURS = "Névé"
NAMES = {"neve": OURS, "spark": SPARK}
Lineage = dict[Any, tuple[int | None, int | None]]


def read_and_compare(name: str, table: IcebergTable, duckdb: DuckDB, rows: pa.Table) -> str:
    """Read a table with an engine; return the error, or the difference from the expected rows."""
    special_readers: dict[str, Callable[[], pa.Table]] = {
        "DuckDB": lambda: duckdb.rows(table.metadata_location),  # which may crash its process
        CACHING_DUCKDB: lambda: duckdb_rows(table, caches=True),
    }
    return error_or_difference(special_readers.get(name) or (lambda: READERS[name](table)), rows)


def error_or_difference(read: Callable[[], pa.Table], rows: pa.Table) -> str:
    """Read rows; return the error, or the difference from the expected rows."""
    try:
        found = read()
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # any error is the result of this engine; a panic of Rust is no Exception
        return f"{type(e).__name__}: {e}"
    return difference(found, rows)


@dataclass
class SharedLake:
    """One lake that Névé and Spark with Iceberg both write to, and a plain database with the expected rows."""

    lake: Lake
    spark: Spark
    duckdb: DuckDB
    plain: PlainDatabase = field(default_factory=PlainDatabase)
    names: Iterator[int] = field(default_factory=count)

    def table(self, tally: Tally, rows: Callable[[], pa.Table] | None = None) -> ComparedTable:
        """Return a new table and its expected rows, by default those of the plain database."""
        name = f"db.t{next(self.names)}"
        return ComparedTable(self, name, tally, rows or (lambda: self.plain.rows(name)))


@dataclass
class ComparedTable:
    """A table, the statements that ran on it, and comparisons with other engines."""

    shared_lake: SharedLake
    name: str
    tally: Tally
    rows: Callable[[], pa.Table]  # the expected rows
    log: list[str] = field(default_factory=list)
    lineage: Lineage = field(default_factory=dict)  # by the id column

    @property
    def table(self) -> Table:
        return self.shared_lake.lake.table(self.name)

    def exported(self, when: str = "finally") -> ComparedTable:
        """Export a table of version 4 and register the export under its own name."""
        name, location = f"{self.name}_{when}", self.table.export_metadata()
        self.shared_lake.spark.sql(f"CALL system.register_table(table => '{name}', metadata_file => '{location}')")
        self.log.append(f"neve: exported as {name}")
        return replace(self, name=name)

    def run(self, statements: Iterable[tuple[str, str]], *, watched: bool = False) -> None:
        """Run statements, each with its engine and in the plain database."""
        for engine, text in statements:
            self.log.append(f"{engine}: {text}")
            self.shared_lake.plain.run(text)
            try:
                (self.shared_lake.spark if engine == "spark" else self.shared_lake.lake).sql(text)
                self.count_step(engine)
            except Exception as e:
                if not self._is_known_bug(text, e):
                    raise AssertionError(f"{self.past}{type(e).__name__}: {e}") from e
            if watched:
                self.check(self.rows_by("neve" if engine == "spark" else "spark"), self.changed_row_ids())

    def count_step(self, engine: str) -> None:
        """Count a write by an engine."""
        self.tally.other_figures[f"steps by {NAMES[engine]}"] += 1

    def expect_error(self, statement: str, fault: Fault) -> None:
        """Check that a statement fails in Spark with its known bug; the following statements are skipped."""
        with pytest.raises(SparkSaid, match=re.escape(fault.message)):
            self.shared_lake.spark.sql(statement)
        self.skips_for([fault])

    def _is_known_bug(self, statement: str, error: Exception) -> bool:
        """Return whether the error is a known bug of Spark with Iceberg."""
        if not isinstance(error, SparkSaid):
            return False
        return self.skips_for(faults_in(statement, self.name, self.table.context.iceberg, str(error)))

    def skips_for(self, faults: Iterable[Fault]) -> bool:
        """Return whether a comparison is skipped for a known bug, and count it."""
        reasons = [f"{fault.engine} {fault.reason}" for fault in faults]
        self.tally.skipped.update(reasons)
        return bool(reasons)

    def check(self, *found: list[str]) -> None:
        """Fail with all differences."""
        wrong = [line for lines in found for line in lines]
        assert not wrong, self.past + "\n".join(wrong)

    def check_all(self) -> None:
        """Run all checks with all engines."""
        self.check(
            self.rows_by("neve", "spark"),
            self.rows_by_readers(),
            self.structure(),
            self.changed_row_ids(),
            self.lineage_by_spark(),
            self.audit(),
        )

    # --- rows ---

    def rows_by(self, *engines: str) -> list[str]:
        """Return how the engines read rows other than those of the plain database."""
        return [line for engine in engines for line in (self._by_neve() if engine == "neve" else self._by_spark())]

    def _by_neve(self) -> list[str]:
        """Return how Névé reads other rows."""
        wrong = difference(self.table.scan().to_arrow(engine="arrow"), self.rows())
        return [f"{OURS}: {wrong}"] if wrong else []

    def _by_spark(self) -> list[str]:
        if self.skips_for(self._faults_in_reading()):
            return []
        rows = self.rows()
        wrong = error_or_difference(lambda: self.shared_lake.spark.sql(f"SELECT * FROM {self.name}"), rows)
        return self._count_comparison(SPARK, wrong, rows)

    def _faults_in_reading(self) -> list[Fault]:
        return [f for f in faults_of(SPARK, self.table.context.iceberg) if f.statement == READ]

    def rows_by_readers(self) -> list[str]:
        """Return how the other readers read other rows; a reader with a known bug is skipped."""
        table, rows, wrong = for_peers(self.table), self.rows(), []
        for name in READERS:
            if not self.skips_for(faults_of(name, table)):
                wrong += self._count_comparison(
                    name, read_and_compare(name, table, self.shared_lake.duckdb, rows), rows
                )
        return wrong

    def _count_comparison(self, name: str, wrong: str, compared: Sized) -> list[str]:
        """Count a comparison with another engine if there was something to compare; return the difference."""
        if wrong:
            self.tally.wrong[name] += 1
            return [f"{name}: {wrong}"]
        if len(compared):
            self.tally.agreed[name] += 1
        return []

    # --- metadata ---

    def structure(self) -> list[str]:
        """Return how the engines show different snapshots, manifests and entries, and which claims do not hold."""
        table, found = self.table, []
        theirs, ours = by_spark(self.shared_lake.spark, self.name), by_neve(table)
        is_hidden = self.skips_for(f for f in faults_of(SPARK, table.context.iceberg) if not f.statement)
        for part in ("snapshots",) if is_hidden else PARTS:
            theirs_part, ours_part = getattr(theirs, part), getattr(ours, part)
            found += self._count_comparison(f"{SPARK}, {part}", describe_difference(theirs_part, ours_part), ours_part)
        return found + self._claims(
            StructureView(ours if is_hidden else theirs, table.context.metadata), OURS if is_hidden else SPARK
        )

    def _claims(self, view: StructureView, shown_by: str) -> list[str]:
        """Return the claims that do not hold in the metadata an engine shows; only one engine is involved."""
        found = []
        for claim in CLAIMS:
            results = claim(view)
            found += [f"{shown_by}: not {claim.__name__}: {wrong}" for wrong in results if wrong]
            if results:
                self.tally.other_figures[f"claims on what {shown_by} shows"] += 1
        return found

    def changed_row_ids(self) -> list[str]:
        """Return rows whose row ids changed since the last check, which is an error from version 3 on."""
        if self.table.context.metadata.format_version < 3:
            return []
        before, now = self.lineage, self._lineage_by_neve()
        self.lineage = now
        changed = {i: (was, now[i][0]) for i, (was, _) in before.items() if was is not None and i in now}
        return [f"row {i} had id {was}, has {has}" for i, (was, has) in changed.items() if was != has]

    def lineage_by_spark(self) -> list[str]:
        """Return how Spark reads other row ids and sequence numbers."""
        if self.table.context.metadata.format_version < 3 or self.skips_for(self._faults_in_reading()):
            return []
        columns = [*(field.name for field in self.table.schema.fields), ROW_ID, LAST_UPDATED]
        ours = self.table.scan(columns=columns).to_arrow(engine="arrow")
        query = f"SELECT *, {ROW_ID}, {LAST_UPDATED} FROM {self.name}"
        return self._count_comparison(
            f"{SPARK}, row lineage", error_or_difference(lambda: self.shared_lake.spark.sql(query), ours), ours
        )

    def _lineage_by_neve(self) -> Lineage:
        return _lineage(self.table.scan(columns=["id", ROW_ID, LAST_UPDATED]).to_arrow(engine="arrow"))

    def audit(self) -> list[str]:
        """Return the findings of the audit."""
        audit = self.table.verify()
        return [] if audit.is_sound else [str(audit)]

    @property
    def past(self) -> str:
        """The statements so far."""
        return "".join(f"\n  {line}" for line in self.log) + "\n"


def _lineage(rows: pa.Table) -> Lineage:
    return {row["id"]: (row[ROW_ID], row[LAST_UPDATED]) for row in rows.to_pylist()}
