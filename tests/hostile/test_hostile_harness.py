"""The harness finds bugs: each is planted in the product, and the harness must report it."""

from __future__ import annotations

import re

import pytest

from tests.hostile.all_cases import FULL, PINNED, corpus, one_of_each, select_cases
from tests.hostile.case import Case
from tests.hostile.sandbox_runner import run
from tests.hostile.seeded_bugs import PLANTS
from tests.hostile.verdicts import faults
from tests.proof.results_ledger import new_tally
from tests.support.coverage import IS_FULL

PLANTED = "planted faults are caught: hostile files"
HONEST = {"scan": ["a"], "filtered scan": ["a"], "scan of a tag": ["a"]}

CAUGHT = {  # the case, and the start of the expected fault message
    "no path check": ("path: v2: elsewhere as a data file", r"touched \['.*/outside/precious\.parquet'\]"),
    "no checksum": ("vector: v3: another row under the old checksum", r"scan: \d+ rows instead of \d+"),
    "no limit": ("bomb: v1: list: deflate that inflates", r"\d+ MB of memory"),
    "no naming": ("metadata: v2: schemas is text", r"scan: KeyError: 'schemas and partition-specs must be lists'"),
}


def test_cases_that_failed_once_always_run():
    assert set(PINNED) <= {each.label for each in select_cases(False)}


def test_a_full_run_has_every_kind_of_damage():
    all_cases, selected = corpus(), select_cases(True)
    assert {(each.family, each.name) for each in all_cases} == {(each.family, each.name) for each in selected}
    assert len({each.label for each in selected}) == len(selected) == FULL


def test_every_family_covers_every_version_it_has():
    taken = {(each.family, each.version) for each in one_of_each(corpus())}
    assert {(each.family, each.version) for each in corpus()} == taken


def test_every_planted_bug_is_tried_and_differs_from_a_broken_case():
    assert CAUGHT.keys() | {""} == PLANTS.keys()
    broken = faults(case(), result(ending="the case itself broke: whole []"), HONEST)
    assert not [expected for _, expected in CAUGHT.values() if any(re.match(expected, fault) for fault in broken)]


@pytest.mark.parametrize("planted", CAUGHT if IS_FULL else ["no path check"])
def test_a_planted_bug_is_found(planted: str):
    label, expected = CAUGHT[planted]
    with new_tally(PLANTED) as tally, tally.case(planted):
        found = run("ALL", label, lanes=1, planted=planted)
        assert found.cases == 1
        assert [fault for fault in found.faults.get(label, ()) if re.match(expected, fault)], found
        if IS_FULL:
            assert not run("ALL", label, lanes=1).faults, "without the planted bug there is no fault"
        tally.figure("found")


def case(**fields) -> Case:
    return Case("family", "name", 2, lambda lake: None, **fields)


def result(*verbs: dict, **ended) -> dict:
    usual = {"ending": "complete", "touched": [], "cpu": 0.1, "grown": 0, "changed": ["x.avro"], "known": []}
    return {**usual, "verbs": [*verbs], **ended}


BAD_RESULTS = {
    "damage that was not done": (case(), result(ending="the case itself broke: KeyError"), "the case itself broke"),
    "a crash": (case(), result({"verb": "scan"}, ending="ended by SIGSEGV"), "SIGSEGV in scan"),
    "a hang": (case(), result({"verb": "verify"}, ending="no end after 90 s"), "no end after 90 s in verify"),
    "a file touched": (case(), result(touched=["/etc/x"]), "/etc/x"),
    "too much time": (case(), result(cpu=99.0), "99.0 s of CPU"),
    "too much memory": (case(), result(grown=2 << 30), "2048 MB"),
    "a strange error": (case(), result({"verb": "scan", "raw": "KeyError", "message": "x", "where": ""}), "KeyError"),
    "an error without a name": (
        case(),
        result({"verb": "scan", "error": "CorruptFile", "message": "broken"}),
        "names none",
    ),
    "escapes": (
        case(),
        result({"verb": "scan", "error": "CorruptFile", "message": "x.avro \x1b"}),
        "control characters",
    ),
    "a secret": (case(), result({"verb": "scan", "error": "E", "message": "x.avro never-to-be-seen-7f3a"}), "a secret"),
    "other rows": (case(), result({"verb": "scan", "rows": ["b"]}), "1 rows instead of 1"),
    "an audit that sees nothing": (
        case(),
        result(
            {"verb": "scan", "error": "CorruptFile", "message": "x.avro"},
            {"verb": "verify", "findings": 0, "message": ""},
        ),
        "verify finds nothing",
    ),
}


@pytest.mark.parametrize("what", BAD_RESULTS)
def test_the_checks_notice(what: str):
    hostile, ended, expected = BAD_RESULTS[what]
    with new_tally(PLANTED) as tally, tally.case(what):
        assert any(expected in fault for fault in faults(hostile, ended, HONEST))
        tally.figure("found")


def test_the_checks_accept_valid_results():
    rejected = {"verb": "scan", "error": "CorruptFile", "message": "Corrupt file x.avro"}
    assert faults(case(), result(rejected, {"verb": "verify", "findings": 1, "message": ""}), HONEST) == []
    assert (
        faults(
            case(), result({"verb": "scan", "rows": ["a"]}, {"verb": "verify", "findings": 0, "message": ""}), HONEST
        )
        == []
    )
    assert faults(case(detected_by="nobody"), result({"verb": "scan", "rows": ["b"]}), HONEST) == []
