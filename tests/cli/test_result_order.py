"""The facts of a result are always in the same order."""

from __future__ import annotations

from dataclasses import fields

from neve.cli.console import facts_of
from neve.ops.results import RewriteResult


def test_facts_of_a_result_come_in_the_order_of_its_fields_and_its_summary_last():
    names = list(facts_of(RewriteResult()))
    field_names = [f.name for f in fields(RewriteResult)]
    assert names[: len(field_names)] == field_names
    assert names[-1] == "summary"
