"""Every order in which two operations can meet: some serial order explains the rows, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from neve.commit.isolation import Isolation
from tests.proof.operation_pairs import PAIRS, Meeting
from tests.proof.results_ledger import tallied
from tests.proof.turn_taking import merges
from tests.support.coverage import IS_FULL

WHOLE = 15  # pairs that are played in all 252 orders; the others in every fourth
FEW = ("ABBBBBAAAA", "BAAAAABBBB", "ABABABABAB")  # one has read the table before the other lands
QUICK = ("delete, update of the row", "update, compaction")


@pytest.fixture(scope="module")
def meeting(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Meeting]:
    made: dict[int, Meeting] = {}

    def of(version: int) -> Meeting:
        if version not in made:
            made[version] = Meeting(tmp_path_factory.mktemp(f"v{version}"), version)
        return made[version]

    return of


@pytest.mark.parametrize("level", list(Isolation))
@pytest.mark.parametrize("name", PAIRS if IS_FULL else QUICK)
def test_every_order_of_two_operations_is_explained(meeting: Callable[[int], Meeting], name: str, level: Isolation):
    pair = PAIRS[name]
    here = meeting(pair.version)
    orders = list(merges())[:: 1 if list(PAIRS).index(name) < WHOLE else 4]
    with tallied("every interleaving of two operations: a serial order explains the rows, no file is left") as tally:
        for order in orders if IS_FULL else FEW:
            with tally.case(f"{name}, {level}, v{pair.version}, {order}"):
                landed, refused = here.played(pair, order, level)
                tally.figure("landed", landed)
                tally.figure("refused", refused)
