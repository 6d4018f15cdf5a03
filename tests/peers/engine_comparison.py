"""Plays statements on a table by several engines, and asks all of them what is in it."""

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
from tests.peers.duckdb_oracle import Plain
from tests.peers.known_bugs import READ, Fault, faults_in, faults_of
from tests.peers.metadata_structure import CLAIMS, PARTS, Look, by_neve, by_spark, unlike
from tests.peers.readers import CACHING_DUCKDB, READERS, duckdb_rows, for_peers
from tests.peers.spark import NAME as SPARK
from tests.peers.spark import Spark, SparkSaid
from tests.support.duckdb_reader import DuckDB
from tests.support.spark_oracle import difference

ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
OURS = "Névé"
NAMES = {"neve": OURS, "spark": SPARK}
Lineage = dict[Any, tuple[int | None, int | None]]


def answer(name: str, table: IcebergTable, duckdb: DuckDB, rows: pa.Table) -> str:
    """What a reader says of a table: an error, or how its rows are not those expected."""
    asked: dict[str, Callable[[], pa.Table]] = {
        "DuckDB": lambda: duckdb.rows(table.metadata_location),  # which may end its process
        CACHING_DUCKDB: lambda: duckdb_rows(table, caches=True),
    }
    return told(asked.get(name) or (lambda: READERS[name](table)), rows)


def told(read: Callable[[], pa.Table], rows: pa.Table) -> str:
    """What comes of reading: an error, or how the rows are not those expected."""
    try:
        found = read()
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # whatever it is, it is what this engine says; a panic of Rust is no Exception
        return f"{type(e).__name__}: {e}"
    return difference(found, rows)


@dataclass
class Ground:
    """One lake that Névé and Spark with Iceberg both work in, and a plain database that knows the answers."""

    lake: Lake
    spark: Spark
    duckdb: DuckDB
    plain: Plain = field(default_factory=Plain)
    names: Iterator[int] = field(default_factory=count)

    def table(self, tally: Tally, rows: Callable[[], pa.Table] | None = None) -> Played:
        """A table that is not there yet, with the rows it will hold; the plain database knows them unless said."""
        name = f"db.t{next(self.names)}"
        return Played(self, name, tally, rows or (lambda: self.plain.rows(name)))


