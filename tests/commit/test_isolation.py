"""Commands at both isolation levels beside another commit: who waits for whom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.expressions import EqualTo

from neve.commit.actions import Action, Append, DeleteFiles, Overwrite, ReplacePartitions, RewriteFiles, RowDelta
from neve.commit.isolation import Isolation, RowCommand, isolation_of, with_conflict_checks
from neve.commit.outcome import Check, Committed, Rejected
from neve.model.properties import properties_of
from tests.support.metadata_tables import Kit, removed

EU = EqualTo("region", "eu")
Made = Callable[[Kit, int | None], Action]


def merge_on_read(command: RowCommand) -> Callable[[Kit, int | None, Isolation], RowDelta]:
    def make(t: Kit, start: int | None, isolation: Isolation) -> RowDelta:
        copies = None if command is RowCommand.DELETE else t.data("copy")
        delta = RowDelta(
            copies,
            t.positions("mine", of=t.data("a")),
            referenced_data_files=frozenset([t.path("a")]),
            conflict_filter=EU,
            start_snapshot_id=start,
        )
        return with_conflict_checks(delta, command, isolation)

    return make


def copy_on_write(t: Kit, start: int | None, isolation: Isolation) -> Overwrite:
    overwrite = Overwrite(t.data("copy"), removed(t.data("a")), conflict_filter=EU, start_snapshot_id=start)
    return with_conflict_checks(overwrite, RowCommand.UPDATE, isolation)


def replace_partition(t: Kit, start: int | None, isolation: Isolation) -> ReplacePartitions:
    return with_conflict_checks(
        ReplacePartitions(t.data("copy"), start_snapshot_id=start), RowCommand.OVERWRITE, isolation
    )


COMMANDS = {
    "delete": merge_on_read(RowCommand.DELETE),
    "update": merge_on_read(RowCommand.UPDATE),
    "merge": merge_on_read(RowCommand.MERGE),
    "copy-on-write": copy_on_write,
    "replace": replace_partition,
}

OTHERS: dict[str, Callable[[Kit], Action]] = {
    "append of matching rows": lambda t: Append(t.data("b")),
    "append elsewhere": lambda t: Append(t.data("b", region="us")),
    "delete from the same file": lambda t: RowDelta(added_deletes=t.positions("d", of=t.data("a"))),
    "update of the same file": lambda t: RowDelta(t.data("u"), t.positions("d", of=t.data("a"))),
    "drop of the file": lambda t: DeleteFiles(removed(t.data("a"))),
    "compaction of the file": lambda t: RewriteFiles(removed(t.data("a")), t.data("c")),
}

SNAPSHOT: dict[str, dict[str, Check | None]] = {
    "append of matching rows": dict.fromkeys(COMMANDS),
    "append elsewhere": dict.fromkeys(COMMANDS),
    "delete from the same file": {
        "delete": None,
        "update": Check.NEW_DELETES,
        "merge": Check.NEW_DELETES,
        "copy-on-write": Check.NEW_DELETES_FOR_FILES,
        "replace": Check.NEW_DELETES,
    },
    "update of the same file": {
        "delete": Check.CONCURRENT_UPDATE,
        "update": Check.NEW_DELETES,
        "merge": Check.NEW_DELETES,
        "copy-on-write": Check.NEW_DELETES_FOR_FILES,
        "replace": Check.NEW_DELETES,
    },
    "drop of the file": {
        "delete": None,
        "update": Check.REQUIRED_FILES,
        "merge": Check.REQUIRED_FILES,
        "copy-on-write": Check.MISSING_FILES,
        "replace": Check.REMOVED_DATA,
    },
    "compaction of the file": {
        "delete": Check.REQUIRED_FILES,
        "update": Check.REQUIRED_FILES,
        "merge": Check.REQUIRED_FILES,
        "copy-on-write": Check.MISSING_FILES,
        "replace": Check.REMOVED_DATA,
    },
}
SERIALIZABLE = SNAPSHOT | {
    "append of matching rows": dict.fromkeys(COMMANDS, Check.NEW_DATA),
    # the copies an update makes are new rows that the other command has not seen
    "update of the same file": dict.fromkeys(COMMANDS, Check.NEW_DATA),
}


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_beside_another_commit(tmp_path: Path, command: str, other: str, isolation: Isolation):
    t = Kit.create(tmp_path)
    t.ok(Append(t.data("a")))
    start = t.head_id
    t.ok(OTHERS[other](t))
    outcome = t.commit(COMMANDS[command](t, start, isolation))
    expected = (SERIALIZABLE if isolation is Isolation.SERIALIZABLE else SNAPSHOT)[other][command]
    if expected is None:
        assert isinstance(outcome, Committed), outcome
    else:
        assert isinstance(outcome, Rejected) and outcome.conflicts[0].rule is expected, outcome


def test_the_table_says_which_level_a_command_has():
    properties = properties_of({"write.update.isolation-level": "snapshot"})
    assert isolation_of(properties, RowCommand.UPDATE) is Isolation.SNAPSHOT
    assert isolation_of(properties, RowCommand.DELETE) is Isolation.SERIALIZABLE
    assert isolation_of(properties, RowCommand.OVERWRITE) is Isolation.SERIALIZABLE


def elsewhere(t: Kit, start: int | None, isolation: Isolation, command: RowCommand) -> RowDelta | Overwrite:
    """A change of file `a` by a command that also reads the rest of the table, in a subquery."""
    if command is RowCommand.DELETE:
        deletes = t.positions("mine", of=t.data("a"))
        change: RowDelta | Overwrite = RowDelta(added_deletes=deletes, start_snapshot_id=start)
    else:
        change = Overwrite(t.data("copy"), removed(t.data("a")), start_snapshot_id=start)
    return with_conflict_checks(change, command, isolation, reads_itself=True)


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("command", [RowCommand.DELETE, RowCommand.UPDATE])
@pytest.mark.parametrize("other", ["drop", "delete"])
def test_what_a_subquery_read_must_not_have_been_deleted(
    tmp_path: Path, other: str, command: RowCommand, isolation: Isolation
):
    t = Kit.create(tmp_path)
    t.ok(Append(t.data("a")))
    t.ok(Append(t.data("b", region="us")))
    start = t.head_id
    gone = t.data("b", region="us")
    t.ok(DeleteFiles(removed(gone)) if other == "drop" else RowDelta(added_deletes=t.positions("d", of=gone)))
    outcome = t.commit(elsewhere(t, start, isolation, command))
    assert isinstance(outcome, Rejected if isolation is Isolation.SERIALIZABLE else Committed), outcome
