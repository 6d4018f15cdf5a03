"""The map of partitions: a square for each, coloured by file size, deletes, or what a compaction would do."""

from __future__ import annotations

from collections.abc import Iterator

from neve.display.format import listed, several, share, size
from neve.display.html import Markup, joined, tag
from neve.report.parts.pieces import Amount, amount, legend, name, panel, sized, table
from neve.report.values import Amounts, Cell, Report, Sizes, SpecFacts

__all__ = ["section", "size_class"]

_HELP = "Point at a square, or step through a map with the arrow keys."
_WAYS = (("size", "file size"), ("deletes", "deletes"), ("fate", "what a compaction takes"))
_MOST_UNUSED = 20
_DELETES = ((0.3, "d3"), (0.1, "d2"), (0.0, "d1"))


def section(report: Report) -> Markup:
    """Every spec that has files, each with its map; then the partitions that are worst off."""
    lede = (
        f"{several(report.partitions, 'partition')} under {several(len(report.specs_in_use), 'spec')}: a square is a "
        f"partition, or neighbours where there are too many. {_HELP}"
    )
    specs = joined(_spec(spec, report) for spec in report.specs_in_use)
    maps = tag("div", _choice(), _legends(report), specs, id="maps")
    return panel("map", "Partitions", lede, maps if report.specs_in_use else "", _unused(report), _worst(report))


def size_class(mean: float, sizes: Sizes) -> str:
    """The colour of a mean file size, by how far it is from what is aimed at."""
    edges = ((sizes.target / 64, "s0"), (sizes.target / 8, "s1"), (sizes.least, "s2"), (sizes.most, "s3"))
    return next((colour for edge, colour in edges if mean < edge), "s4")


def _choice() -> Markup:
    made = (
        tag("label", tag("input", type="radio", name="way", id=f"by-{way}", checked=way == "size"), text)
        for way, text in _WAYS
    )
    return tag("fieldset", tag("legend", "Colour by"), joined(made), class_="choice")


def _legends(report: Report) -> Markup:
    sizes = report.sizes
    edges = [size(edge) for edge in (sizes.target / 64, sizes.target / 8, sizes.least, sizes.most)]
    by_size = (
        ("s0", f"mean below {edges[0]}"),
        ("s1", f"below {edges[1]}"),
        ("s2", f"below {edges[2]}"),
        ("s3", "good"),
        ("s4", f"above {edges[3]}"),
    )
    by_deletes = (
        ("d0", "no deletes"),
        ("d1", "under 10 % of rows deleted"),
        ("d2", "10 to 30 %"),
        ("d3", "30 % or more"),
        ("d4", "deletes by value: share unknown"),
    )
    by_fate = (("c0", "left alone"), ("c1", "some files taken"), ("c2", "all files taken"))
    marks = [("u", "filter could not be judged: taken")] if report.total.undecided else []
    marks += [("o", "outside the filter")] if report.total.outside else []
    made = (legend(by_size, "size"), legend(by_deletes, "deletes"), legend(by_fate, "fate"))
    return joined((*made, legend(marks, "marks") if marks else ""))


def _spec(spec: SpecFacts, report: Report) -> Markup:
    fields = ", ".join(f"{field} ({transform})" for _, field, transform, _ in spec.fields if transform != "void")
    current = tag("span", "current", class_="badge") if spec.is_default else ""
    title = tag(
        "h3", f"Spec {spec.spec_id} ", current, " ", tag("span", name(fields or "not partitioned"), class_="by")
    )
    amounts = spec.amounts
    said = [several(spec.partitions, "partition"), several(amounts.files, "file"), size(amounts.bytes)]
    if len(spec.cells) < spec.partitions:
        said.append(f"up to {max(cell.partitions for cell in spec.cells):,} partitions to a square")
    cells = joined(_square(spec.spec_id, at, cell, report.sizes) for at, cell in enumerate(spec.cells))
    label = f"Map of the partitions of spec {spec.spec_id}. {_HELP}"
    squares = tag("div", cells, class_="map", role="listbox", tabindex="0", aria_label=label)
    ends = tag("p", tag("span", name(spec.cells[0].first)), tag("span", name(spec.cells[-1].last)), class_="ends")
    return tag("div", title, tag("p", " · ".join(said), class_="note"), squares, ends, class_="spec")


def _unused(report: Report) -> Markup:
    """The specs that nothing is stored under."""
    ids = [str(spec.spec_id) for spec in report.specs if not spec.amounts.files]
    if not ids:
        return Markup()
    shown = ids if len(ids) <= _MOST_UNUSED else [*ids[:_MOST_UNUSED], f"{len(ids) - _MOST_UNUSED:,} more"]
    what = f"spec {ids[0]}" if len(ids) == 1 else f"specs {listed(shown)}"
    return tag("p", f"No live file is under {what}.", class_="note")


def _square(spec_id: int, at: int, cell: Cell, sizes: Sizes) -> Markup:
    label = " · ".join(_sayings(cell))
    classes = " ".join(_classes(cell.amounts, sizes))
    return tag("i", role="option", id=f"m{spec_id}-{at}", class_=classes, aria_label=label)


def _classes(amounts: Amounts, sizes: Sizes) -> Iterator[str]:
    yield size_class(amounts.mean, sizes)
    yield _delete_class(amounts)
    yield "c2" if amounts.taken == amounts.files else "c1" if amounts.taken else "c0"
    if amounts.undecided:
        yield "u"
    if amounts.outside == amounts.files:
        yield "o"


def _delete_class(amounts: Amounts) -> str:
    if not amounts.delete_files:
        return "d0"
    if amounts.has_equality_deletes:
        return "d4"
    return next(colour for edge, colour in _DELETES if amounts.deleted_share >= edge)


def _sayings(cell: Cell) -> Iterator[str]:
    amounts = cell.amounts
    yield cell.first if cell.partitions == 1 else f"{cell.first} to {cell.last}"
    if cell.partitions > 1:
        yield several(cell.partitions, "partition")
    yield f"{several(amounts.files, 'file')}, {size(amounts.bytes)}, {size(amounts.mean)} on average"
    if amounts.delete_files:
        yield f"delete files apply {amounts.delete_files:,} times, {share(amounts.deleted_share)} of rows deleted"
    if amounts.undecided:
        yield "the filter could not be judged here"
    elif amounts.outside == amounts.files:
        yield "outside the filter"
    yield f"a compaction takes {several(amounts.taken, 'file')}" if amounts.taken else "a compaction leaves it alone"


def _worst(report: Report) -> Markup:
    if not report.worst_partitions:
        return Markup()
    has_filter = report.pruning.given is not None
    heads = ("Partition", "Spec", "Files", "Taken", "Bytes", "Mean size", "Deletes applied", "Rows deleted", "Filter")
    rows = (_row(spec_id, cell)[: 9 if has_filter else 8] for spec_id, cell in report.worst_partitions)
    shown, known = len(report.worst_partitions), report.partitions
    note = f"The {shown:,} of {known:,} that a compaction would do most for." if shown < known else ""
    return table("Partitions", heads[: 9 if has_filter else 8], rows, note)


def _row(spec_id: int, cell: Cell) -> tuple[Amount | str, ...]:
    found = cell.amounts
    judged = "not judged" if found.undecided else "outside" if found.outside == found.files else "inside"
    return (
        cell.first,
        amount(spec_id),
        amount(found.files),
        amount(found.taken),
        sized(found.bytes),
        sized(found.mean),
        amount(found.delete_files),
        Amount(found.deleted_share, share(found.deleted_share)),
        judged,
    )
