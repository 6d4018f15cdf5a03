"""The metadata tree: what a reader goes through before it knows which files to read."""

from __future__ import annotations

from neve.display.format import several, size
from neve.display.html import Markup, joined, tag
from neve.report.parts.pieces import Amount, amount, bar, panel, sized, table
from neve.report.values import ManifestRow, Node, Report, Tree

__all__ = ["section"]

_LABELS = {"data": "data files", "vectors": "vectors, beside data files"}


def section(report: Report) -> Markup:
    """The levels of the tree with their bytes, and the largest manifests."""
    tree = report.tree
    if report.snapshot_id is None:
        return panel("tree", "Metadata tree", "There is no snapshot, and so no tree.")
    bytes_ = sum(node.bytes for node in tree.nodes)
    lede = (
        f"A reader goes from the metadata file ({size(tree.metadata_bytes)}) to the {tree.root_kind} "
        f"({size(tree.root_bytes)}), and from there to {several(tree.manifests, 'manifest')} ({size(bytes_)}); filters "
        "on partitions spare it some of them."
    )
    return panel("tree", "Metadata tree", lede, _drawn(tree), _largest(tree))


def _drawn(tree: Tree) -> Markup:
    """Levels below each other; bars compare their bytes."""
    most = max(tree.metadata_bytes, tree.root_bytes, *(node.bytes for node in tree.nodes), 1)
    leaves = tag("ul", joined(_node(node, most) for node in tree.nodes))
    root = tag("li", _line(tree.root_kind, "", tree.root_bytes, most, "root"), leaves)
    top = tag("li", _line("metadata file", "", tree.metadata_bytes, most, "top"), tag("ul", root))
    return tag("ul", top, class_="tree")


def _node(node: Node, most: int) -> Markup:
    spec = "several specs" if node.spec_id is None else f"spec {node.spec_id}"
    where = "in the root itself" if node.is_inline else several(node.manifests, "manifest")
    label = f"{_LABELS.get(node.kind, node.kind)} of {spec}"
    entries = f"{node.files:,} {'entry' if node.files == 1 else 'entries'}"
    return tag("li", _line(label, f"{where}, {entries}", node.bytes, most, node.kind))


def _line(label: str, aside: str, bytes_: int, most: int, colour: str) -> Markup:
    said = tag("span", label, tag("span", f" {aside}", class_="aside") if aside else "", class_="label")
    value = tag("span", size(bytes_) if bytes_ else "–", class_="value")
    return tag("div", said, bar([(f"t-{colour}", bytes_)], most), value, class_="line")


def _largest(tree: Tree) -> Markup:
    if not tree.largest:
        return Markup()
    heads = ("Manifest", "Of", "Spec", "Bytes", "Live entries", "Not live any more", "Sequence number")
    note = f"The {len(tree.largest):,} largest of {tree.manifests:,}." if len(tree.largest) < tree.manifests else ""
    return table("Manifests", heads, map(_row, tree.largest), note)


def _row(row: ManifestRow) -> tuple[Amount | str, ...]:
    spec = Amount(-1, "several") if row.spec_id is None else amount(row.spec_id)
    numbers = (sized(row.bytes), amount(row.files), amount(row.tombstones), amount(row.sequence_number))
    return (row.path.rsplit("/", 1)[-1], row.kind, spec, *numbers)
