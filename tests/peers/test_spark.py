"""Névé and Spark with Iceberg's own runtime write to one table in turn, and agree on it.

The table is in one catalog that both use. What its rows must be says a plain database that ran the same statements.
NEVE_PROOF=all plays every history on every version, in both modes and both directions.
"""

from __future__ import annotations

import pytest

from tests.peers.histories import Scenario, chosen
from tests.peers.judge import Ground
from tests.peers.tally import Tally


@pytest.mark.parametrize("scenario", chosen(), ids=str)
def test_two_engines_agree_on_a_table_they_both_wrote(ground: Ground, tally: Tally, scenario: Scenario):
    played = ground.table(tally)
    played.play(scenario.past(played.name))
    played.check_all()
    played.play(scenario.present(played.name), watched=True)
    played.check_all()
