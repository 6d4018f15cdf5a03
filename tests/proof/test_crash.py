"""Kill a process at any durable step of any verb: no acknowledged commit is lost, none is partly visible."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proof.audit import audit
from tests.proof.faults import Fault, Kind, Step, run_forked
from tests.proof.operations import VERBS, VERSIONS, RestorableLake, applies_to
from tests.proof.results_ledger import new_tally
from tests.support.coverage import IS_FULL

QUICK = [("append", 2), ("compaction", 3), ("delete", 4)]
CASES = [(verb, version) for version in VERSIONS for verb in VERBS if applies_to(verb, version)] if IS_FULL else QUICK


def points(steps: tuple[Step, ...], quick: int) -> range:
    """Return the steps to kill the process at: all, or a few spread over the run."""
    return range(1, len(steps) + 1, 1 if IS_FULL else max(len(steps) // quick, 1))


def is_done(taken: tuple[Step, ...]) -> bool:
    """Return whether the catalog has committed: every verb commits once and is complete from then on."""
    return any(step.kind is Kind.COMMITTED for step in taken)


@pytest.mark.parametrize(("verb", "version"), CASES)
def test_a_process_killed_at_any_step_leaves_the_table_sound(
    restorable_lake: Callable[[int], RestorableLake], verb: str, version: int
):
    case_lake = restorable_lake(version)
    before, after = case_lake.states(verb)
    steps = case_lake.steps(verb)
    with new_tally("kill -9 at every durable step: no acknowledged commit lost, none half done") as tally:
        for at in points(steps, 3):
            with tally.case(f"{verb} v{version} at {at}, {steps[at - 1]}"):
                case_lake.restore(verb)
                ended = run_forked(lambda: case_lake.run(verb), Fault(at=at))
                assert ended.was_killed, ended
                now = audit(case_lake.folder, before, after, acknowledged=is_done(steps[:at]))
                tally.figure("applied" if now == after else "not applied")
