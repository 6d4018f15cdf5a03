"""Which files keep their place when they are rewritten: their rows stay in the partition and in the order they have."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata

from neve.plan.ranges import Mask
from neve.tree.entries import EntryTable

__all__ = ["keep_their_place"]


def keep_their_place(files: EntryTable, metadata: TableMetadata, assigned: Collection[int]) -> Mask:
    """The files whose rows need not be brought together anew when columns with these field ids change.

    Every row is written under the default spec and in the table's sort order. A file that is there already, in columns
    that do not change, is patched where it is.
    """
    return _in_partition(files, metadata, assigned) & _in_order(files, metadata, assigned)


def _in_partition(files: EntryTable, metadata: TableMetadata, assigned: Collection[int]) -> Mask:
    spec = metadata.spec()
    if files.specs.is_unpartitioned(spec.spec_id):
        return np.ones(len(files), bool)
    if any(field.source_id in assigned for field in spec.fields):
        return np.zeros(len(files), bool)
    return np.asarray(files.numpy("spec_id") == spec.spec_id)


def _in_order(files: EntryTable, metadata: TableMetadata, assigned: Collection[int]) -> Mask:
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    if order is None or not order.fields:
        return np.ones(len(files), bool)
    if any(field.source_id in assigned for field in order.fields):
        return np.zeros(len(files), bool)
    return np.asarray(pc.fill_null(files["sort_order_id"], 0).to_numpy() == order.order_id)
