"""How the files of manifests are grouped when the manifests are rewritten.

Files that are close in the fields given stand in the same manifest, so the ranges of its partition summary are narrow
and a filter on these fields opens few manifests.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import VoidTransform

from neve.errors import UnknownName
from neve.model.partition import Specs
from neve.tree.entries import EntryTable

__all__ = ["clustered"]


def clustered(
    entries: EntryTable, spec_id: int, pieces: int, sort_by: Sequence[str] | None = None
) -> tuple[EntryTable, ...]:
    """Files of one spec in groups of about the same size, one to a manifest, in the order of some partition fields.

    `sort_by` names fields of the spec; without it all of them count, in the order of the spec. Files that are equal in
    these fields stay in the order they came, as do the files of an unpartitioned spec.
    """
    columns = _columns(entries.specs, spec_id, sort_by)
    sortable = [c for c in columns if not pa.types.is_null(entries[c].type)]
    if sortable:
        keys = [(column, "ascending") for column in sortable]
        entries = entries.take(pc.sort_indices(entries.columns, sort_keys=keys))
    groups = np.array_split(np.arange(len(entries)), max(1, min(pieces, len(entries))))
    return tuple(entries.take(rows) for rows in groups if len(rows))


def _columns(specs: Specs, spec_id: int, sort_by: Sequence[str] | None) -> list[str]:
    """The columns that hold the fields named; a field that was dropped and left void separates nothing."""
    fields = zip(specs[spec_id].fields, specs.columns(spec_id), strict=True)
    known = {f.name: column for f, column in fields if not isinstance(f.transform, VoidTransform)}
    for name in sort_by or ():
        if name not in known:
            raise UnknownName("partition field", name, list(known), f"partition spec {spec_id}")
    return [known[name] for name in (known if sort_by is None else sort_by)]
