"""Plan which manifests to rewrite, and how to group their files.

Files with similar values of the given partition fields go into the same manifest. The ranges in its partition summary
are then narrow, and a filter on these fields opens few manifests. Data files and delete files, and the files of
different specs, are never mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import VoidTransform

from neve.display.format import plural
from neve.display.html import ExplainMixin
from neve.errors import UnknownName
from neve.model.partition import Specs
from neve.tree.entries import EntryTable, Manifest

_TOO_LARGE = 1.5  # times the target: a larger manifest is worth splitting
_TOO_SMALL = 0.75  # times the target: the average size that manifests must have to be well filled


@dataclass(frozen=True)
class ManifestGroup:
    """Manifests of one spec and kind that are rewritten together."""

    spec_id: int
    is_deletes: bool
    manifests: tuple[Manifest, ...]
    entries: EntryTable  # the live files, with the ordinal of their manifest among `manifests`
    pieces: int  # number of new manifests; 0 when there are no live files
    reason: str

    @property
    def bytes(self) -> int:
        """The total size of the replaced manifests."""
        return sum(m.length for m in self.manifests)


@dataclass(frozen=True)
class ManifestPlan(ExplainMixin):
    """The manifests of a snapshot to rewrite."""

    snapshot_id: int | None
    groups: tuple[ManifestGroup, ...] = ()
    manifests_kept: int = 0

    @property
    def manifests(self) -> int:
        """The number of manifests to rewrite."""
        return sum(len(g.manifests) for g in self.groups)

    @property
    def files(self) -> int:
        """The number of live files in these manifests."""
        return sum(len(g.entries) for g in self.groups)

    def explain(self) -> str:
        """Describe the plan."""
        if not self.groups:
            return f"nothing to rewrite: {plural(self.manifests_kept, 'manifest')}, all in good shape"
        lines = []
        for g in self.groups:
            kind = "delete" if g.is_deletes else "data"
            if g.pieces:
                files = f"{plural(len(g.entries), f'{kind} file')} of spec {g.spec_id}"
                lines.append(f"rewrite {plural(len(g.manifests), 'manifest')} with {files} to {g.pieces}: {g.reason}")
            else:
                lines.append(f"drop {plural(len(g.manifests), f'{kind} manifest')} of spec {g.spec_id}: {g.reason}")
        return "\n".join([*lines, f"keep {plural(self.manifests_kept, 'manifest')}"])


def plan_manifests(
    manifests: Sequence[Manifest],
    read: Callable[[Sequence[Manifest]], EntryTable],
    specs: Specs,
    target: int,
    *,
    spec_id: int | None = None,
    sort_by: Sequence[str] | None = None,
    snapshot_id: int | None = None,
) -> ManifestPlan:
    """Choose the manifests of a snapshot to rewrite.

    `read` returns the live files of some of them; it is called for each kind and spec, so that memory holds no file
    twice. Without a spec id, manifests of every spec are considered. `sort_by` names partition fields. A spec that
    lacks some of them is sorted by those it has, and by all its own fields if it has none of them.
    """
    _refuse_unknown(specs, spec_id, sort_by)
    keys = [(m.is_deletes, m.spec_id) for m in manifests]
    groups = []
    for key in sorted(set(keys)):  # data before deletes
        if spec_id is not None and key[1] != spec_id:
            continue
        own = tuple(manifest for manifest, other in zip(manifests, keys, strict=True) if other == key)
        live = read(own)
        if reason := _rewrite_reason(own, live, target, sort_by) if len(live) else "":
            pieces = max(1, -(-_live_bytes(own) // target))
            groups.append(ManifestGroup(key[1], key[0], own, live, pieces, reason))
            continue
        # A manifest that only lists removed files would keep its spec in the table forever. The snapshot that wrote it
        # still contains it, so the history stays complete.
        holding = set(live.numpy("manifest").tolist())
        if empty := tuple(m for at, m in enumerate(own) if at not in holding):
            groups.append(ManifestGroup(key[1], key[0], empty, live.take([]), 0, "they list no live files"))
    return ManifestPlan(snapshot_id, tuple(groups), len(manifests) - sum(len(g.manifests) for g in groups))


def _rewrite_reason(manifests: Sequence[Manifest], live: EntryTable, target: int, sort_by: Sequence[str] | None) -> str:
    """Return why manifests of one spec and kind are worth rewriting, or an empty text."""
    holding = [m for m in manifests if m.may_hold_live_files]
    needed = max(1, -(-_live_bytes(holding) // max(1, int(target * _TOO_SMALL))))
    if len(holding) > needed:
        return "they are small"
    counts = np.bincount(live.numpy("manifest"), minlength=len(manifests))
    large = [m for m, count in zip(manifests, counts, strict=True) if m.length > target * _TOO_LARGE and count > 1]
    if large:
        return "some are large"
    return "their partitions overlap" if _have_overlapping_ranges(live, sort_by) else ""


def _live_bytes(manifests: Sequence[Manifest]) -> int:
    """Estimate how many bytes of the manifests describe live files; entries of removed files are not rewritten."""
    shares = ((m.length, (m.added_files or 0) + (m.existing_files or 0), m.deleted_files or 0) for m in manifests)
    return sum(length * live // (live + dead) if live + dead else length for length, live, dead in shares)


def _have_overlapping_ranges(live: EntryTable, sort_by: Sequence[str] | None) -> bool:
    """Return whether the value ranges of manifests overlap; two neighbours may share one partition."""
    for spec_id, files in live.by_spec():
        columns = _sort_columns(files.specs, spec_id, sort_by)
        order = _sort_indices(files, columns)
        changes = np.zeros(len(files), bool)  # the values differ from those of the previous file
        for column in (files[c].take(order) for c in columns):
            plain = column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column
            encoded = plain.combine_chunks().dictionary_encode(null_encoding="encode")
            changes[1:] |= np.diff(encoded.indices.to_numpy(zero_copy_only=False)) != 0
        ranks = np.empty(len(files), np.int64)  # of each file among the distinct sorted values
        ranks[order.to_numpy()] = np.cumsum(changes)
        ordinals, of_file = np.unique(files.numpy("manifest"), return_inverse=True)
        first, last = np.full(len(ordinals), len(files)), np.full(len(ordinals), -1)
        np.minimum.at(first, of_file, ranks)
        np.maximum.at(last, of_file, ranks)
        by_start = np.lexsort((last, first))
        if (last[by_start][:-1] > first[by_start][1:]).any():
            return True
    return False


def cluster_by_partition(
    entries: EntryTable, spec_id: int, pieces: int, sort_by: Sequence[str] | None = None
) -> tuple[EntryTable, ...]:
    """Sort files of one spec by partition fields and split them into groups of about equal size, one per manifest.

    `sort_by` names fields of the spec; the default is all of them, in the order of the spec. Files with equal values
    keep their order, as do the files of an unpartitioned spec.
    """
    _refuse_unknown(entries.specs, spec_id, sort_by)
    columns = _sort_columns(entries.specs, spec_id, sort_by)
    entries = entries.take(_sort_indices(entries, columns)) if columns else entries
    groups = np.array_split(np.arange(len(entries)), max(1, min(pieces, len(entries))))
    return tuple(entries.take(rows) for rows in groups if len(rows))


def regroup_entries(group: ManifestGroup, entries: EntryTable, sort_by: Sequence[str] | None) -> tuple[EntryTable, ...]:
    """Split the files of a group, read with all details, into its new manifests."""
    pieces: list[EntryTable] = []
    for spec_id, files in entries.by_spec():
        count = max(1, round(group.pieces * len(files) / len(entries)))
        own_fields = [n for n in sort_by or () if n in _column_by_field_name(files.specs, spec_id)]
        pieces += cluster_by_partition(files, spec_id, count, own_fields)
    return tuple(pieces)


def _sort_indices(entries: EntryTable, columns: Sequence[str]) -> pa.Array:
    sortable = [c for c in columns if not pa.types.is_null(entries[c].type)]
    if not sortable:
        return pa.array(np.arange(len(entries)))
    return pc.sort_indices(entries.columns, sort_keys=[(column, "ascending") for column in sortable])


def _sort_columns(specs: Specs, spec_id: int, sort_by: Sequence[str] | None) -> list[str]:
    """Return the columns of the given fields that a spec has, or of all its fields if it has none of them."""
    columns = _column_by_field_name(specs, spec_id)
    return [columns[name] for name in sort_by or () if name in columns] or list(columns.values())


def _column_by_field_name(specs: Specs, spec_id: int) -> dict[str, str]:
    # a void transform, left by a dropped field, separates no rows
    fields = zip(specs[spec_id].fields, specs.columns(spec_id), strict=True)
    return {f.name: column for f, column in fields if not isinstance(f.transform, VoidTransform)}


def _refuse_unknown(specs: Specs, spec_id: int | None, sort_by: Sequence[str] | None) -> None:
    """Reject a spec that the table does not have, and fields that none of the considered specs has."""
    if spec_id is not None and spec_id not in specs.by_id:
        raise UnknownName("partition spec", spec_id, sorted(specs.by_id), "the table")
    spec_ids = sorted(specs.by_id) if spec_id is None else [spec_id]
    field_names = list(dict.fromkeys(name for s in spec_ids for name in _column_by_field_name(specs, s)))
    for name in sort_by or ():
        if name not in field_names:
            where = "the table" if spec_id is None else f"partition spec {spec_id}"
            raise UnknownName("partition field", name, field_names, where)
