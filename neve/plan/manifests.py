"""Which manifests are worth rewriting, and how their files are grouped then.

Files that are close in the fields given stand in the same manifest, so the ranges of its partition summary are narrow
and a filter on these fields opens few manifests. Data and delete files, and the files of each spec, stay apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.transforms import VoidTransform

from neve.display.format import plural
from neve.display.html import ExplainMixin
from neve.errors import UnknownName
from neve.model.partition import Specs
from neve.tree.entries import EntryTable, Manifest

_TOO_LARGE = 1.5  # of the target: a manifest that is larger is worth splitting
_TOO_SMALL = 0.75  # of the target: what manifests hold on average when there are no more than needed


@dataclass(frozen=True)
class ManifestGroup:
    """Manifests of one spec and kind that are rewritten together."""

    spec_id: int
    is_deletes: bool
    manifests: tuple[Manifest, ...]
    entries: EntryTable  # the live files, with the ordinal of their manifest among `manifests`
    pieces: int  # the manifests they are to fill; none when they hold no live files
    reason: str

    @property
    def bytes(self) -> int:
        """The size of the manifests that go."""
        return sum(m.length for m in self.manifests)


@dataclass(frozen=True)
class ManifestPlan(ExplainMixin):
    """The manifests of a snapshot that are rewritten."""

    snapshot_id: int | None
    groups: tuple[ManifestGroup, ...] = ()
    manifests_kept: int = 0

    @property
    def manifests(self) -> int:
        """How many manifests are rewritten."""
        return sum(len(g.manifests) for g in self.groups)

    @property
    def files(self) -> int:
        """How many live files they hold."""
        return sum(len(g.entries) for g in self.groups)

    def explain(self) -> str:
        """The plan in words."""
        if not self.groups:
            return f"nothing to rewrite: {plural(self.manifests_kept, 'manifest')}, as it should be"
        return "\n".join([*map(_describe_group, self.groups), f"keep {plural(self.manifests_kept, 'manifest')}"])


def _describe_group(group: ManifestGroup) -> str:
    kind = "delete" if group.is_deletes else "data"
    if not group.pieces:
        return f"drop {plural(len(group.manifests), f'{kind} manifest')} of spec {group.spec_id}: {group.reason}"
    files = f"{plural(len(group.entries), f'{kind} file')} of spec {group.spec_id}"
    return f"rewrite {plural(len(group.manifests), 'manifest')} with {files} to {group.pieces}: {group.reason}"


def plan_manifests(
    manifests: Sequence[Manifest],
    entries: EntryTable,
    target: int,
    *,
    spec_id: int | None = None,
    sort_by: Sequence[str] | None = None,
    snapshot_id: int | None = None,
) -> ManifestPlan:
    """Choose the manifests of a snapshot to rewrite; `entries` are their live files, with ordinals in `manifests`.

    Without a spec id every spec is looked at. `sort_by` names partition fields; a spec that lacks some of them is
    sorted by those it has, and by all of its own when it has none.
    """
    _refuse_unknown(entries.specs, spec_id, sort_by)
    found = [
        _build_group(manifests, rows, entries, target, sort_by)
        for rows in _ordinals_by_kind_and_spec(manifests, spec_id)
    ]
    groups = tuple(g for g in map(_part_worth_rewriting, found) if g is not None)
    return ManifestPlan(snapshot_id, groups, len(manifests) - sum(len(g.manifests) for g in groups))


def _ordinals_by_kind_and_spec(manifests: Sequence[Manifest], spec_id: int | None) -> Iterator[list[int]]:
    """The ordinals of the manifests of each spec and kind, data before deletes."""
    keys = [(m.is_deletes, m.spec_id) for m in manifests]
    for key in sorted(set(keys)):
        if spec_id is None or key[1] == spec_id:
            yield [at for at, other in enumerate(keys) if other == key]


def _build_group(
    manifests: Sequence[Manifest], rows: list[int], entries: EntryTable, target: int, sort_by: Sequence[str] | None
) -> ManifestGroup:
    """Manifests of one spec and kind, whether they are worth rewriting or not."""
    own = tuple(manifests[at] for at in rows)
    live = entries.filter(pa.array(np.isin(entries.numpy("manifest"), rows)))
    live = live.with_columns(manifest=np.searchsorted(rows, live.numpy("manifest")))
    reason = _rewrite_reason(own, live, target, sort_by) if len(live) else ""
    pieces = max(1, -(-_live_bytes(own) // target))
    return ManifestGroup(own[0].spec_id, own[0].is_deletes, own, live, pieces, reason)


def _part_worth_rewriting(group: ManifestGroup) -> ManifestGroup | None:
    """What of a group is rewritten: all of it, or those manifests that only say which files have gone.

    Such a manifest would keep its spec in the table for ever. Its own snapshot still has it, and says what it did.
    """
    if group.reason:
        return group
    live = set(group.entries.numpy("manifest").tolist())
    empty = tuple(m for at, m in enumerate(group.manifests) if at not in live)
    if not empty:
        return None
    nothing = group.entries.take([])
    return replace(group, manifests=empty, entries=nothing, pieces=0, reason="their files are gone")


def _rewrite_reason(manifests: Sequence[Manifest], live: EntryTable, target: int, sort_by: Sequence[str] | None) -> str:
    """Why manifests of one spec and kind are worth rewriting; empty when they are not."""
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
    """About how much of manifests is live files; tombstones do not come along."""
    shares = ((m.length, (m.added_files or 0) + (m.existing_files or 0), m.deleted_files or 0) for m in manifests)
    return sum(length * live // (live + dead) if live + dead else length for length, live, dead in shares)


def _have_overlapping_ranges(live: EntryTable, sort_by: Sequence[str] | None) -> bool:
    """Whether manifests hold files of the same ranges, beyond a partition that two neighbours share."""
    for spec_id, files in live.by_spec():
        places, ordinals = _value_ranks(files, _columns_at_hand(files.specs, spec_id, sort_by)), files.numpy("manifest")
        holders, of_file = np.unique(ordinals, return_inverse=True)
        first, last = np.full(len(holders), len(files)), np.full(len(holders), -1)
        np.minimum.at(first, of_file, places)
        np.maximum.at(last, of_file, places)
        order = np.lexsort((last, first))
        if (last[order][:-1] > first[order][1:]).any():
            return True
    return False


def _value_ranks(files: EntryTable, columns: Sequence[str]) -> NDArray[np.int64]:
    """For each file its place among the distinct values of some columns, in their order."""
    order = _sort_indices(files, columns)
    moves = np.zeros(len(files), bool)
    for column in (files[c].take(order) for c in columns):
        plain = column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column
        codes = plain.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        moves[1:] |= np.diff(codes) != 0
    places = np.empty(len(files), np.int64)
    places[order.to_numpy()] = np.cumsum(moves)
    return places


def cluster_by_partition(
    entries: EntryTable, spec_id: int, pieces: int, sort_by: Sequence[str] | None = None
) -> tuple[EntryTable, ...]:
    """Files of one spec in groups of about the same size, one to a manifest, in the order of some partition fields.

    `sort_by` names fields of the spec; without it all of them count, in the order of the spec. Files that are equal in
    these fields stay in the order they came, as do the files of an unpartitioned spec.
    """
    columns = _sort_columns(entries.specs, spec_id, sort_by)
    entries = entries.take(_sort_indices(entries, columns)) if columns else entries
    groups = np.array_split(np.arange(len(entries)), max(1, min(pieces, len(entries))))
    return tuple(entries.take(rows) for rows in groups if len(rows))


def regroup_entries(group: ManifestGroup, entries: EntryTable, sort_by: Sequence[str] | None) -> tuple[EntryTable, ...]:
    """The files of a group, given with all their details, as its new manifests hold them."""
    found: list[EntryTable] = []
    for spec_id, files in entries.by_spec():
        pieces = max(1, round(group.pieces * len(files) / len(entries)))
        found += cluster_by_partition(files, spec_id, pieces, _sort_fields_of_spec(files.specs, spec_id, sort_by))
    return tuple(found)


def _sort_indices(entries: EntryTable, columns: Sequence[str]) -> pa.Array:
    sortable = [c for c in columns if not pa.types.is_null(entries[c].type)]
    if not sortable:
        return pa.array(np.arange(len(entries)))
    return pc.sort_indices(entries.columns, sort_keys=[(column, "ascending") for column in sortable])


def _sort_columns(specs: Specs, spec_id: int, sort_by: Sequence[str] | None) -> list[str]:
    """The columns that hold the fields named; a field that was dropped and left void separates nothing."""
    known = _column_by_field_name(specs, spec_id)
    for name in sort_by or ():
        if name not in known:
            raise UnknownName("partition field", name, list(known), f"partition spec {spec_id}")
    return [known[name] for name in (known if sort_by is None else sort_by)]


def _column_by_field_name(specs: Specs, spec_id: int) -> dict[str, str]:
    """The fields of a spec that separate rows, with their columns."""
    fields = zip(specs[spec_id].fields, specs.columns(spec_id), strict=True)
    return {f.name: column for f, column in fields if not isinstance(f.transform, VoidTransform)}


def _sort_fields_of_spec(specs: Specs, spec_id: int, sort_by: Sequence[str] | None) -> list[str] | None:
    known = _column_by_field_name(specs, spec_id)
    return [name for name in sort_by or () if name in known] or None


def _columns_at_hand(specs: Specs, spec_id: int, sort_by: Sequence[str] | None) -> list[str]:
    return _sort_columns(specs, spec_id, _sort_fields_of_spec(specs, spec_id, sort_by))


def _refuse_unknown(specs: Specs, spec_id: int | None, sort_by: Sequence[str] | None) -> None:
    """Refuse a spec the table does not have, and fields that no spec in question has."""
    if spec_id is not None and spec_id not in specs.by_id:
        raise UnknownName("partition spec", spec_id, sorted(specs.by_id), "the table")
    asked = sorted(specs.by_id) if spec_id is None else [spec_id]
    known = list(dict.fromkeys(name for s in asked for name in _column_by_field_name(specs, s)))
    for name in sort_by or ():
        if name not in known:
            where = "the table" if spec_id is None else f"partition spec {spec_id}"
            raise UnknownName("partition field", name, known, where)
