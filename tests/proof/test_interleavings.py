"""Every interleaving of two operations: some serial order explains the rows, and no file is left behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from neve.commit.isolation import Isolation
from tests.proof.operation_pairs import PAIRS, PairTable
from tests.proof.results_ledger import new_tally
from tests.proof.turn_taking import interleavings
from tests.support.coverage import IS_FULL

IN_ALL_ORDERS = 15  # number of pairs that run in all 252 orders; the others run in every fourth
FEW = ("ABBBBBAAAA", "BAAAAABBBB", "ABABABABAB")  # one has read the table before the other lands
QUICK = ("delete, update of the row", "update, compaction")


@pytest.fixture(scope="module")
def pair_table(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], PairTable]:
    tables: dict[int, PairTable] = {}

    def of(version: int) -> PairTable:
        if version not in tables:
            tables[version] = PairTable(tmp_path_factory.mktemp(f"v{version}"), version)
        return tables[version]

    return of


@pytest.mark.parametrize("level", list(Isolation))
@pytest.mark.parametrize("name", PAIRS if IS_FULL else QUICK)
def test_every_order_of_two_operations_is_explained(
    pair_table: Callable[[int], PairTable], name: str, level: Isolation
):
    pair = PAIRS[name]
    table = pair_table(pair.version)
    orders = list(interleavings())[:: 1 if list(PAIRS).index(name) < IN_ALL_ORDERS else 4]
    with new_tally("every interleaving of two operations: a serial order explains the rows, no file is left") as tally:
        for order in orders if IS_FULL else FEW:
            with tally.case(f"{name}, {level}, v{pair.version}, {order}"):
                landed, rejected = table.run_order(pair, order, level)
                tally.figure("landed", landed)
                tally.figure("rejected", rejected)
