"""What a result tells is told in the same order every time."""

from __future__ import annotations

from dataclasses import fields

from neve.cli.console import facts_of
from neve.ops.results import RewriteResult


def test_facts_of_a_result_come_in_the_order_of_its_fields_and_its_summary_last():
    told = list(facts_of(RewriteResult()))
    kept = [f.name for f in fields(RewriteResult)]
    assert told[: len(kept)] == kept
    assert told[-1] == "summary"
