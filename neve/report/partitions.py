"""The section about partitions: a map with a square for each, coloured by file size, deletes or planned compaction.

Every spec has its own map, in the order of partition values. If a spec has too many partitions, neighbours share a
square.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import TimeTransform, UnknownTransform, VoidTransform
from pyiceberg.types import IcebergType, UUIDType

from neve.display.format import format_percent, format_size, join_with_and, plural, readable_values
from neve.display.html import Markup, join_markup, shorten_middle, tag
from neve.model.partition import partition_text
from neve.report.counting import FileMeasures, totals_of
from neve.report.history import describe_spec
from neve.report.html import NumberCell, legend, name_markup, panel, size_cell, table
from neve.report.values import FileSizes, FileTotals, MapCell, Report, SpecFacts
from neve.tree.entries import EntryTable

_MOST_CELLS = 2400  # of all specs together
_MOST_CELLS_OF_SPEC = 600
_FEWEST_CELLS_OF_SPEC = 12
_LONGEST_LABEL = 120
_LONGEST_VALUE = 60


@dataclass(frozen=True)
class _Partitions:
    """The partitions of a table in the order of spec and values, and the partition of every file."""

    keys: EntryTable
    partition_numbers: NDArray[np.int64]  # by file
    spec_ids: NDArray[np.int32]  # by partition

    @classmethod
    def of(cls, files: EntryTable) -> _Partitions:
        codes, keys = files.partition_codes()
        with_values = [u.column for u in files.specs.union if keys[u.column].null_count < len(keys)]
        order = pc.sort_indices(keys.columns, [(name, "ascending") for name in ("spec_id", *with_values)]).to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        sorted_keys = keys.take(order)
        return cls(sorted_keys, rank[codes], sorted_keys.numpy("spec_id"))

    def __len__(self) -> int:
        return len(self.keys)

    def labels(self, rows: Sequence[int]) -> list[str]:
        """Return the labels of some partitions: the fields that separate rows, with their values."""
        keys = self.keys.take(rows)
        specs, spec_ids = keys.specs, keys["spec_id"].to_pylist()
        values = {u.column: readable_values(keys[u.column]) for u in specs.union}
        fields = {
            spec_id: [
                (shorten_middle(field.name, _LONGEST_VALUE), field, specs.result_type(field), values[column])
                for column, field in zip(specs.columns(spec_id), specs[spec_id].fields, strict=True)
                if not isinstance(field.transform, VoidTransform)
            ]
            for spec_id in set(spec_ids)
        }
        labels = []
        for row, spec_id in enumerate(spec_ids):
            texts = (f"{name}={_value_text(f, kind, column[row])}" for name, f, kind, column in fields[spec_id])
            labels.append(shorten_middle(", ".join(texts), _LONGEST_LABEL) or "not partitioned")
        return labels


def spec_facts(measures: FileMeasures, default_id: int) -> tuple[SpecFacts, ...]:
    """Return every spec with the cells of its map."""
    specs, partitions = measures.files.specs, _Partitions.of(measures.files)
    _, first_of_spec, counts = np.unique(partitions.spec_ids, return_index=True, return_counts=True)
    most = min(_MOST_CELLS_OF_SPEC, max(_FEWEST_CELLS_OF_SPEC, _MOST_CELLS // max(len(counts), 1)))
    starts_by_spec = [  # partitions share a cell if a spec has more than its share of cells
        first + np.arange(cells := min(count, most)) * count // cells
        for first, count in zip(first_of_spec.tolist(), counts.tolist(), strict=True)
    ]
    starts = np.concatenate(starts_by_spec) if starts_by_spec else np.empty(0, np.int64)
    ends = np.append(starts[1:], len(partitions))[: len(starts)]
    cell_of_partition = np.repeat(np.arange(len(starts)), ends - starts)
    totals = measures.totals_by_group(cell_of_partition[partitions.partition_numbers], len(starts))
    firsts, lasts = partitions.labels(starts.tolist()), partitions.labels((ends - 1).tolist())
    cells_by_spec: dict[int, list[MapCell]] = {spec_id: [] for spec_id in specs.by_id}
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        cell = MapCell(firsts[index], lasts[index], end - start, totals_of(totals, index))
        cells_by_spec[int(partitions.spec_ids[start])].append(cell)
    spec_ids = sorted(specs.by_id)
    spec_of_file = np.searchsorted(spec_ids, measures.files.numpy("spec_id"))
    totals_by_spec = measures.totals_by_group(spec_of_file, len(spec_ids))
    return tuple(
        SpecFacts(
            spec_id,
            spec_id == default_id,
            describe_spec(specs[spec_id]),
            sum(cell.partitions for cell in cells_by_spec[spec_id]),
            totals_of(totals_by_spec, number),
            tuple(cells_by_spec[spec_id]),
            tuple(f.name for f in specs[spec_id].fields if isinstance(f.transform, UnknownTransform)),
        )
        for number, spec_id in enumerate(spec_ids)
    )


def worst_partitions(measures: FileMeasures, most: int) -> tuple[tuple[tuple[int, MapCell], ...], int]:
    """Return the partitions that benefit most from a compaction, with their spec ids, and the number of partitions."""
    partitions = _Partitions.of(measures.files)
    totals = measures.totals_by_group(partitions.partition_numbers, len(partitions))
    order = np.lexsort((-totals["bytes"], -totals["files"], -totals["delete_files"], -totals["taken"]))
    worst = order[:most].tolist()
    rows = tuple(
        (int(partitions.spec_ids[number]), MapCell(label, label, 1, totals_of(totals, number)))
        for number, label in zip(worst, partitions.labels(worst), strict=True)
    )
    return rows, len(partitions)


def _value_text(field: PartitionField, kind: IcebergType, value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return str(UUID(bytes=value)) if isinstance(kind, UUIDType) else f"0x{value[:16].hex()}"
    if isinstance(value, int) and isinstance(field.transform, TimeTransform):
        return partition_text(field.transform, kind, value)
    return shorten_middle(str(value), _LONGEST_VALUE)


_HELP = "Point at a square, or step through a map with the arrow keys."
_COLOURINGS = (("size", "file size"), ("deletes", "deletes"), ("fate", "what a compaction rewrites"))
_MOST_UNUSED = 20
_DELETE_CLASSES = ((0.3, "d3"), (0.1, "d2"), (0.0, "d1"))


def partitions_section(report: Report) -> Markup:
    """Render the map of every spec that has files, then the partitions that benefit most from a compaction."""
    lede = (
        f"{plural(report.partitions, 'partition')} under {plural(len(report.specs_in_use), 'spec')}: each square is a "
        f"partition, or several neighbouring ones if there are too many. {_HELP}"
    )
    specs = join_markup(_spec_map(spec, report) for spec in report.specs_in_use)
    colourings = (
        tag("label", tag("input", type="radio", name="way", id=f"by-{way}", checked=way == "size"), text)
        for way, text in _COLOURINGS
    )
    choice = tag("fieldset", tag("legend", "Colour by"), join_markup(colourings), class_="choice")
    maps = tag("div", choice, _legends(report), specs, id="maps") if report.specs_in_use else ""
    unused: Markup | str = ""
    if ids := [str(spec.spec_id) for spec in report.specs if not spec.amounts.files]:
        shown = ids if len(ids) <= _MOST_UNUSED else [*ids[:_MOST_UNUSED], f"{len(ids) - _MOST_UNUSED:,} more"]
        what = f"spec {ids[0]}" if len(ids) == 1 else f"specs {join_with_and(shown)}"
        unused = tag("p", f"No live file is under {what}.", class_="note")
    return panel("map", "Partitions", lede, maps, unused, _worst_table(report))


def _legends(report: Report) -> Markup:
    sizes = report.sizes
    edges = [format_size(edge) for edge in (sizes.target / 64, sizes.target / 8, sizes.min_size, sizes.max_size)]
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
        ("d4", "equality deletes: share unknown"),
    )
    by_fate = (("c0", "left alone"), ("c1", "some files rewritten"), ("c2", "all files rewritten"))
    marks = [("u", "filter could not be evaluated: included")] if report.total.undecided else []
    marks += [("o", "outside the filter")] if report.total.outside else []
    legends = (legend(by_size, "size"), legend(by_deletes, "deletes"), legend(by_fate, "fate"))
    return join_markup((*legends, legend(marks, "marks") if marks else ""))


def _spec_map(spec: SpecFacts, report: Report) -> Markup:
    current = tag("span", "current", class_="badge") if spec.is_default else ""
    title = tag("h3", f"Spec {spec.spec_id} ", current, " ", tag("span", name_markup(spec.description), class_="by"))
    amounts = spec.amounts
    facts = [plural(spec.partitions, "partition"), plural(amounts.files, "file"), format_size(amounts.bytes)]
    if len(spec.cells) < spec.partitions:
        facts.append(f"up to {max(cell.partitions for cell in spec.cells):,} partitions per square")
    squares = join_markup(
        tag(
            "i",
            role="option",
            id=f"m{spec.spec_id}-{index}",
            class_=" ".join(_css_classes(cell.amounts, report.sizes)),
            aria_label=" · ".join(_cell_texts(cell)),
        )
        for index, cell in enumerate(spec.cells)
    )
    label = f"Map of the partitions of spec {spec.spec_id}. {_HELP}"
    grid = tag("div", squares, class_="map", role="listbox", tabindex="0", aria_label=label)
    ends = tag(
        "p", tag("span", name_markup(spec.cells[0].first)), tag("span", name_markup(spec.cells[-1].last)), class_="ends"
    )
    return tag("div", title, tag("p", " · ".join(facts), class_="note"), grid, ends, class_="spec")


def _css_classes(amounts: FileTotals, sizes: FileSizes) -> Iterator[str]:
    edges = ((sizes.target / 64, "s0"), (sizes.target / 8, "s1"), (sizes.min_size, "s2"), (sizes.max_size, "s3"))
    yield next((colour for edge, colour in edges if amounts.mean_size < edge), "s4")
    if not amounts.delete_files:
        yield "d0"
    elif amounts.has_equality_deletes:
        yield "d4"
    else:
        yield next(colour for edge, colour in _DELETE_CLASSES if amounts.deleted_share >= edge)
    yield "c2" if amounts.taken == amounts.files else "c1" if amounts.taken else "c0"
    if amounts.undecided:
        yield "u"
    if amounts.outside == amounts.files:
        yield "o"


def _cell_texts(cell: MapCell) -> Iterator[str]:
    amounts = cell.amounts
    yield cell.first if cell.partitions == 1 else f"{cell.first} to {cell.last}"
    if cell.partitions > 1:
        yield plural(cell.partitions, "partition")
    yield f"{plural(amounts.files, 'file')}, {format_size(amounts.bytes)}, {format_size(amounts.mean_size)} on average"
    if amounts.delete_files:
        share = format_percent(amounts.deleted_share)
        yield f"delete files apply {amounts.delete_files:,} times, {share} of rows deleted"
    if amounts.undecided:
        yield "the filter could not be evaluated here"
    elif amounts.outside == amounts.files:
        yield "outside the filter"
    yield f"a compaction rewrites {plural(amounts.taken, 'file')}" if amounts.taken else "a compaction leaves it alone"


def _worst_table(report: Report) -> Markup:
    if not report.worst_partitions:
        return Markup()
    width = 8 if report.filter_matrix.filter_facts is None else 9  # the last column is about the filter
    heads = ("Partition", "Spec", "Files", "To rewrite", "Bytes", "Mean size", "Deletes", "Rows deleted", "Filter")
    rows = []
    for spec_id, cell in report.worst_partitions:
        totals = cell.amounts
        deleted = NumberCell(totals.deleted_share, format_percent(totals.deleted_share))
        sizes = size_cell(totals.bytes), size_cell(totals.mean_size)
        decision = "not evaluated" if totals.undecided else "outside" if totals.outside == totals.files else "inside"
        row = (cell.first, spec_id, totals.files, totals.taken, *sizes, totals.delete_files, deleted, decision)
        rows.append(row[:width])
    shown, total = len(report.worst_partitions), report.partitions
    note = f"The {shown:,} of {total:,} that benefit most from a compaction." if shown < total else ""
    return table("Partitions", heads[:width], rows, note)
