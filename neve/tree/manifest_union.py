"""Find the distinct manifests among those of several snapshots, so that each is read once.

In a version 4 tree a leaf stays as it is while the root hides more and more of its rows: snapshots then list states of
one leaf. They become one state that shows every row that one of them shows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from neve.io.mumbling import encode_positions
from neve.tree.entries import Manifest
from neve.tree.v4.leaf import hidden_rows, leaf_of


def unite_manifests(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return each manifest once, in the order of its first appearance."""
    states: dict[Hashable, dict[str, Manifest]] = {}
    for manifest in manifests:
        states.setdefault(_identity(manifest), {}).setdefault(manifest.path, manifest)
    return [_unite_states([*by_path.values()]) for by_path in states.values()]


def _identity(manifest: Manifest) -> Hashable:
    """Return what the states of one leaf have in common; the rows that one snapshot removed are a manifest apart."""
    is_state = manifest.is_tracked and not manifest.is_inline and not leaf_of(manifest).shows_removed
    return (manifest.file, manifest.is_deletes) if is_state else manifest.path


def _unite_states(states: Sequence[Manifest]) -> Manifest:
    complete = next((m for m in states if not m.hides_entries), None)
    if complete is not None or len(states) == 1:
        return complete or states[0]
    hidden = reduce(np.intersect1d, map(hidden_rows, states))
    leaf = replace(leaf_of(states[0]), hidden_bitmap=encode_positions(hidden), hidden_count=len(hidden))
    return replace(states[0], leaf=leaf)
