"""A process that is killed at any durable step of any verb: nothing acknowledged is lost, nothing half done is seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proof.audit import audit
from tests.proof.faults import Fault, Kind, Step, forked
from tests.proof.operations import VERBS, VERSIONS, Ground, fits
from tests.proof.results_ledger import tallied
from tests.support.coverage import IS_FULL

QUICK = [("append", 2), ("compaction", 3), ("delete", 4)]
CASES = [(verb, version) for version in VERSIONS for verb in VERBS if fits(verb, version)] if IS_FULL else QUICK


def points(steps: tuple[Step, ...], quick: int) -> range:
    """The steps to strike at: all, or a few that are spread."""
    return range(1, len(steps) + 1, 1 if IS_FULL else max(len(steps) // quick, 1))


def is_done(taken: tuple[Step, ...]) -> bool:
    """Whether the catalog has committed: every verb commits once, and must be found done from then on."""
    return any(step.kind is Kind.COMMITTED for step in taken)


@pytest.mark.parametrize(("verb", "version"), CASES)
def test_a_process_killed_at_any_step_leaves_the_table_sound(ground: Callable[[int], Ground], verb: str, version: int):
    here = ground(version)
    before, after = here.states(verb)
    steps = here.steps(verb)
    with tallied("kill -9 at every durable step: no acknowledged commit lost, none half done") as tally:
        for at in points(steps, 3):
            with tally.case(f"{verb} v{version} at {at}, {steps[at - 1]}"):
                here.restore(verb)
                ended = forked(lambda: here.run(verb), Fault(at=at))
                assert ended.was_killed, ended
                now = audit(here.folder, before, after, acknowledged=is_done(steps[:at]))
                tally.figure("found done" if now == after else "found undone")
