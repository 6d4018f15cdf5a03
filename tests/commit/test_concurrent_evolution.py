"""A change that was planned before the table got another spec or a wider type, and is committed after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField

from neve.commit.actions import Action, Append, Overwrite, RewriteFiles, RowDelta
from neve.commit.outcome import Check
from neve.model.partition import Specs
from neve.tree.entries import EntryTable
from tests.support.metadata_tables import Kit, removed

LATER = PartitionSpec(PartitionField(1, 1005, TruncateTransform(10), "id_trunc"), spec_id=4)

ACTIONS: dict[str, Callable[[EntryTable, EntryTable, int | None], Action]] = {
    "rewrite": lambda a, b, start: RewriteFiles(removed(a), b, start_snapshot_id=start),
    "rewrite to another partition": lambda a, b, start: RewriteFiles(
        removed(a), b.with_columns(p1000=["us"]), start_snapshot_id=start, data_sequence_number=1
    ),
    "overwrite": lambda a, b, start: Overwrite(
        b, removed(a), start_snapshot_id=start, no_conflicting_data=True, no_conflicting_deletes=True
    ),
    "update": lambda a, b, start: RowDelta(
        b, removed_data=removed(a), start_snapshot_id=start, no_conflicting_updates=True
    ),
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
def test_deletes_under_a_spec_the_plan_did_not_know_are_judged_by_it(tmp_path: Path, action: Callable[..., Action]):
    t = Kit.create(tmp_path)
    a, b = t.data("a"), t.data("b")
    t.ok(Append(a))
    start = t.head_id
    t.update(AddPartitionSpecUpdate(spec=LATER))
    t.ok(RowDelta(added_deletes=t.equality("e", spec=4, p1005=10)))
    t.ok(action(a, b, start))
    assert t.names() == {"b"}


def test_deletes_for_everything_under_a_new_spec_are_a_conflict(tmp_path: Path):
    t = Kit.create(tmp_path)
    a, b = t.data("a"), t.data("b")
    t.ok(Append(a))
    start = t.head_id
    t.update(AddPartitionSpecUpdate(spec=PartitionSpec(spec_id=4)))
    t.ok(RowDelta(added_deletes=t.equality("e", spec=4)))
    t.refused(ACTIONS["rewrite"](a, b, start), Check.NEW_DELETES_FOR_FILES)


def specs_of(kind: IcebergType) -> Specs:
    by_id = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"), spec_id=0)
    return Specs({0: by_id}, 0, (Schema(NestedField(1, "id", kind, required=False)),))


def test_files_from_before_a_promotion_stand_beside_newer_ones():
    before, after = specs_of(IntegerType()), specs_of(LongType())
    files = [EntryTable.from_columns({"spec_id": [0], "p1000": [5]}, specs, 1) for specs in (before, after)]
    both = EntryTable.concat(files, after)
    assert both.partition_codes()[0].tolist() == [0, 0], "one partition"
    assert EntryTable.concat(files[:1], after).specs is after
