"""The map of partitions: every spec apart, in the order of its values, neighbours together where there are too many.

The map of partitions: a square for each, coloured by file size, deletes, or what a compaction would do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import TimeTransform, UnknownTransform, VoidTransform
from pyiceberg.types import IcebergType, UUIDType

from neve.display.format import format_percent, format_size, join_with_and, plural, readable_values
from neve.display.html import Markup, join_markup, shorten_middle, tag
from neve.model.partition import Specs, partition_text
from neve.report.counting import FileMeasures, GroupTotals
from neve.report.html import NumberCell, legend, name_markup, number_cell, panel, size_cell, table
from neve.report.values import FileSizes, FileTotals, MapCell, Report, SpecFacts
from neve.tree.entries import EntryTable

_MOST_CELLS = 2400  # of all specs together
_MOST_CELLS_OF_SPEC = 600
_FEWEST_CELLS_OF_SPEC = 12
_LONGEST_LABEL = 120
_LONGEST_VALUE = 60


@dataclass(frozen=True)
class _Partitions:
    """The partitions of a table in the order of spec and values, and the place of every file's partition there."""

    keys: EntryTable
    partition_numbers: NDArray[np.int64]  # by file
    spec_ids: NDArray[np.int32]  # by partition

    @classmethod
    def of(cls, files: EntryTable) -> _Partitions:
        codes, keys = files.partition_codes()
        holding = [u.column for u in files.specs.union if keys[u.column].null_count < len(keys)]
        order = pc.sort_indices(keys.columns, [(name, "ascending") for name in ("spec_id", *holding)]).to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        in_order = keys.take(order)
        return cls(in_order, rank[codes], in_order.numpy("spec_id"))

    def __len__(self) -> int:
        return len(self.keys)

    def labels(self, rows: Sequence[int]) -> list[str]:
        """What some partitions are called."""
        chosen = self.keys.take(rows)
        spec_ids = chosen["spec_id"].to_pylist()
        columns = {u.column: readable_values(chosen[u.column]) for u in chosen.specs.union}
        named = {spec_id: list(_named(chosen.specs, spec_id)) for spec_id in set(spec_ids)}
        return [
            _label([(field, kind, columns[column][at]) for column, field, kind in named[spec_id]])
            for at, spec_id in enumerate(spec_ids)
        ]


def spec_facts(measures: FileMeasures, default_id: int, first_seen: Mapping[int, int]) -> tuple[SpecFacts, ...]:
    """Every spec of the table, with the cells of its map; `first_seen` tells since when there are files of each."""
    found, specs = _Partitions.of(measures.files), measures.files.specs
    cells: dict[int, list[MapCell]] = {spec_id: [] for spec_id in specs.by_id}
    for spec_id, cell in _map_cells(measures, found):
        cells[spec_id].append(cell)
    return tuple(
        SpecFacts(
            spec_id,
            spec_id == default_id,
            tuple((f.field_id, f.name, str(f.transform), _source(specs, f)) for f in spec.fields),
            sum(cell.partitions for cell in cells[spec_id]),
            _sum_totals(cell.amounts for cell in cells[spec_id]),
            tuple(cells[spec_id]),
            first_seen.get(spec_id),
            tuple(f.name for f in spec.fields if isinstance(f.transform, UnknownTransform)),
        )
        for spec_id, spec in sorted(specs.by_id.items())
    )


def _map_cells(measures: FileMeasures, found: _Partitions) -> Iterator[tuple[int, MapCell]]:
    """The cells of all specs, in the order of spec and values."""
    starts = _starts_of_cells(found.spec_ids)
    ends = np.append(starts[1:], len(found))[: len(starts)]
    cell_of_partition = np.repeat(np.arange(len(starts)), ends - starts)
    sums = measures.totals_by_group(cell_of_partition[found.partition_numbers], len(starts))
    firsts, lasts = found.labels(starts.tolist()), found.labels((ends - 1).tolist())
    for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        yield int(found.spec_ids[start]), MapCell(firsts[at], lasts[at], end - start, sums.totals_of(at))


