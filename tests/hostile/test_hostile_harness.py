"""The harness catches what it is there for: each fault is put into the product, and the harness has to say so."""

from __future__ import annotations

import pytest

from tests.extent import IS_FULL
from tests.hostile.arena import run
from tests.hostile.case import Case
from tests.hostile.corpus import PINNED, chosen
from tests.hostile.judge import faults
from tests.hostile.plants import PLANTS

HONEST = {"scan": ["a"], "filtered scan": ["a"], "scan of a tag": ["a"]}

CAUGHT = {
    "no path check": ("path: v2: elsewhere as a data file", "touched"),
    "no checksum": ("vector: v3: another row under the old checksum", "rows instead of"),
    "no limit": ("bomb: v1: list: deflate that inflates", ""),
    "no naming": ("metadata: v2: schemas is text", "KeyError"),
}


def test_cases_that_were_met_badly_once_are_always_played():
    assert set(PINNED) <= {each.label for each in chosen(False)}


def test_every_plant_is_tried():
    assert CAUGHT.keys() | {""} == PLANTS.keys()


@pytest.mark.parametrize("planted", CAUGHT if IS_FULL else ["no path check"])
def test_a_planted_fault_is_caught(planted: str):
    part, told = CAUGHT[planted]
    found = run("ALL", part, lanes=1, planted=planted)
    assert found.cases >= 1
    assert any(told in fault for faulty in found.faults.values() for fault in faulty), found


def case(**said) -> Case:
    return Case("family", "name", 2, lambda place: None, **said)


def played(*verbs: dict, **ended) -> dict:
    usual = {"ending": "whole", "touched": [], "cpu": 0.1, "grown": 0, "changed": ["x.avro"], "known": []}
    return {**usual, "verbs": [*verbs], **ended}


JUDGED = {
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
    assert any(told in fault for fault in faults(hostile, ended, HONEST))


def test_the_judge_lets_honest_endings_pass():
    refused = {"verb": "scan", "error": "CorruptFile", "said": "Corrupt file x.avro"}
    assert faults(case(), played(refused, {"verb": "verify", "findings": 1, "said": ""}), HONEST) == []
    assert (
        faults(case(), played({"verb": "scan", "rows": ["a"]}, {"verb": "verify", "findings": 0, "said": ""}), HONEST)
        == []
    )
    assert faults(case(told_by="nobody"), played({"verb": "scan", "rows": ["b"]}), HONEST) == []
