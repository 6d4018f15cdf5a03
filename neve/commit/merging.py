"""Merge small manifests when committing: kinds and specs never mix, and the newest bin waits until it is full.

Manifests are packed from the oldest end, so the bin that is not full is the newest one and old bins stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neve.commit.scratch import Scratch
from neve.commit.window import Base
from neve.tree.entries import Manifest

__all__ = ["merge_manifests", "pack_from_end"]


def merge_manifests(base: Base, manifests: Sequence[Manifest], scratch: Scratch) -> list[Manifest]:
    """Manifests of one kind, newest first, with the small ones merged."""
    mergeable = [m for m in manifests if base.shape.can_merge(m)]
    if not mergeable or not base.properties.manifest_merge:
        return list(manifests)
    newest = mergeable[0]
    by_spec: dict[int, list[Manifest]] = {}
    for manifest in mergeable:
        by_spec.setdefault(manifest.spec_id, []).append(manifest)
    bins = (
        b
        for spec in sorted(by_spec, reverse=True)
        for b in pack_from_end(by_spec[spec], base.properties.manifest_target_size)
    )
    others = [m for m in manifests if not base.shape.can_merge(m)]
    return [*(m for b in bins for m in _merged(base, b, newest, scratch)), *others]


def _merged(base: Base, together: list[Manifest], newest: Manifest, scratch: Scratch) -> list[Manifest]:
    waits = newest in together and len(together) < base.properties.manifest_min_count
    if len(together) == 1 or waits:
        return together
    key = tuple(m.path for m in together)
    if key not in scratch.merged:
        scratch.merged[key] = base.shape.write_merged(base.io, together, scratch.context(base))
    return scratch.merged[key]


def pack_from_end(manifests: Sequence[Manifest], target: int) -> list[list[Manifest]]:
    """Neighbouring manifests in bins of at most `target` bytes, filled from the last one on."""
    return list(_packed(manifests, target))[::-1]


def _packed(manifests: Sequence[Manifest], target: int) -> Iterator[list[Manifest]]:
    filling: list[Manifest] = []
    size = 0
    for manifest in reversed(manifests):
        if filling and size + manifest.length > target:
            yield filling[::-1]
            filling, size = [], 0
        filling.append(manifest)
        size += manifest.length
    if filling:
        yield filling[::-1]
