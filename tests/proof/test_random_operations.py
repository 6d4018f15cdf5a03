"""Random sequences of all operations equal a plain-Python model after every step, crashes included."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.proof.random_operations import OperationSequence, RandomRun, sequences
from tests.proof.results_ledger import new_tally
from tests.support.coverage import IS_FULL

VERSIONS = (1, 2, 3, 4) if IS_FULL else (3, 4)
SEQUENCES, STEPS = (95, 30) if IS_FULL else (3, 12)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("machine")
    return (folder / str(number) for number in count())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_equals_its_model_whatever_happens(folders: Iterator[Path], version: int):
    tried = set[str]()
    with new_tally(f"random sequences of {STEPS} steps over the whole surface: rows equal the model") as tally:

        @seed(version)
        @settings(
            max_examples=SEQUENCES,
            phases=set(Phase) - {Phase.explain, *(() if IS_FULL else (Phase.shrink,))},
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(sequence=sequences(version, STEPS))
        def run_sequence(sequence: OperationSequence) -> None:
            if not sequence.life.steps or repr(sequence) in tried:
                return  # no step changes rows, or it was run before: neither is counted
            tried.add(repr(sequence))
            run = RandomRun(next(folders), sequence)
            try:
                run.run()
            finally:
                tally.cases += 1
                tally.figure("steps", run.steps)
                tally.figure("processes killed", run.killed)

        run_sequence()
