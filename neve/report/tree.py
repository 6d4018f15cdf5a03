"""The section about the metadata tree: the files and bytes that a reader needs before it knows which files to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from neve.display.format import format_size, plural
from neve.display.html import Markup, tag
from neve.ops.context import TableContext
from neve.report.html import NumberCell, bar, panel, size_cell, table
from neve.report.values import ManifestGroup, MetadataTree, Report
from neve.tree.entries import MIXED_SPECS, Manifest
from neve.tree.read import has_parquet_root

_MOST_ROWS = 100


def tree_of(
    context: TableContext, manifests: Sequence[Manifest], live_counts: Mapping[str, int], root_bytes: int
) -> MetadataTree:
    """Return the tree of the current snapshot, with its manifests grouped by kind and spec."""
    snapshot = context.metadata.current_snapshot()
    groups: dict[tuple[str, int, bool], list[Manifest]] = {}
    for manifest in (m for m in manifests if live_counts.get(m.path) or not m.is_view):
        groups.setdefault((_manifest_kind(manifest), manifest.spec_id, manifest.is_inline), []).append(manifest)
    nodes = []
    for (kind, spec_id, is_inline), group in sorted(groups.items()):
        sizes = {m.file: m.length for m in group if not (m.is_view or m.is_inline)}
        files = sum(live_counts.get(m.path, 0) for m in group)
        nodes.append(ManifestGroup(kind, spec_id, len(group), sum(sizes.values()), files, is_inline))
    largest = sorted((m for m in manifests if not (m.is_view or m.is_inline)), key=lambda m: -m.length)[:_MOST_ROWS]
    metadata_bytes = 0
    with suppress(OSError, ValueError):  # the storage does not report sizes
        metadata_bytes = len(context.io.new_input(context.iceberg.metadata_location))
    return MetadataTree(
        metadata_bytes,
        "root of version 4" if snapshot is not None and has_parquet_root(snapshot) else "manifest list",
        root_bytes,
        tuple(nodes),
        tuple((m, live_counts.get(m.path, 0)) for m in largest),
        len({m.file for m in manifests if not m.is_inline}),
    )


def _manifest_kind(manifest: Manifest) -> str:
    return "vectors" if manifest.is_view else "deletes" if manifest.is_deletes else "data"


_LABELS = {"data": "data files", "vectors": "vectors, stored with data files"}


def tree_section(report: Report) -> Markup:
    """Render the levels of the tree with their bytes, and the largest manifests."""
    tree = report.tree
    if report.metadata.current_snapshot_id is None:
        return panel("tree", "Metadata tree", "There is no snapshot, and so no tree.")
    manifest_size = format_size(sum(node.bytes for node in tree.nodes))
    lede = (
        f"A reader goes from the metadata file ({format_size(tree.metadata_bytes)}) to the {tree.root_kind} "
        f"({format_size(tree.root_bytes)}), and from there to {plural(tree.manifests, 'manifest')} ({manifest_size}); "
        "filters on partitions skip some of them."
    )
    most = max(tree.metadata_bytes, tree.root_bytes, *(node.bytes for node in tree.nodes), 1)
    leaves = []
    for node in tree.nodes:
        spec = "several specs" if node.spec_id == MIXED_SPECS else f"spec {node.spec_id}"
        where = "in the root itself" if node.is_inline else plural(node.manifests, "manifest")
        label = f"{_LABELS.get(node.kind, node.kind)} of {spec}"
        entries = f"{node.files:,} {'entry' if node.files == 1 else 'entries'}"
        leaves.append(tag("li", _tree_line(label, f"{where}, {entries}", node.bytes, most, node.kind)))
    root = tag("li", _tree_line(tree.root_kind, "", tree.root_bytes, most, "root"), tag("ul", *leaves))
    top = tag("li", _tree_line("metadata file", "", tree.metadata_bytes, most, "top"), tag("ul", root))
    heads = ("Manifest", "Kind", "Spec", "Bytes", "Live entries", "Entries not live", "Sequence number")
    rows = (
        (
            m.file.rsplit("/", 1)[-1],
            _manifest_kind(m),
            NumberCell(-1, "several") if m.spec_id == MIXED_SPECS else m.spec_id,
            size_cell(m.length),
            live_entries,
            (m.deleted_files or 0) + m.hidden_files,
            m.sequence_number,
        )
        for m, live_entries in tree.largest_manifests
    )
    shown = len(tree.largest_manifests)
    note = f"The {shown:,} largest of {tree.manifests:,}." if shown < tree.manifests else ""
    largest = table("Manifests", heads, rows, note) if shown else ""
    return panel("tree", "Metadata tree", lede, tag("ul", top, class_="tree"), largest)


def _tree_line(label: str, aside: str, bytes_: int, most: int, colour: str) -> Markup:
    text = tag("span", label, tag("span", f" {aside}", class_="aside") if aside else "", class_="label")
    value = tag("span", format_size(bytes_) if bytes_ else "–", class_="value")
    return tag("div", text, bar([(f"t-{colour}", bytes_)], most), value, class_="line")