@dataclass
class Played:
    """A table, what was done to it, and what others say of it."""

    ground: Ground
    name: str
    tally: Tally
    rows: Callable[[], pa.Table]  # it must hold
    said: list[str] = field(default_factory=list)
    lineage: Lineage = field(default_factory=dict)  # by the rows' own ids

    @property
    def table(self) -> Table:
        return self.ground.lake.table(self.name)

    def exported(self, when: str = "finally") -> Played:
        """The export of a table of version 4, known to the catalog under a name of its own."""
        name, location = f"{self.name}_{when}", self.table.export_metadata()
        self.ground.spark.sql(f"CALL system.register_table(table => '{name}', metadata_file => '{location}')")
        self.said.append(f"neve: exported as {name}")
        return replace(self, name=name)

    def play(self, statements: Iterable[tuple[str, str]], *, watched: bool = False) -> None:
        """Have statements run, each by the engine it is for, and by the plain database."""
        for engine, text in statements:
            self.said.append(f"{engine}: {text}")
            self.ground.plain.run(text)
            try:
                (self.ground.spark if engine == "spark" else self.ground.lake).sql(text)
                self.took(engine)
            except Exception as e:
                if not self._is_listed(text, e):
                    raise AssertionError(f"{self.past}{type(e).__name__}: {e}") from e
            if watched:
                self.check(self.rows_by("neve" if engine == "spark" else "spark"), self.lineage_kept())

    def took(self, engine: str) -> None:
        """Note that an engine has written to the table."""
        self.tally.told[f"steps by {NAMES[engine]}"] += 1

    def refuse(self, statement: str, fault: Fault) -> None:
        """Have Spark refuse a statement as it is known to: what would follow is left out."""
        with pytest.raises(SparkSaid, match=re.escape(fault.says)):
            self.ground.spark.sql(statement)
        self.is_left_out([fault])

    def _is_listed(self, statement: str, said: Exception) -> bool:
        """Whether Spark with Iceberg said what it is known to say."""
        if not isinstance(said, SparkSaid):
            return False
        return self.is_left_out(faults_in(statement, self.name, self.table.context.iceberg, str(said)))

    def is_left_out(self, faults: Iterable[Fault]) -> bool:
        """Whether there is a fault for which an engine is not asked; it is tallied."""
        reasons = [f"{fault.witness} {fault.reason}" for fault in faults]
        self.tally.left_out.update(reasons)
        return bool(reasons)

    def check(self, *found: list[str]) -> None:
        """Fail with everything that was found."""
        wrong = [line for lines in found for line in lines]
        assert not wrong, self.past + "\n".join(wrong)

    def check_all(self) -> None:
        """Everything, by everybody."""
        self.check(
            self.rows_by("neve", "spark"),
            self.rows_by_readers(),
            self.structure(),
            self.lineage_kept(),
            self.lineage_by_spark(),
            self.audit(),
        )

    # --- rows ---

    def rows_by(self, *engines: str) -> list[str]:
        """How the engines named read other rows than the plain database has."""
        return [line for engine in engines for line in (self._by_neve() if engine == "neve" else self._by_spark())]

    def _by_neve(self) -> list[str]:
        """Névé's own reading; no other engine is asked."""
        wrong = difference(self.table.scan().to_arrow(engine="arrow"), self.rows())
        return [f"{OURS}: {wrong}"] if wrong else []

    def _by_spark(self) -> list[str]:
        if self.is_left_out(self._faults_in_reading()):
            return []
        rows = self.rows()
        wrong = told(lambda: self.ground.spark.sql(f"SELECT * FROM {self.name}"), rows)
        return self._counted(SPARK, wrong, rows)

    def _faults_in_reading(self) -> list[Fault]:
        return [f for f in faults_of(SPARK, self.table.context.iceberg) if f.statement == READ]

    def rows_by_readers(self) -> list[str]:
        """How those who only read do so otherwise; one whose fault is listed is not asked."""
        table, rows, wrong = for_peers(self.table), self.rows(), []
        for name in READERS:
            if not self.is_left_out(faults_of(name, table)):
                wrong += self._counted(name, answer(name, table, self.ground.duckdb, rows), rows)
        return wrong

    def _counted(self, name: str, wrong: str, looked_at: Sized) -> list[str]:
        """A comparison with another engine: counted when it had something to look at, told when something is wrong."""
        if wrong:
            self.tally.wrong[name] += 1
            return [f"{name}: {wrong}"]
        if len(looked_at):
            self.tally.agreed[name] += 1
        return []

    # --- what lies below ---

    def structure(self) -> list[str]:
        """How the engines see other snapshots, manifests and entries, and how those are not as they must be."""
        table, found = self.table, []
        theirs, ours = by_spark(self.ground.spark, self.name), by_neve(table)
        hidden = self.is_left_out(f for f in faults_of(SPARK, table.context.iceberg) if not f.statement)
        for part in ("snapshots",) if hidden else PARTS:
            seen, known = getattr(theirs, part), getattr(ours, part)
            found += self._counted(f"{SPARK}, {part}", unlike(seen, known), known)
        return found + self._claims(Look(ours if hidden else theirs, table.context.metadata), OURS if hidden else SPARK)

    def _claims(self, look: Look, shown_by: str) -> list[str]:
        """What must hold in what an engine shows, and does not; no comparison, as there is one engine in it."""
        found = []
        for claim in CLAIMS:
            said = claim(look)
            found += [f"{shown_by}: not {claim.__name__}: {wrong}" for wrong in said if wrong]
            if said:
                self.tally.told[f"claims on what {shown_by} shows"] += 1
        return found

    def lineage_kept(self) -> list[str]:
        """How rows changed their ids since the last look, which they may not from version 3 on."""
        if self.table.context.metadata.format_version < 3:
            return []
        before, now = self.lineage, self._lineage_by_neve()
        self.lineage = now
        changed = {i: (was, now[i][0]) for i, (was, _) in before.items() if was is not None and i in now}
        return [f"row {i} had id {was}, has {has}" for i, (was, has) in changed.items() if was != has]

    def lineage_by_spark(self) -> list[str]:
        """How Spark sees other row ids and numbers."""
        if self.table.context.metadata.format_version < 3 or self.is_left_out(self._faults_in_reading()):
            return []
        columns = [*(field.name for field in self.table.schema.fields), ROW_ID, LAST_UPDATED]
        ours = self.table.scan(columns=columns).to_arrow(engine="arrow")
        query = f"SELECT *, {ROW_ID}, {LAST_UPDATED} FROM {self.name}"
        return self._counted(f"{SPARK}, row lineage", told(lambda: self.ground.spark.sql(query), ours), ours)

    def _lineage_by_neve(self) -> Lineage:
        return _lineage(self.table.scan(columns=["id", ROW_ID, LAST_UPDATED]).to_arrow(engine="arrow"))

    def audit(self) -> list[str]:
        """What the audit finds."""
        audit = self.table.verify()
        return [] if audit.is_sound else [str(audit)]

    @property
    def past(self) -> str:
        """What was done so far."""
        return "".join(f"\n  {line}" for line in self.said) + "\n"


def _lineage(rows: pa.Table) -> Lineage:
    return {row["id"]: (row[ROW_ID], row[LAST_UPDATED]) for row in rows.to_pylist()}
