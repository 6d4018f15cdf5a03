"""A disk that is full, fails or does not sync: a typed error, an unchanged table, and new files deleted."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from neve.errors import CommitUnknown, NeveError
from tests.proof.audit import audit, files_on_disk, lake_in, reachable_files, table_in
from tests.proof.faults import DURABLE, SPACE, Fault, Kind, ProcessResult, kind_of, run_forked
from tests.proof.operations import VERBS, RestorableLake, version_for_case
from tests.proof.results_ledger import new_tally
from tests.support.coverage import IS_FULL

FAULTS = {
    "disk full for a moment": Fault(errno=errno.ENOSPC, kinds=SPACE),
    "disk full from then on": Fault(errno=errno.ENOSPC, kinds=SPACE, lasting=True),
    "input/output error": Fault(errno=errno.EIO, kinds=DURABLE - {Kind.SYNC, Kind.COMMITTED}),
    "a file that cannot be read": Fault(errno=errno.EIO, kinds=frozenset({Kind.READ})),
    "a sync that fails": Fault(errno=errno.EIO, kinds=frozenset({Kind.SYNC})),
    "the answer of the database is lost": Fault(errno=errno.EIO, kinds=frozenset({Kind.COMMITTED})),
}
# Each verb runs with each fault on one format version; versions take turns.
ALL = [
    (verb, version_for_case(verb, number), name)
    for number, (verb, name) in enumerate((v, n) for v in VERBS for n in FAULTS)
]
QUICK = [
    ("append", 3, "disk full from then on"),
    ("delete", 2, "a sync that fails"),
    ("merge", 4, "input/output error"),
    ("compaction", 2, "a file that cannot be read"),
]
# Verbs without a step that the fault affects: they write no file, or change nothing in the catalog.
_DELETER = ("remove_orphan_files",)
WITHOUT_AFFECTED_STEPS = {
    "disk full for a moment": _DELETER,
    "disk full from then on": _DELETER,
    "a sync that fails": (*_DELETER, "register_table", "rename_table", "drop_table", "purge_table"),
    "a file that cannot be read": ("create_table", "drop_table"),
    "the answer of the database is lost": _DELETER,
}
DELETES = ("expire_snapshots", "remove_orphan_files", "purge_table")  # files that they could not delete are left


@pytest.mark.parametrize(("verb", "version", "name"), ALL if IS_FULL else QUICK)
def test_a_failing_disk_is_a_typed_error_and_changes_nothing(
    restorable_lake: Callable[[int], RestorableLake], verb: str, version: int, name: str
):
    case_lake, fault = restorable_lake(version), FAULTS[name]
    before, after = case_lake.states(verb)
    steps = case_lake.steps(verb, fault.kinds)
    affected_steps = [at for at in range(1, len(steps) + 1) if steps[at - 1].kind in fault.kinds]
    assert affected_steps or verb in WITHOUT_AFFECTED_STEPS.get(name, ()), "this fault affects no step"
    with new_tally("disk full, failing, not syncing: typed error, table unchanged, space given back") as tally:
        for at in affected_steps if IS_FULL else affected_steps[2 :: max(len(affected_steps) // 2, 1)]:
            with tally.case(f"{name}: {verb} v{version} at {at}, {steps[at - 1]}"):
                case_lake.restore(verb)
                ended = run_forked(lambda: case_lake.run(verb), replace(fault, at=at))
                tally.figure("succeeded" if ended.acknowledged else "rejected")
                check_error_and_files(case_lake, ended, steps[at - 1].kind, verb)
                audit(case_lake.folder, before, after, acknowledged=ended.acknowledged)


def check_error_and_files(case_lake: RestorableLake, ended: ProcessResult, affected_steps: Kind, verb: str) -> None:
    """Check that the error is a `NeveError` and that files of the failed operation are deleted."""
    assert not ended.was_killed
    kind = NeveError if ended.error is None else kind_of(ended.error)
    assert issubclass(kind, NeveError), repr(ended.error)
    if ended.acknowledged or issubclass(kind, CommitUnknown) or affected_steps is Kind.DELETE or verb in DELETES:
        return
    table = table_in(lake_in(case_lake.folder))
    left = files_on_disk(case_lake.folder) - (reachable_files(table) if table is not None else set())
    assert not left or (table is None and verb in ("drop_table", "register_table")), f"left behind: {left}"
