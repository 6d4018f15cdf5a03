"""The map of partitions: every spec apart, in the order of its values, neighbours together where there are too many."""

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

from neve.display.format import readable
from neve.display.html import shortened
from neve.model.partition import Specs, partition_text
from neve.report.counting import Counted, Sums
from neve.report.values import Amounts, Cell, SpecFacts
from neve.tree.entries import EntryTable

__all__ = ["spec_facts", "worst_partitions"]

_MOST_CELLS = 2400  # of all specs together
_MOST_CELLS_OF_SPEC = 600
_FEWEST_CELLS_OF_SPEC = 12
_LONGEST_LABEL = 120
_LONGEST_VALUE = 60


@dataclass(frozen=True)
class _Partitions:
    """The partitions of a table in the order of spec and values, and the place of every file's partition there."""

    keys: EntryTable
    places: NDArray[np.int64]  # by file
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
        columns = {u.column: readable(chosen[u.column]) for u in chosen.specs.union}
        named = {spec_id: list(_named(chosen.specs, spec_id)) for spec_id in set(spec_ids)}
        return [
            _label([(field, kind, columns[column][at]) for column, field, kind in named[spec_id]])
            for at, spec_id in enumerate(spec_ids)
        ]


def spec_facts(counted: Counted, default_id: int, first_seen: Mapping[int, int]) -> tuple[SpecFacts, ...]:
    """Every spec of the table, with the cells of its map; `first_seen` tells since when there are files of each."""
    found, specs = _Partitions.of(counted.files), counted.files.specs
    cells: dict[int, list[Cell]] = {spec_id: [] for spec_id in specs.by_id}
    for spec_id, cell in _cells(counted, found):
        cells[spec_id].append(cell)
    return tuple(
        SpecFacts(
            spec_id,
            spec_id == default_id,
            tuple((f.field_id, f.name, str(f.transform), _source(specs, f)) for f in spec.fields),
            sum(cell.partitions for cell in cells[spec_id]),
            _together(cell.amounts for cell in cells[spec_id]),
            tuple(cells[spec_id]),
            first_seen.get(spec_id),
            tuple(f.name for f in spec.fields if isinstance(f.transform, UnknownTransform)),
        )
        for spec_id, spec in sorted(specs.by_id.items())
    )


def _cells(counted: Counted, found: _Partitions) -> Iterator[tuple[int, Cell]]:
    """The cells of all specs, in the order of spec and values."""
    starts = _starts_of_cells(found.spec_ids)
    ends = np.append(starts[1:], len(found))[: len(starts)]
    cell_of_partition = np.repeat(np.arange(len(starts)), ends - starts)
    sums = counted.summed(cell_of_partition[found.places], len(starts))
    firsts, lasts = found.labels(starts.tolist()), found.labels((ends - 1).tolist())
    for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        yield int(found.spec_ids[start]), Cell(firsts[at], lasts[at], end - start, sums.at(at))


def _starts_of_cells(spec_ids: NDArray[np.int32]) -> NDArray[np.int64]:
    """Where each cell begins: a partition a cell, or as many together as bring a spec below its share of the map."""
    _, firsts, counts = np.unique(spec_ids, return_index=True, return_counts=True)
    most = min(_MOST_CELLS_OF_SPEC, max(_FEWEST_CELLS_OF_SPEC, _MOST_CELLS // max(len(firsts), 1)))
    parts = [
        first + np.arange(cells := min(count, most)) * count // cells
        for first, count in zip(firsts.tolist(), counts.tolist(), strict=True)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def worst_partitions(counted: Counted, most: int) -> tuple[tuple[tuple[int, Cell], ...], int]:
    """The partitions a compaction would do most for, with their spec, and how many partitions there are."""
    found = _Partitions.of(counted.files)
    sums: Sums = counted.summed(found.places, len(found))
    columns = sums.columns
    order = np.lexsort((-columns["bytes"], -columns["files"], -columns["delete_files"], -columns["taken"]))
    chosen = order[:most].tolist()
    labels = found.labels(chosen)
    rows = tuple(
        (int(found.spec_ids[at]), Cell(label, label, 1, sums.at(at))) for at, label in zip(chosen, labels, strict=True)
    )
    return rows, len(found)


def _together(amounts: Iterable[Amounts]) -> Amounts:
    """The sum of several."""
    total = Amounts()
    for one in amounts:
        sums = {name: getattr(total, name) + getattr(one, name) for name in Amounts.__slots__}
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
    said = (f"{shortened(f.name, _LONGEST_VALUE)}={_value(f, kind, value)}" for f, kind, value in values)
    return shortened(", ".join(said), _LONGEST_LABEL) or "not partitioned"


def _value(field: PartitionField, kind: IcebergType, value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return str(UUID(bytes=value)) if isinstance(kind, UUIDType) else f"0x{value[:16].hex()}"
    if isinstance(value, int) and isinstance(field.transform, TimeTransform):
        return partition_text(field.transform, kind, value)
    return shortened(str(value), _LONGEST_VALUE)