def _starts_of_cells(spec_ids: NDArray[np.int32]) -> NDArray[np.int64]:
    """Where each cell begins: a partition a cell, or as many together as bring a spec below its share of the map."""
    _, firsts, counts = np.unique(spec_ids, return_index=True, return_counts=True)
    most = min(_MOST_CELLS_OF_SPEC, max(_FEWEST_CELLS_OF_SPEC, _MOST_CELLS // max(len(firsts), 1)))
    parts = [
        first + np.arange(cells := min(count, most)) * count // cells
        for first, count in zip(firsts.tolist(), counts.tolist(), strict=True)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def worst_partitions(measures: FileMeasures, most: int) -> tuple[tuple[tuple[int, MapCell], ...], int]:
    """The partitions a compaction would do most for, with their spec, and how many partitions there are."""
    found = _Partitions.of(measures.files)
    sums: GroupTotals = measures.totals_by_group(found.partition_numbers, len(found))
    columns = sums.columns
    order = np.lexsort((-columns["bytes"], -columns["files"], -columns["delete_files"], -columns["taken"]))
    chosen = order[:most].tolist()
    labels = found.labels(chosen)
    rows = tuple(
        (int(found.spec_ids[at]), MapCell(label, label, 1, sums.totals_of(at)))
        for at, label in zip(chosen, labels, strict=True)
    )
    return rows, len(found)


def _sum_totals(amounts: Iterable[FileTotals]) -> FileTotals:
    """The sum of several."""
    total = FileTotals()
    for one in amounts:
        sums = {name: getattr(total, name) + getattr(one, name) for name in FileTotals.__slots__}
        total = replace(total, **{**sums, "has_equality_deletes": bool(sums["has_equality_deletes"])})
    return total


def _source(specs: Specs, field: PartitionField) -> str:
    schema = specs.schema_of(field)
    return (schema.find_column_name(field.source_id) or "") if schema is not None else ""


def _named(specs: Specs, spec_id: int) -> Iterator[tuple[str, PartitionField, IcebergType]]:
    """The fields that separate rows, with their columns and types."""
    fields = zip(specs.columns(spec_id), specs[spec_id].fields, strict=True)
    return ((c, f, specs.result_type(f)) for c, f in fields if not isinstance(f.transform, VoidTransform))


def _label(values: list[tuple[PartitionField, IcebergType, object]]) -> str:
    said = (f"{shorten_middle(f.name, _LONGEST_VALUE)}={_value_text(f, kind, value)}" for f, kind, value in values)
    return shorten_middle(", ".join(said), _LONGEST_LABEL) or "not partitioned"


def _value_text(field: PartitionField, kind: IcebergType, value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return str(UUID(bytes=value)) if isinstance(kind, UUIDType) else f"0x{value[:16].hex()}"
    if isinstance(value, int) and isinstance(field.transform, TimeTransform):
        return partition_text(field.transform, kind, value)
    return shorten_middle(str(value), _LONGEST_VALUE)


_HELP = "Point at a square, or step through a map with the arrow keys."
_COLOURINGS = (("size", "file size"), ("deletes", "deletes"), ("fate", "what a compaction takes"))
_MOST_UNUSED = 20
_DELETE_CLASSES = ((0.3, "d3"), (0.1, "d2"), (0.0, "d1"))


def partitions_section(report: Report) -> Markup:
    """Every spec that has files, each with its map; then the partitions that are worst off."""
    lede = (
        f"{plural(report.partitions, 'partition')} under {plural(len(report.specs_in_use), 'spec')}: a square is a "
        f"partition, or neighbours where there are too many. {_HELP}"
    )
    specs = join_markup(_spec_map(spec, report) for spec in report.specs_in_use)
    maps = tag("div", _colouring_choice(), _legends(report), specs, id="maps")
    return panel(
        "map", "Partitions", lede, maps if report.specs_in_use else "", _unused_specs(report), _worst_table(report)
    )


def size_class(mean: float, sizes: FileSizes) -> str:
    """The colour of a mean file size, by how far it is from what is aimed at."""
    edges = ((sizes.target / 64, "s0"), (sizes.target / 8, "s1"), (sizes.min_size, "s2"), (sizes.max_size, "s3"))
    return next((colour for edge, colour in edges if mean < edge), "s4")


def _colouring_choice() -> Markup:
    made = (
        tag("label", tag("input", type="radio", name="way", id=f"by-{way}", checked=way == "size"), text)
        for way, text in _COLOURINGS
    )
    return tag("fieldset", tag("legend", "Colour by"), join_markup(made), class_="choice")


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
        ("d4", "deletes by value: share unknown"),
    )
    by_fate = (("c0", "left alone"), ("c1", "some files taken"), ("c2", "all files taken"))
    marks = [("u", "filter could not be judged: taken")] if report.total.undecided else []
    marks += [("o", "outside the filter")] if report.total.outside else []
    made = (legend(by_size, "size"), legend(by_deletes, "deletes"), legend(by_fate, "fate"))
    return join_markup((*made, legend(marks, "marks") if marks else ""))


def _spec_map(spec: SpecFacts, report: Report) -> Markup:
    fields = ", ".join(f"{field} ({transform})" for _, field, transform, _ in spec.fields if transform != "void")
    current = tag("span", "current", class_="badge") if spec.is_default else ""
    title = tag(
        "h3", f"Spec {spec.spec_id} ", current, " ", tag("span", name_markup(fields or "not partitioned"), class_="by")
    )
    amounts = spec.amounts
    said = [plural(spec.partitions, "partition"), plural(amounts.files, "file"), format_size(amounts.bytes)]
    if len(spec.cells) < spec.partitions:
        said.append(f"up to {max(cell.partitions for cell in spec.cells):,} partitions to a square")
    cells = join_markup(_square(spec.spec_id, at, cell, report.sizes) for at, cell in enumerate(spec.cells))
    label = f"Map of the partitions of spec {spec.spec_id}. {_HELP}"
    squares = tag("div", cells, class_="map", role="listbox", tabindex="0", aria_label=label)
    ends = tag(
        "p", tag("span", name_markup(spec.cells[0].first)), tag("span", name_markup(spec.cells[-1].last)), class_="ends"
    )
    return tag("div", title, tag("p", " · ".join(said), class_="note"), squares, ends, class_="spec")


def _unused_specs(report: Report) -> Markup:
    """The specs that nothing is stored under."""
    ids = [str(spec.spec_id) for spec in report.specs if not spec.amounts.files]
    if not ids:
        return Markup()
    shown = ids if len(ids) <= _MOST_UNUSED else [*ids[:_MOST_UNUSED], f"{len(ids) - _MOST_UNUSED:,} more"]
    what = f"spec {ids[0]}" if len(ids) == 1 else f"specs {join_with_and(shown)}"
    return tag("p", f"No live file is under {what}.", class_="note")


def _square(spec_id: int, at: int, cell: MapCell, sizes: FileSizes) -> Markup:
    label = " · ".join(_cell_texts(cell))
    classes = " ".join(_css_classes(cell.amounts, sizes))
    return tag("i", role="option", id=f"m{spec_id}-{at}", class_=classes, aria_label=label)


def _css_classes(amounts: FileTotals, sizes: FileSizes) -> Iterator[str]:
    yield size_class(amounts.mean_size, sizes)
    yield _delete_class(amounts)
    yield "c2" if amounts.taken == amounts.files else "c1" if amounts.taken else "c0"
    if amounts.undecided:
        yield "u"
    if amounts.outside == amounts.files:
        yield "o"


def _delete_class(amounts: FileTotals) -> str:
    if not amounts.delete_files:
        return "d0"
    if amounts.has_equality_deletes:
        return "d4"
    return next(colour for edge, colour in _DELETE_CLASSES if amounts.deleted_share >= edge)


def _cell_texts(cell: MapCell) -> Iterator[str]:
    amounts = cell.amounts
    yield cell.first if cell.partitions == 1 else f"{cell.first} to {cell.last}"
    if cell.partitions > 1:
        yield plural(cell.partitions, "partition")
    yield f"{plural(amounts.files, 'file')}, {format_size(amounts.bytes)}, {format_size(amounts.mean_size)} on average"
    if amounts.delete_files:
        yield f"delete files apply {amounts.delete_files:,} times, {format_percent(amounts.deleted_share)} of rows deleted"
    if amounts.undecided:
        yield "the filter could not be judged here"
    elif amounts.outside == amounts.files:
        yield "outside the filter"
    yield f"a compaction takes {plural(amounts.taken, 'file')}" if amounts.taken else "a compaction leaves it alone"


def _worst_table(report: Report) -> Markup:
    if not report.worst_partitions:
        return Markup()
    has_filter = report.filter_matrix.filter_facts is not None
    heads = ("Partition", "Spec", "Files", "Taken", "Bytes", "Mean size", "Deletes applied", "Rows deleted", "Filter")
    rows = (_partition_row(spec_id, cell)[: 9 if has_filter else 8] for spec_id, cell in report.worst_partitions)
    shown, known = len(report.worst_partitions), report.partitions
    note = f"The {shown:,} of {known:,} that a compaction would do most for." if shown < known else ""
    return table("Partitions", heads[: 9 if has_filter else 8], rows, note)


def _partition_row(spec_id: int, cell: MapCell) -> tuple[NumberCell | str, ...]:
    found = cell.amounts
    judged = "not judged" if found.undecided else "outside" if found.outside == found.files else "inside"
    return (
        cell.first,
        number_cell(spec_id),
        number_cell(found.files),
        number_cell(found.taken),
        size_cell(found.bytes),
        size_cell(found.mean_size),
        number_cell(found.delete_files),
        NumberCell(found.deleted_share, format_percent(found.deleted_share)),
        judged,
    )
