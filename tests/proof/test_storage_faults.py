"""A disk that is full, fails or does not sync: a typed error, the table as it was, and the space given back."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from neve.errors import CommitUnknown, NeveError
from tests.proof.audit import audit, lake_in, on_disk, reachable, table_in
from tests.proof.faults import DURABLE, SPACE, Ended, Fault, Kind, forked, kind_of
from tests.proof.operations import VERBS, Ground, turn
from tests.proof.results_ledger import tallied
from tests.support.coverage import IS_FULL

FAULTS = {
    "disk full for a moment": Fault(errno=errno.ENOSPC, kinds=SPACE),
    "disk full from then on": Fault(errno=errno.ENOSPC, kinds=SPACE, lasting=True),
    "input/output error": Fault(errno=errno.EIO, kinds=DURABLE - {Kind.SYNC, Kind.COMMITTED}),
    "a file that cannot be read": Fault(errno=errno.EIO, kinds=frozenset({Kind.READ})),
    "a sync that fails": Fault(errno=errno.EIO, kinds=frozenset({Kind.SYNC})),
    "the answer of the database is lost": Fault(errno=errno.EIO, kinds=frozenset({Kind.COMMITTED})),
}
# Each verb meets each fault on one version; versions take turns.
ALL = [(verb, turn(verb, number), name) for number, (verb, name) in enumerate((v, n) for v in VERBS for n in FAULTS)]
QUICK = [
    ("append", 3, "disk full from then on"),
    ("delete", 2, "a sync that fails"),
    ("merge", 4, "input/output error"),
    ("compaction", 2, "a file that cannot be read"),
]
# Verbs that take no step of the kinds a fault strikes: they write no file, or change nothing in the catalog.
_DELETER = ("remove_orphan_files",)
NEVER_MET = {
    "disk full for a moment": _DELETER,
    "disk full from then on": _DELETER,
    "a sync that fails": (*_DELETER, "register_table", "rename_table", "drop_table", "purge_table"),
    "a file that cannot be read": ("create_table", "drop_table"),
    "the answer of the database is lost": _DELETER,
}
DELETES = ("expire_snapshots", "remove_orphan_files", "purge_table")  # what they could not delete is left


@pytest.mark.parametrize(("verb", "version", "name"), ALL if IS_FULL else QUICK)
def test_a_failing_disk_is_a_typed_error_and_changes_nothing(
    ground: Callable[[int], Ground], verb: str, version: int, name: str
):
    here, fault = ground(version), FAULTS[name]
    before, after = here.states(verb)
    steps = here.steps(verb, fault.kinds)
    struck = [at for at in range(1, len(steps) + 1) if steps[at - 1].kind in fault.kinds]
    assert struck or verb in NEVER_MET.get(name, ()), "no step meets this fault"
    with tallied("disk full, failing, not syncing: typed error, table unchanged, space given back") as tally:
        for at in struck if IS_FULL else struck[2 :: max(len(struck) // 2, 1)]:
            with tally.case(f"{name}: {verb} v{version} at {at}, {steps[at - 1]}"):
                here.restore(verb)
                ended = forked(lambda: here.run(verb), replace(fault, at=at))
                tally.figure("done all the same" if ended.acknowledged else "refused")
                judge(here, ended, steps[at - 1].kind, verb)
                audit(here.folder, before, after, acknowledged=ended.acknowledged)


def judge(here: Ground, ended: Ended, struck: Kind, verb: str) -> None:
    """The error is one of the engine's own, and what was written for nothing is gone."""
    assert not ended.was_killed
    kind = NeveError if ended.error is None else kind_of(ended.error)
    assert issubclass(kind, NeveError), repr(ended.error)
    if ended.acknowledged or issubclass(kind, CommitUnknown) or struck is Kind.DELETE or verb in DELETES:
        return
    table = table_in(lake_in(here.folder))
    left = on_disk(here.folder) - (reachable(table) if table is not None else set())
    assert not left or (table is None and verb in ("drop_table", "register_table")), f"left behind: {left}"
