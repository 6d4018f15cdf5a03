"""Random lives of tables: after every step a table equals a plain-Python model of it.

Steps are appends, statements and changes of columns, partitions, properties and format version. The model evaluates
the same statements by SQL's rules. From version 3 on every row keeps its id through whatever happens to it, and its
number moves only when it changes. At the end the past still reads as it was, the audit passes, and Spark and other
engines read the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import Phase, event, given, seed, settings
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import SparkSession

import neve
from neve import Lake, Table, UserError
from neve.ops.results import ChangeResult
from tests.peers.known_bugs import faults_of, is_read_by_spark
from tests.peers.readers import for_peers, pyiceberg_rows
from tests.peers.spark import Spark
from tests.support.coverage import IS_SEARCH
from tests.support.duckdb_reader import DuckDB
from tests.support.random_histories import Life, lives
from tests.support.random_steps import Append, Step
from tests.support.reference_engine import Finished
from tests.support.row_model import LAST_UPDATED, ROW_ID, Ambiguous, Model
from tests.support.spark_oracle import difference, kinds
from tests.support.spark_sessions import unadaptive

STEPS = 10
LIVES = 68 if IS_SEARCH else 4  # of each version; the first has no steps, so that twelve count in `make test`


@dataclass
class Told:
    """What a step must have done, as the model says."""

    updated: int = 0
    deleted: int = 0
    inserted: int = 0

    @classmethod
    def by(cls, before: list[int], model: Model) -> Told:
        """The difference between a model now and the rows it had before."""
        old, now = set(before), {id(line) for line in model.lines}
        changed = [line for line in model.lines if line.is_changed]
        return cls(
            updated=sum(id(line) in old for line in changed),
            deleted=len(old - now),
            inserted=sum(id(line) not in old for line in changed),
        )

    @property
    def is_nothing(self) -> bool:
        return not (self.updated or self.deleted or self.inserted)


@dataclass
class Lived:
    """A table and its model, step by step."""

    table: Table
    model: Model
    past: dict[int, pa.Table] = field(default_factory=dict)  # the rows of every snapshot

    def live(self, life: Life) -> None:
        for number, step in enumerate(life.steps, 1):
            try:
                self.take(step)
            except Exception as e:
                raise AssertionError(f"Step {number} of the life below, {step}:\n{e}") from e

    def take(self, step: Step) -> None:
        """One step, done and foreseen, and everything that must hold after it."""
        self.model.settled()
        before, head = [id(line) for line in self.model.lines], self._head()
        lines = list(self.model.lines)  # kept, so that no new row has the identity of one that is gone
        try:
            step.foresee(self.model)
        except Ambiguous:
            with pytest.raises(UserError, match="several rows of the source"):
                step.take(self.table)
            assert self._head() == head, "a statement that was refused made a snapshot"
            return
        result = step.take(self.table)
        self.table.refresh()
        assert len(lines) == len(before)
        self._check_rows()
        self._check_result(step, result, Told.by(before, self.model), head)
        self._check_lineage(head)
        if (now := self._head()) is not None and now != head:
            self.past[now] = self.model.arrow()

    def _head(self) -> int | None:
        head = self.table.refresh().context.head()
        return None if head is None else head.snapshot_id

    def _check_rows(self) -> None:
        found, wanted = self.table.scan().to_arrow(engine="arrow"), self.model.arrow()
        assert not (wrong := difference(found, wanted)), wrong
        assert kinds(found) == kinds(wanted)

    def _check_result(self, step: Step, result: ChangeResult | None, told: Told, head: int | None) -> None:
        if result is None:
            assert isinstance(step, Append) or self._head() == head, "a change of the table's shape made a snapshot"
            return
        assert (result.rows_updated, result.rows_deleted, result.rows_inserted) == (
            told.updated,
            told.deleted,
            told.inserted,
        ), "rows updated, deleted and inserted"
        assert (result.snapshot_id is None) == told.is_nothing, "a snapshot is made when some row changes, only then"
        assert self._head() == (head if told.is_nothing else result.snapshot_id)

    def _check_lineage(self, head: int | None) -> None:
        metadata = self.table.context.metadata
        if metadata.format_version < 3:
            return
        now = metadata.current_snapshot()
        commit = None if now is None or now.snapshot_id == head else now.sequence_number
        rows = self.table.scan(columns=[*self.model.names, ROW_ID, LAST_UPDATED]).to_arrow(engine="arrow")
        assert not (wrong := self.model.bind(rows.to_pylist(), commit)), wrong

    # --- at the end ---

    def check_end(self, duckdb: DuckDB) -> None:
        wanted = self.model.arrow()
        assert not (wrong := difference(self.table.scan().to_arrow(engine="spark"), wanted)), f"Spark: {wrong}"
        for snapshot_id, rows in self.past.items():
            found = self.table.scan(snapshot_id=snapshot_id).to_arrow(engine="arrow")
            assert not (wrong := difference(found, rows)), f"snapshot {snapshot_id} of the past: {wrong}"
        audit = self.table.verify()
        assert audit.is_sound, str(audit)
        self._ask_pyiceberg(wanted)
        self._ask_duckdb(duckdb, wanted)

    def _ask_pyiceberg(self, wanted: pa.Table) -> None:
        table = for_peers(self.table)
        if not _is_faulty("PyIceberg", table):
            assert not (wrong := difference(pyiceberg_rows(table), wanted)), f"PyIceberg: {wrong}"

    def _ask_duckdb(self, duckdb: DuckDB, wanted: pa.Table) -> None:
        table = for_peers(self.table)
        if not _is_faulty("DuckDB", table):
            assert not (wrong := difference(duckdb.rows(table.metadata_location), wanted)), f"DuckDB: {wrong}"


def _is_faulty(witness: str, table: IcebergTable) -> bool:
    """Whether an engine is known to do wrong with a table."""
    faults = faults_of(witness, table)
    for fault in faults:
        event(f"{witness} {fault.reason}")
    return bool(faults)


@pytest.fixture(scope="module")
def lake(tmp_path_factory, spark: SparkSession) -> Lake:
    return neve.connect(tmp_path_factory.mktemp("lives"), spark=unadaptive(spark))


@pytest.fixture(scope="module")
def finished() -> Finished:
    return Finished()


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return (f"db.t{number}" for number in count())


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_table_equals_its_model_after_every_step(
    lake: Lake, duckdb: DuckDB, finished: Finished, names: Iterator[str], version: int
):
    @settings(max_examples=LIVES, phases=set(Phase) - {Phase.explain})
    @given(life=lives(version, STEPS))
    def live(life: Life) -> None:
        start = life.start
        table = lake.create_table(next(names), start.ddl, start.terms, format_version=version)
        lived = Lived(table, Model(start.columns))
        lived.live(life)
        lived.check_end(duckdb)
        for_others = for_peers(lived.table)
        if is_read_by_spark(for_others):
            finished.keep(table.name, for_others.metadata_location, lived.model.arrow())

    (live if IS_SEARCH else seed(version)(live))()


def test_spark_with_iceberg_reads_the_same_rows(finished: Finished, other_spark: Spark):
    finished.check_by(other_spark)
