"""Test of the tests: each harness finds a bug that is planted in the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neve.catalog import metadata_files, sql
from neve.catalog.base import NeveCatalog
from neve.commit import protocol, rules
from neve.commit.isolation import Isolation
from neve.commit.outcome import Rejected, Unknown
from neve.errors import NeveError
from neve.io import files as io_files
from neve.io.deletion_vectors import PositionSet
from neve.io.puffin import pack_vectors
from neve.run.write import data_files as durable
from neve.run.write import delete_files as deletes
from tests.proof.audit import audit, lake_in
from tests.proof.faults import Fault, Kind, run_forked
from tests.proof.operation_pairs import PAIRS, PairTable
from tests.proof.operations import RestorableLake
from tests.proof.random_operations import OperationSequence, RandomRun
from tests.proof.replay import replay
from tests.proof.results_ledger import Tally, new_tally
from tests.proof.statements_without_spark import Statement, StatementWriter, open_table, rows_of, where
from tests.proof.test_power_cut import cut
from tests.proof.test_storage_faults import check_error_and_files
from tests.proof.test_unreliable_catalog import check_response
from tests.support.expressions import Column, Comparison, Literal
from tests.support.random_histories import Life
from tests.support.random_steps import Append, Delete, How, Shape
from tests.support.row_model import ColumnDef

Faulty = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def tally():
    """Count the planted bugs that were found."""
    with new_tally("planted faults are found by their harness") as tally:
        yield tally


def expect_found(tally: Tally, find: Callable[[], Any]) -> None:
    """Check that a harness finds the planted bug: an assertion fails, or the table cannot be read."""
    tally.cases += 1
    with pytest.raises((AssertionError, NeveError)):
        find()
    tally.figure("found")


class TestCrashes:
    def sweep(self, case_lake: RestorableLake, verb: str, kinds: frozenset[Kind]) -> None:
        before, after = case_lake.states(verb)
        steps = case_lake.steps(verb)
        for at in (at for at, step in enumerate(steps, 1) if step.kind in kinds):
            case_lake.restore(verb)
            ended = run_forked(lambda: case_lake.run(verb), Fault(at=at))
            audit(case_lake.folder, before, after, acknowledged=ended.acknowledged)

    def test_metadata_written_after_the_swap(self, restorable_lake, tally: Tally, monkeypatch: Faulty):
        move = sql.SqlCatalogMixin._swap_location
        write = metadata_files.write_metadata
        monkeypatch.setattr(sql, "write_metadata", lambda io, location, metadata: None)

        def moved(catalog: Any, identifier: Any, staged: Any, updates: Any = ()) -> None:
            move(catalog, identifier, staged, updates)
            write(catalog._load_file_io({}, staged.location), staged.location, staged.metadata)

        monkeypatch.setattr(sql.SqlCatalogMixin, "_swap_location", moved)
        kinds = frozenset({Kind.CREATE, Kind.COMMITTED})
        expect_found(tally, lambda: self.sweep(restorable_lake(2), "append", kinds))

    def test_expired_files_deleted_before_the_swap(self, restorable_lake, tally: Tally, monkeypatch: Faulty):
        from neve.ops.maintenance import expire_snapshots as verb

        land = verb.commit_updates

        def early(context: Any, change: Any, doing: str) -> None:
            requirements, updates = change(context)
            after = verb.apply_updates(context.metadata, updates)
            left = verb.find_unreachable_files(context.io, context.metadata, after)
            verb.delete_reachable_files(context.io, left.in_deletion_order, verb.roots_of(context.metadata))
            land(context, lambda state: (requirements, updates), doing)

        monkeypatch.setattr(verb, "commit_updates", early)
        kinds = frozenset({Kind.COMMIT})
        expect_found(tally, lambda: self.sweep(restorable_lake(3), "expire_snapshots", kinds))


class TestPower:
    @pytest.mark.parametrize("module", [durable, io_files], ids=lambda m: m.__name__)
    def test_a_sync_that_is_left_out(
        self, restorable_lake, tally: Tally, monkeypatch: Faulty, tmp_path: Path, module: Any
    ):
        case_lake = restorable_lake(3)
        before, after = case_lake.states("append")
        case_lake.restore("append")
        monkeypatch.setattr(module, "fsync_paths", lambda *paths: None)

        def run() -> None:
            acknowledged, _ = cut(case_lake, "append", 10_000, tmp_path / "journal", None)
            audit(case_lake.folder, before, after, acknowledged=acknowledged)

        expect_found(tally, run)


class TestStorage:
    def test_an_error_of_the_disk_that_is_swallowed(self, restorable_lake, tally: Tally, monkeypatch: Faulty):
        case_lake = restorable_lake(2)
        before, after = case_lake.states("append")
        case_lake.restore("append")
        written = io_files._write_synced

        def careless(path: str, data: bytes) -> None:
            try:
                written(path, data)
            except OSError:
                Path(path).write_bytes(data[: len(data) // 2])

        monkeypatch.setattr(io_files, "_write_synced", careless)
        steps = run_forked(lambda: case_lake.run("append")).steps
        at = next(n for n, step in enumerate(steps, 1) if step.kind is Kind.SYNC and step.path.endswith(".part"))

        def run() -> None:
            case_lake.restore("append")
            ended = run_forked(lambda: case_lake.run("append"), Fault(at, errno=5))
            check_error_and_files(case_lake, ended, Kind.SYNC, "append")
            audit(case_lake.folder, before, after, acknowledged=ended.acknowledged)

        expect_found(tally, run)


class TestAnswers:
    def test_an_unknown_outcome_taken_for_a_rejection(self, restorable_lake, tally: Tally, monkeypatch: Faulty):
        case_lake = restorable_lake(3)
        run = protocol._Commit.run

        def hasty(job: Any) -> Any:
            outcome = run(job)
            return Rejected((), job.written_files.all_paths) if isinstance(outcome, Unknown) else outcome

        monkeypatch.setattr(protocol._Commit, "run", hasty)
        monkeypatch.setattr(protocol._Commit, "landed_snapshot", lambda job, base: None)
        expect_found(
            tally, lambda: check_response(case_lake, "append", ("after",), case_lake.states("append"), Tally(""))
        )

    def test_metadata_of_a_change_that_landed_deleted(self, restorable_lake, tally: Tally, monkeypatch: Faulty):
        case_lake = restorable_lake(2)
        swap = NeveCatalog.commit_table

        def hasty(catalog: Any, table: Any, requirements: Any, updates: Any) -> Any:
            try:
                return swap(catalog, table, requirements, updates)
            except Exception:
                table.io.delete(catalog.load_table(table.name()).metadata_location)
                raise

        monkeypatch.setattr(NeveCatalog, "commit_table", hasty)
        states = case_lake.states("rollback")
        expect_found(tally, lambda: check_response(case_lake, "rollback", ("twice",), states, Tally("")))


class TestInterleavings:
    @pytest.mark.parametrize("name", ["append, delete", "delete, update of the row", "update copied, delete"])
    def test_a_rule_that_is_left_out(self, tally: Tally, monkeypatch: Faulty, tmp_path: Path, name: str):
        pair = PAIRS[name]
        table = PairTable(tmp_path / "lake", 2)
        monkeypatch.setattr(rules, "rules_of", lambda action, has_parent=True: rules.INPUT_RULES)

        def run() -> None:
            for order in ("ABBBBBAAAA", "BAAAAABBBB"):  # one has read the table before the other lands
                table.run_order(pair, order, Isolation.SERIALIZABLE)

        expect_found(tally, run)


class TestReplay:
    def test_an_update_that_was_lost(self, restorable_lake, tally: Tally):
        """A history in which one acknowledged statement is not there."""
        case_lake = restorable_lake(2)
        case_lake.restore("append")
        table = open_table(lake_in(case_lake.folder))
        start, rows = table.context.head().snapshot_id, rows_of(table)
        one = Statement("update", where(("region", "=", "eu")), add=1)
        other = Statement("update", where(("region", "=", "us")), add=1)
        StatementWriter(table).do(one, "one")
        replay(table, start, rows, {"one": one}, {"one"}, set())
        expect_found(tally, lambda: replay(table, start, rows, {"one": one, "two": other}, {"one", "two"}, set()))
        expect_found(tally, lambda: replay(table, start, rows, {"one": other}, {"one"}, set()))
        assert isinstance(rows, Counter)


class TestMachine:
    def test_a_deleted_row_that_stays(self, tally: Tally, monkeypatch: Faulty, tmp_path: Path):
        """Vectors that lose their last position."""
        columns = (ColumnDef("id", "bigint", 1), ColumnDef("s", "string", 2))
        rows = tuple({"id": number, "s": "🙂"} for number in range(5))
        gone = Delete(Comparison("<", Column("id"), Literal(2, "bigint")), How("merge-on-read"))
        life = Life(Shape(3, columns), (Append(columns, rows), gone))
        RandomRun(tmp_path / "sound", OperationSequence(life, life.steps)).run()

        def less(vectors: Any) -> Any:
            return pack_vectors((name, PositionSet.of(some.positions().tolist()[:-1])) for name, some in vectors)

        monkeypatch.setattr(deletes, "pack_vectors", less)
        expect_found(tally, RandomRun(tmp_path / "faulty", OperationSequence(life, life.steps)).run)
