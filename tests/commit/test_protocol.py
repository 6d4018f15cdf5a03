"""Attempts and outcomes: lost races, lost answers, stale reads, clocks and ids, and what is left on disk afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from neve.catalog.sql import EmbeddedCatalog
from neve.catalog.swap import CatalogUnavailable, LostRace, MaybeSwapped, SwapStatus
from neve.commit.actions import Append, DeleteFiles, RewriteFiles, RowDelta
from neve.commit.environment import Environment, Phase, retry_wait_seconds
from neve.commit.outcome import Check, Committed, Rejected, Unknown, require_committed
from neve.errors import CommitConflict, CommitUnknown, TableError, UnsupportedFeature, UserError
from neve.model.properties import properties_of
from neve.tree.read import manifests_of
from tests.support.metadata_tables import Kit, plus, removed
from tests.support.two_writers import Interruption


@pytest.fixture(params=[1, 3], ids=["v1", "v3"])
def t(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    kit = Kit.create(tmp_path, request.param)
    kit.ok(Append(kit.data("a"), fast=True))
    return kit


def during(kit: Kit, phase: Phase, *steps: Callable[[], Any]) -> Environment:
    """An environment in which something else happens the first times a phase is reached."""
    return replace(kit.environment, observe=Interruption(list(steps), phase).observe)


def orphans(t: Kit) -> set[str]:
    """Files on disk that no snapshot and no metadata log entry reaches."""
    needed = {t.table.metadata_location, *(e.metadata_file for e in t.metadata.metadata_log)}
    for snapshot in t.metadata.snapshots:
        needed.add(snapshot.tree_root_location)
        needed |= {m.file for m in manifests_of(t.io, t.metadata, snapshot)}
    root = f"{t.location}/"
    return t.files_on_disk() - {path.removeprefix(root) for path in needed}


@dataclass
class Faulty:
    """A catalog in front of the real one that lies about swaps and shows old metadata."""

    real: EmbeddedCatalog
    swaps: list[str] = field(
        default_factory=list
    )  # how the next swaps go: ok, lands-lost, lands-unknown, unknown, down
    stale_reads: int = 0
    fates: list[SwapStatus] = field(default_factory=list)
    seen: Table | None = None
    unreadable: bool = False  # once a swap was asked for

    def load_table(self, name: Any) -> Table:
        if self.unreadable and self.seen is not None:
            raise TableError("Cannot ask the catalog.")
        if self.stale_reads and self.seen is not None:
            self.stale_reads -= 1
            return self.seen
        return self.real.load_table(name)

    def refresh_table(self, table: Table) -> Table:
        return self.load_table(table.name())

    def swap(self, table: Table, requirements: Any, updates: Any) -> Any:
        how = self.swaps.pop(0) if self.swaps else "ok"
        if how == "down":
            raise CatalogUnavailable("The catalog is down.")
        self.seen = table
        done = self.real.swap(table, requirements, updates) if how in ("ok", "lands-lost", "lands-unknown") else None
        if how == "ok":
            return done
        if how == "lands-lost":
            raise LostRace("Another writer was faster, it says.", done.metadata_location)
        location = done.metadata_location if done else "file:///nowhere.metadata.json"
        raise MaybeSwapped("No answer.", table.name(), table.metadata, table.metadata_location, location, updates)

    def swap_status(self, unknown: MaybeSwapped) -> SwapStatus:
        return self.fates.pop(0) if self.fates else self.real.swap_status(unknown)


class TestLostRaces:
    def test_a_lost_race_is_tried_again_and_both_commits_land(self, t: Kit):
        other = Append(t.data("theirs"), fast=True)
        outcome = t.ok(Append(t.data("mine")), environment=during(t, Phase.SWAP, lambda: t.ok(other)))
        assert outcome.attempts == 2
        assert t.names() == {"a", "theirs", "mine"}
        assert orphans(t) == set()

    def test_checks_run_again_on_every_attempt(self, tmp_path: Path):
        t = Kit.create(tmp_path)
        a = t.data("a")
        t.ok(Append(a))
        action = RewriteFiles(removed(a), t.data("b"), start_snapshot_id=t.head_id)
        theirs = RowDelta(added_deletes=t.positions("d", of=a))
        outcome = t.commit(action, environment=during(t, Phase.SWAP, lambda: t.ok(theirs)))
        assert isinstance(outcome, Rejected)
        assert (outcome.conflicts[0].rule, outcome.attempts) == (Check.NEW_DELETES_FOR_FILES, 2)
        assert outcome.written and orphans(t) == set()

    def test_manifests_of_the_first_attempt_are_used_again(self, t: Kit):
        t.ok(Append(t.data("x", "y"), fast=True))
        written: list[set[str]] = []
        environment = during(
            t,
            Phase.SWAP,
            lambda: (t.ok(Append(t.data("theirs"), fast=True)), written.append(t.files_on_disk())),
            lambda: written.append(t.files_on_disk()),
        )
        t.ok(DeleteFiles(removed(t.data("x"))), environment=environment)
        first, second = (sorted(f for f in files if "-m" in f.rsplit("/", 1)[-1]) for files in written)
        assert first == second, "the second attempt writes a manifest list only"
        assert t.names() == {"a", "y", "theirs"} and orphans(t) == set()

    def test_attempts_run_out(self, t: Kit):
        t.set(commit__retry__num_retries="2")
        steps = [lambda i=i: t.ok(Append(t.data(f"their{i}"), fast=True)) for i in range(5)]
        outcome = t.commit(Append(t.data("mine")), environment=during(t, Phase.SWAP, *steps))
        assert isinstance(outcome, Rejected)
        assert (outcome.conflicts[0].rule, outcome.attempts) == (Check.ATTEMPTS, 3)
        assert "mine" not in t.names() and orphans(t) == set()

    def test_time_runs_out(self, t: Kit):
        t.set(commit__retry__total_timeout_ms="1000")
        clock = iter(range(0, 10**9, 600))
        environment = during(t, Phase.SWAP, *[lambda i=i: t.ok(Append(t.data(f"o{i}"), fast=True)) for i in range(9)])
        outcome = t.commit(Append(t.data("mine")), environment=replace(environment, now_ms=lambda: next(clock)))
        assert isinstance(outcome, Rejected) and outcome.attempts < 5

    def test_a_commit_to_another_branch_in_between_is_no_conflict(self, t: Kit):
        """It uses up a sequence number and row ids, so the snapshot is made anew on the same parent."""
        t.branch("side")
        side = Append(t.data("side"), fast=True)
        outcome = t.ok(Append(t.data("mine")), environment=during(t, Phase.SWAP, lambda: t.ok(side, branch="side")))
        assert outcome.attempts == (1 if t.metadata.format_version == 1 else 2)
        assert t.names() == {"a", "mine"} and t.names(branch="side") == {"a", "side"}
        assert orphans(t) == set()

    @pytest.mark.parametrize("version", [1, 2])
    def test_an_upgrade_in_between_is_no_conflict(self, tmp_path: Path, version: int):
        """The snapshot is made anew, with what the new version asks for."""
        t = Kit.create(tmp_path, version)
        outcome = t.ok(Append(t.data("mine")), environment=during(t, Phase.SWAP, lambda: t.upgrade(version + 1)))
        assert (outcome.attempts, t.metadata.format_version) == (2, version + 1)
        assert t.names() == {"mine"} and orphans(t) == set()

    def test_waits_double_up_to_the_limit(self):
        properties = properties_of({"commit.retry.min-wait-ms": "100", "commit.retry.max-wait-ms": "500"})
        assert [retry_wait_seconds(n, properties, 1000, 1.0) for n in (1, 2, 3, 4, 5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
        assert retry_wait_seconds(1, properties, 1000, 0.0) == 0.05
        assert retry_wait_seconds(5000, properties, 1000, 1.0) == 0.5

    def test_waits_follow_how_long_an_attempt_takes(self):
        assert retry_wait_seconds(9, properties_of({}), 30, 1.0) == 0.24
        assert retry_wait_seconds(9, properties_of({}), 0, 1.0) == 0.1

    def test_a_table_that_states_no_retries_is_patient(self):
        assert (properties_of({}).commit_retries, properties_of({"commit.retry.num-retries": "4"}).commit_retries) == (
            100,
            4,
        )


class TestLostAnswers:
    def commit(self, t: Kit, faulty: Faulty, **options: Any) -> Any:
        kit = replace(t, catalog=faulty)
        return kit.commit(Append(t.data("mine"), fast=True), **options)

    def test_a_swap_that_landed_without_an_answer_is_found(self, t: Kit):
        outcome = self.commit(t, Faulty(t.catalog, ["lands-unknown"]))
        assert isinstance(outcome, Committed) and outcome.snapshot_id == t.head_id
        assert outcome.location == t.table.metadata_location
        assert t.names() == {"a", "mine"} and orphans(t) == set()

    def test_a_swap_that_provably_never_landed_is_tried_again(self, t: Kit):
        outcome = self.commit(t, Faulty(t.catalog, ["unknown"]))
        assert isinstance(outcome, Committed) and outcome.attempts == 2
        assert t.names() == {"a", "mine"} and orphans(t) == set()

    def test_a_swap_that_nobody_can_tell_about_keeps_every_file(self, t: Kit):
        waits: list[float] = []
        faulty = Faulty(t.catalog, ["unknown"], fates=[SwapStatus.OPEN] * 9)
        outcome = self.commit(t, faulty, environment=replace(t.environment, sleep=waits.append))
        assert isinstance(outcome, Unknown)
        assert t.names() == {"a"}
        assert len(orphans(t)) == 2, "the manifest and the list may be needed yet"
        assert waits == [1.0, 2.0, 4.0], "it looked four times, by the properties of status checks"
        with pytest.raises(CommitUnknown, match=str(outcome.snapshot_id)):
            require_committed(outcome)

    def test_an_answer_found_late_counts(self, t: Kit):
        outcome = self.commit(t, Faulty(t.catalog, ["lands-unknown"], fates=[SwapStatus.OPEN]))
        assert isinstance(outcome, Committed) and t.names() == {"a", "mine"}

    @pytest.mark.parametrize("stale_reads", [0, 1, 2, 3])
    def test_a_landed_swap_reported_as_lost_is_recognised_after_stale_reads(self, t: Kit, stale_reads: int):
        faulty = Faulty(t.catalog, ["lands-lost"], stale_reads=stale_reads)
        outcome = self.commit(t, faulty)
        assert isinstance(outcome, Committed) and outcome.snapshot_id == t.head_id
        assert t.names() == {"a", "mine"}
        assert len(t.metadata.snapshots) == 2, "it landed once"
        assert orphans(t) == set()

    def test_a_landed_swap_reported_as_lost_is_recognised_when_attempts_are_over(self, t: Kit):
        t.set(commit__retry__num_retries="0")
        outcome = self.commit(t, Faulty(t.catalog, ["lands-lost"]))
        assert isinstance(outcome, Committed) and t.names() == {"a", "mine"}

    def test_a_catalog_that_is_down_for_a_moment_is_asked_again(self, t: Kit):
        outcome = self.commit(t, Faulty(t.catalog, ["down", "down"]))
        assert isinstance(outcome, Committed) and outcome.attempts == 3

    def test_a_catalog_that_stays_down_rejects_and_leaves_nothing(self, t: Kit):
        t.set(commit__retry__num_retries="4")
        outcome = self.commit(t, Faulty(t.catalog, ["down"] * 9))
        assert isinstance(outcome, Rejected) and outcome.conflicts[0].rule is Check.ATTEMPTS
        assert "The catalog is down" in outcome.conflicts[0].message
        assert orphans(t) == set()


class TestErrors:
    @pytest.mark.parametrize("phase", [Phase.REFRESH, Phase.CHECK, Phase.DRAFT, Phase.LIST])
    def test_an_error_before_the_swap_leaves_nothing(self, t: Kit, phase: Phase):
        def fail() -> None:
            raise OSError("disk full")

        before = t.files_on_disk()
        with pytest.raises(OSError, match="disk full"):
            t.commit(Append(t.data("mine")), environment=during(t, phase, fail))
        assert t.files_on_disk() == before and t.names() == {"a"}

    def test_an_error_during_the_swap_deletes_nothing(self, t: Kit, monkeypatch: pytest.MonkeyPatch):
        def dies(*arguments: Any) -> None:
            raise KeyboardInterrupt

        before = t.files_on_disk()
        with monkeypatch.context() as patched:
            patched.setattr(t.catalog, "swap", dies)
            with pytest.raises(KeyboardInterrupt):
                t.commit(Append(t.data("mine")))
        assert len(t.files_on_disk() - before) == 2

    def test_an_error_after_the_swap_deletes_nothing(self, t: Kit):
        def fail() -> None:
            raise OSError("gone")

        with pytest.raises(OSError, match="gone"):
            t.commit(Append(t.data("mine")), environment=during(t, Phase.SWAPPED, fail))
        assert t.names() == {"a", "mine"} and orphans(t) == set()

    def test_rejections_become_errors_of_the_right_kind(self, t: Kit):
        wrong_input = t.commit(Append(t.data("x").with_columns(spec_id=99)))
        with pytest.raises(UserError, match="spec 99"):
            require_committed(wrong_input, "append")
        gone = t.commit(RewriteFiles(removed(t.data("never")), t.data("x")))
        with pytest.raises(CommitConflict, match=r"never.parquet") as caught:
            require_committed(gone, "compaction")
        assert caught.value.conflicts[0].rule is Check.MISSING_FILES

    def test_a_change_the_catalog_cannot_make_is_not_tried_again(self, t: Kit, monkeypatch: pytest.MonkeyPatch):
        asked: list[Any] = []

        def refuses(*arguments: Any) -> None:
            asked.append(arguments)
            raise UnsupportedFeature("This catalog cannot commit.")

        before = t.files_on_disk()
        monkeypatch.setattr(t.catalog, "swap", refuses)
        with pytest.raises(UnsupportedFeature, match="cannot commit"):
            t.commit(Append(t.data("mine")))
        assert len(asked) == 1 and t.files_on_disk() == before


class TestOwnedFiles:
    """Files written for a commit: it alone knows whether the table may need them."""

    @pytest.fixture
    def mine(self, t: Kit) -> str:
        path = t.path("mine")
        with t.io.new_output(path).create() as stream:
            stream.write(b"rows")
        return path

    def commit(self, t: Kit, mine: str, catalog: Faulty | None = None, **options: Any) -> Any:
        kit = t if catalog is None else replace(t, catalog=catalog)
        return kit.commit(Append(t.data("mine")), files_of_this_commit=[mine], **options)

    def test_they_stay_when_the_commit_lands(self, t: Kit, mine: str):
        assert isinstance(self.commit(t, mine), Committed)
        assert t.io.new_input(mine).exists()

    def test_they_go_with_a_rejected_commit(self, t: Kit, mine: str):
        rejected = t.commit(RewriteFiles(removed(t.data("never")), t.data("mine")), files_of_this_commit=[mine])
        assert isinstance(rejected, Rejected)
        assert orphans(t) == set()

    def test_they_go_when_the_commit_fails_before_a_swap(self, t: Kit, mine: str):
        with pytest.raises(UserError, match="nowhere"):
            self.commit(t, mine, branch="nowhere")
        assert orphans(t) == set()

    def test_they_stay_when_nobody_can_tell(self, t: Kit, mine: str):
        assert isinstance(self.commit(t, mine, Faulty(t.catalog, ["unknown"], fates=[SwapStatus.OPEN] * 9)), Unknown)
        assert t.io.new_input(mine).exists()

    def test_they_stay_when_the_swap_dies(self, t: Kit, mine: str, monkeypatch: pytest.MonkeyPatch):
        def dies(*arguments: Any) -> None:
            raise TableError("The connection broke.")

        monkeypatch.setattr(t.catalog, "swap", dies)
        with pytest.raises(TableError, match="broke"):
            self.commit(t, mine)
        assert t.io.new_input(mine).exists()

    def test_they_stay_when_the_table_cannot_be_read_after_the_commit_was_seen_in_it(self, t: Kit, mine: str):
        faulty = Faulty(t.catalog, ["lands-unknown"], unreadable=True)
        outcome = self.commit(t, mine, faulty)
        assert outcome == Committed(t.head_id, t.table.metadata_location, 1)
        assert t.io.new_input(mine).exists() and t.names() == {"a", "mine"}

    def test_they_stay_when_a_swap_is_reported_as_lost_and_nobody_can_look(self, t: Kit, mine: str):
        t.set(commit__retry__num_retries="0")
        with pytest.raises(TableError):
            self.commit(t, mine, Faulty(t.catalog, ["lands-lost"], unreadable=True))
        assert t.io.new_input(mine).exists() and t.names() == {"a", "mine"}


class TestClocksAndIds:
    def test_a_taken_snapshot_id_is_not_used_again(self, t: Kit):
        ids = iter([t.head_id, 4711])
        outcome = t.ok(Append(t.data("mine")), environment=replace(t.environment, snapshot_id=lambda: next(ids)))
        assert outcome.snapshot_id == 4711
        assert set(t.live()["snapshot_id"].to_pylist()) == {4711, t.metadata.snapshots[0].snapshot_id}

    def test_an_id_taken_between_two_attempts_is_given_up(self, t: Kit):
        mine, theirs = iter([4711, 4712]), replace(t.environment, snapshot_id=lambda: 4711)
        environment = during(t, Phase.SWAP, lambda: t.ok(Append(t.data("theirs"), fast=True), environment=theirs))
        outcome = t.ok(Append(t.data("mine")), environment=replace(environment, snapshot_id=lambda: next(mine)))
        assert outcome.snapshot_id == 4712
        assert t.names() == {"a", "theirs", "mine"} and orphans(t) == set()

    def test_history_never_goes_back_in_time(self, t: Kit):
        for now in (5, t.metadata.last_updated_ms + 600_000, 7, 7):
            t.ok(Append(t.data(f"at{now}"), fast=True), environment=replace(t.environment, now_ms=lambda now=now: now))
        times = [s.timestamp_ms for s in t.metadata.snapshots]
        assert times == sorted(set(times))

    def test_phases_come_in_order(self, t: Kit):
        seen: list[Phase] = []
        watch = replace(t.environment, observe=lambda phase, attempt: seen.append(phase))
        t.ok(Append(t.data("mine")), environment=watch)
        assert seen == [Phase.REFRESH, Phase.CHECK, Phase.DRAFT, Phase.LIST, Phase.SWAP, Phase.SWAPPED, Phase.CLEAN]


class TestBranches:
    def test_a_commit_moves_its_own_branch_only(self, t: Kit):
        t.branch("side")
        t.ok(Append(t.data("b")), branch="side")
        assert t.names() == {"a"} and t.names(branch="side") == {"a", "b"}
        assert t.head("side").parent_snapshot_id == t.head_id

    def test_commits_to_two_branches_at_once_both_land(self, t: Kit):
        t.branch("side")
        theirs = Append(t.data("theirs"), fast=True)
        environment = during(t, Phase.SWAP, lambda: t.ok(theirs, branch="side"))
        assert t.ok(Append(t.data("mine"), fast=True), environment=environment).attempts <= 2
        assert (t.names(), t.names(branch="side")) == ({"a", "mine"}, {"a", "theirs"})
        if t.metadata.format_version >= 3:
            taken = [i for b in ("main", "side") for i in t.live(branch=b)["first_row_id"].to_pylist()]
            assert sorted(set(taken)) == [0, 10, 20], "rows of the two branches share no id"
            assert len({s.sequence_number for s in t.metadata.snapshots}) == 3

    def test_retention_of_the_branch_is_kept(self, t: Kit):
        from pyiceberg.table.update import SetSnapshotRefUpdate

        move = SetSnapshotRefUpdate(
            ref_name="side", type="branch", snapshot_id=t.head_id, min_snapshots_to_keep=7, max_snapshot_age_ms=1000
        )
        t.update(move)
        t.ok(Append(t.data("b")), branch="side")
        ref = t.metadata.refs["side"]
        assert (ref.min_snapshots_to_keep, ref.max_snapshot_age_ms) == (7, 1000)

    def test_a_tag_does_not_move(self, t: Kit):
        t.branch("v1", kind="tag")
        with pytest.raises(UserError, match=r"'v1'.*tag"):
            t.commit(Append(t.data("b")), branch="v1")

    def test_main_begins_with_the_first_commit(self, tmp_path: Path):
        t = Kit.create(tmp_path)
        assert t.head() is None
        t.ok(RowDelta(t.data("a"), start_snapshot_id=None, no_conflicting_data=True, no_conflicting_deletes=True))
        assert t.head().parent_snapshot_id is None and t.names() == {"a"}


class TestVectors:
    @pytest.fixture
    def t(self, tmp_path: Path) -> Kit:
        return Kit.create(tmp_path, 3)

    def test_vectors_of_one_file_in_one_delta_are_united(self, t: Kit):
        a, b = t.data("a"), t.data("b", spec=1)
        t.ok(Append(plus(a, b)))
        vectors = plus(t.vector("v1", a, [1, 5]), t.vector("v2", a, [5, 9]), t.vector("v3", b, [0]))
        t.ok(RowDelta(added_deletes=vectors))
        assert t.deleted_positions() == {"a": [1, 5, 9], "b": [0]}
        assert t.summary()["added-dvs"] == "2" and t.summary()["added-position-deletes"] == "4"

    def test_vectors_that_disagree_about_their_file_are_refused(self, t: Kit):
        a = t.data("a")
        t.ok(Append(a))
        elsewhere = t.vector("v2", a, [2]).with_columns(p1000=["us"])
        t.refused(RowDelta(added_deletes=plus(t.vector("v1", a, [1]), elsewhere)), Check.ARGUMENTS)
        other_spec = t.vector("v3", a, [2]).with_columns(spec_id=1)
        t.refused(RowDelta(added_deletes=plus(t.vector("v4", a, [1]), other_spec)), Check.ARGUMENTS)
        numbered = t.vector("v5", a, [2]).with_columns(sequence_number=1)
        t.refused(RowDelta(added_deletes=plus(t.vector("v6", a, [1]), numbered)), Check.ARGUMENTS)

    def test_the_united_file_is_written_once_and_removed_after_a_rejection(self, t: Kit):
        t.set(commit__retry__num_retries="1")
        a = t.data("a")
        t.ok(Append(a))
        vectors = plus(t.vector("v1", a, [1]), t.vector("v2", a, [2]))
        before = {f for f in t.files_on_disk() if f.endswith(".puffin")}
        steps = [lambda i=i: t.ok(Append(t.data(f"o{i}"), fast=True)) for i in range(2)]
        counted: list[int] = []
        environment = during(t, Phase.SWAP, *steps)
        watch = environment.observe

        def observe(phase: Phase, attempt: int) -> None:
            watch(phase, attempt)
            counted.append(len([f for f in t.files_on_disk() if f.endswith(".puffin")]) - len(before))

        outcome = t.commit(RowDelta(added_deletes=vectors), environment=replace(environment, observe=observe))
        assert isinstance(outcome, Rejected)
        assert max(counted) == 1
        assert {f for f in t.files_on_disk() if f.endswith(".puffin")} == before
