"""Add rows to a table.

Isolation: an append never conflicts with another writer; a lost race is tried again on the new state.
Writes: data files under the current default spec, one manifest for them.

>>> t.append([{"id": 4, "region": "asia"}]).rows_added
1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neve.commit.actions import Append
from neve.ops.commit import write_and_publish
from neve.ops.context import TableContext
from neve.ops.results import WriteResult


def append(context: TableContext, rows: Any, branch: str, snapshot_properties: Mapping[str, str]) -> WriteResult:
    """Append rows; no rows make no snapshot."""
    return write_and_publish(
        context, rows, Append, doing="append", branch=branch, snapshot_properties=snapshot_properties
    )
