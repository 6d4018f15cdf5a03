"""The metadata tree: how many files and bytes a reader goes through before it knows what to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.table.snapshots import Snapshot

from neve.ops.context import TableContext
from neve.report.values import ManifestRow, Node, Tree
from neve.tree.entries import MIXED_SPECS, Manifest
from neve.tree.read import is_root, read_listing

__all__ = ["listed", "tree_of"]

_MOST_ROWS = 100


def listed(context: TableContext, snapshot: Snapshot | None) -> tuple[tuple[Manifest, ...], int]:
    """The manifests of a snapshot, and the size of the file that lists them."""
    if snapshot is None:
        return (), 0
    manifests, _, length = read_listing(context.io, context.metadata, snapshot)
    return manifests, length


def tree_of(context: TableContext, manifests: Sequence[Manifest], held: Mapping[str, int], root_bytes: int) -> Tree:
    """The tree of the current snapshot, its manifests put together by kind and spec; `held` counts live entries."""
    snapshot = context.metadata.current_snapshot()
    groups: dict[tuple[str, int, bool], list[Manifest]] = {}
    for manifest in (m for m in manifests if held.get(m.path) or not m.is_view):
        groups.setdefault((_kind(manifest), manifest.spec_id, manifest.is_inline), []).append(manifest)
    largest = sorted((m for m in manifests if not (m.is_view or m.is_inline)), key=lambda m: -m.length)[:_MOST_ROWS]
    return Tree(
        _length(context, context.iceberg.metadata_location),
        "root of version 4" if snapshot is not None and is_root(snapshot) else "manifest list",
        root_bytes,
        tuple(_node(*key, some, held) for key, some in sorted(groups.items())),
        tuple(_row(m, held) for m in largest),
        len({m.file for m in manifests if not m.is_inline}),
    )


def _node(kind: str, spec_id: int, is_inline: bool, manifests: Sequence[Manifest], held: Mapping[str, int]) -> Node:
    sizes = {m.file: m.length for m in manifests if not (m.is_view or m.is_inline)}
    files = sum(held.get(m.path, 0) for m in manifests)
    return Node(kind, _spec(spec_id), len(manifests), sum(sizes.values()), files, is_inline)


def _row(manifest: Manifest, held: Mapping[str, int]) -> ManifestRow:
    return ManifestRow(
        manifest.file,
        _kind(manifest),
        _spec(manifest.spec_id),
        manifest.length,
        held.get(manifest.path, 0),
        (manifest.deleted_files or 0) + manifest.hidden_files,
        manifest.sequence_number,
    )


def _kind(manifest: Manifest) -> str:
    return "vectors" if manifest.is_view else "deletes" if manifest.is_deletes else "data"


def _spec(spec_id: int) -> int | None:
    return None if spec_id == MIXED_SPECS else spec_id


def _length(context: TableContext, path: str) -> int:
    """The size of a file; 0 when its storage does not tell."""
    try:
        return len(context.io.new_input(path))
    except (OSError, ValueError):
        return 0
