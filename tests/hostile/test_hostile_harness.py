"""The harness catches what it is there for: each fault is put into the product, and the harness has to say so."""

from __future__ import annotations

import re

import pytest

from tests.hostile.all_cases import FULL, PINNED, chosen, corpus, one_of_each
from tests.hostile.case import Case
from tests.hostile.sandbox_runner import run
from tests.hostile.seeded_bugs import PLANTS
from tests.hostile.verdicts import faults
from tests.proof.results_ledger import tallied
from tests.support.coverage import IS_FULL

PLANTED = "planted faults are caught: hostile files"
HONEST = {"scan": ["a"], "filtered scan": ["a"], "scan of a tag": ["a"]}

CAUGHT = {  # the case, and how the fault that is to be told begins
    "no path check": ("path: v2: elsewhere as a data file", r"touched \['.*/outside/precious\.parquet'\]"),
    "no checksum": ("vector: v3: another row under the old checksum", r"scan: \d+ rows instead of \d+"),
    "no limit": ("bomb: v1: list: deflate that inflates", r"\d+ MB of memory"),
    "no naming": ("metadata: v2: schemas is text", r"scan: KeyError: 'schemas and partition-specs must be lists'"),
}


def test_cases_that_were_met_badly_once_are_always_played():
    assert set(PINNED) <= {each.label for each in chosen(False)}


def test_every_kind_of_damage_is_played_in_full():
    there, asked = corpus(), chosen(True)
    assert {(each.family, each.name) for each in there} == {(each.family, each.name) for each in asked}
    assert len({each.label for each in asked}) == len(asked) == FULL


def test_kinds_of_damage_take_turns_with_versions():
    taken = {(each.family, each.version) for each in one_of_each(corpus())}
    assert {(each.family, each.version) for each in corpus()} == taken


def test_every_plant_is_tried_and_not_taken_for_a_case_that_broke():
    assert CAUGHT.keys() | {""} == PLANTS.keys()
    broken = faults(case(), played(ending="the case itself broke: whole []"), HONEST)
    assert not [told for _, told in CAUGHT.values() if any(re.match(told, fault) for fault in broken)]


@pytest.mark.parametrize("planted", CAUGHT if IS_FULL else ["no path check"])
def test_a_planted_fault_is_caught(planted: str):
    label, told = CAUGHT[planted]
    with tallied(PLANTED) as tally, tally.case(planted):
        found = run("ALL", label, lanes=1, planted=planted)
        assert found.cases == 1
        assert [fault for fault in found.faults.get(label, ()) if re.match(told, fault)], found
        if IS_FULL:
            assert not run("ALL", label, lanes=1).faults, "without the plant there is nothing to catch"
        tally.figure("found")


def case(**said) -> Case:
    return Case("family", "name", 2, lambda place: None, **said)


def played(*verbs: dict, **ended) -> dict:
    usual = {"ending": "whole", "touched": [], "cpu": 0.1, "grown": 0, "changed": ["x.avro"], "known": []}
    return {**usual, "verbs": [*verbs], **ended}


JUDGED = {
    "damage that was not done": (case(), played(ending="the case itself broke: KeyError"), "the case itself broke"),
    "a crash": (case(), played({"verb": "scan"}, ending="ended by SIGSEGV"), "SIGSEGV in scan"),
    "a hang": (case(), played({"verb": "verify"}, ending="no end after 90 s"), "no end after 90 s in verify"),
    "a file touched": (case(), played(touched=["/etc/x"]), "/etc/x"),
    "too much time": (case(), played(cpu=99.0), "99.0 s of CPU"),
    "too much memory": (case(), played(grown=2 << 30), "2048 MB"),
    "a strange error": (case(), played({"verb": "scan", "raw": "KeyError", "said": "x", "where": ""}), "KeyError"),
    "an error without a name": (
        case(),
        played({"verb": "scan", "error": "CorruptFile", "said": "broken"}),
        "names none",
    ),
    "escapes": (case(), played({"verb": "scan", "error": "CorruptFile", "said": "x.avro \x1b"}), "control characters"),
    "a secret": (case(), played({"verb": "scan", "error": "E", "said": "x.avro never-to-be-seen-7f3a"}), "a secret"),
    "other rows": (case(), played({"verb": "scan", "rows": ["b"]}), "1 rows instead of 1"),
    "an audit that sees nothing": (
        case(),
        played(
            {"verb": "scan", "error": "CorruptFile", "said": "x.avro"}, {"verb": "verify", "findings": 0, "said": ""}
        ),
        "verify finds nothing",
    ),
}


@pytest.mark.parametrize("what", JUDGED)
def test_the_judge_notices(what: str):
    hostile, ended, told = JUDGED[what]
    with tallied(PLANTED) as tally, tally.case(what):
        assert any(told in fault for fault in faults(hostile, ended, HONEST))
        tally.figure("found")


def test_the_judge_lets_honest_endings_pass():
    refused = {"verb": "scan", "error": "CorruptFile", "said": "Corrupt file x.avro"}
    assert faults(case(), played(refused, {"verb": "verify", "findings": 1, "said": ""}), HONEST) == []
    assert (
        faults(case(), played({"verb": "scan", "rows": ["a"]}, {"verb": "verify", "findings": 0, "said": ""}), HONEST)
        == []
    )
    assert faults(case(told_by="nobody"), played({"verb": "scan", "rows": ["b"]}), HONEST) == []
