"""Lost, late, duplicated or stale responses of a catalog: a writer gets a true result or "unknown"."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from neve.errors import CommitUnknown, NeveError
from tests.proof.audit import State, audit, lake_in
from tests.proof.operations import VERBS, RestorableLake, version_for_case
from tests.proof.results_ledger import Tally, new_tally
from tests.proof.unreliable_catalog import Unreliable
from tests.support.coverage import IS_FULL

SCRIPTS = [
    *((word,) for word in ("lost", "lost1", "lost2", "never", "late", "after", "twice", "twice1", "twice2", "down")),
    *(("down", word) for word in ("lost", "lost1", "twice", "after", "never")),
    ("twice1", "lost"),
    ("twice2", "twice1"),
    ("down", "down", "lost2"),
    ("down", "down", "down", "down", "down"),
    ("twice", "twice", "twice", "twice", "twice"),
]
# Verbs that end in one swap of an existing table.
WRITERS = ("append", "overwrite", "delete", "delete, copied", "update", "merge", "compaction", "rewrite_manifests")
CHANGERS = ("expire_snapshots", "evolve_partitions", "evolve_schema", "upgrade", "create_branch", "rollback")
CHANGERS += ("set_properties", "remove_properties", "create_tag", "drop_branch", "fast_forward", "set_current_snapshot")
ALL = [
    (verb, version_for_case(verb, number), script)
    for number, (verb, script) in enumerate(product((*WRITERS, *CHANGERS), SCRIPTS))
]
QUICK = [("append", 4, ("twice1",)), ("update", 3, ("after",)), ("evolve_partitions", 2, ("twice",))]


def run_verb(case_lake: RestorableLake, verb: str, script: tuple[str, ...]) -> str:
    """Run a verb with an unreliable catalog; return its result. Delayed requests arrive afterwards."""
    lake = lake_in(case_lake.folder, lambda folder: Unreliable(folder, script))  # type: ignore[arg-type]
    try:
        VERBS[verb](lake)
    except CommitUnknown:
        return "unknown"
    except NeveError:
        return "rejected"
    else:
        return "acknowledged"
    finally:
        lake.catalog.deliver()  # type: ignore[attr-defined]


def check_response(
    case_lake: RestorableLake, verb: str, script: tuple[str, ...], states: tuple[State, State], tally: Tally
) -> None:
    case_lake.restore(verb)
    response = run_verb(case_lake, verb, script)
    tally.figure(response)
    # A change of the table alone writes no file by which its first delivery could be recognised.
    is_doubled = verb in CHANGERS and any(word.startswith("twice") for word in script)
    audit(
        case_lake.folder,
        *states,
        acknowledged=response == "acknowledged",
        rejected=response == "rejected" and not is_doubled,
    )


@pytest.mark.parametrize("verb", [*WRITERS, *CHANGERS] if IS_FULL else [case[0] for case in QUICK])
def test_a_writer_never_gets_a_wrong_result(restorable_lake: Callable[[int], RestorableLake], verb: str):
    with new_tally("lost, late, duplicated and stale responses: no wrong result, every file kept if unknown") as tally:
        for case, version, script in ALL if IS_FULL else QUICK:
            if case == verb:
                case_lake = restorable_lake(version)
                with tally.case(f"{verb} v{version} {' '.join(script)}"):
                    check_response(case_lake, verb, script, case_lake.states(verb), tally)
