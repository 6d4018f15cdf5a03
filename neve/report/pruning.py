"""Which filters can leave files out, under which spec: one that suits the newest spec may be blind for old ones."""

from __future__ import annotations

from pyiceberg.transforms import UnknownTransform, VoidTransform

from neve.model.partition import Specs
from neve.model.pyiceberg_private import fields_by_id
from neve.report.values import FilterFacts, Pruning

__all__ = ["pruning_of"]


def pruning_of(specs: Specs, used: tuple[int, ...], given: FilterFacts | None) -> Pruning:
    """For every column some spec in use partitions by: by which transform, under each spec."""
    columns: dict[int, str] = {}
    found: dict[tuple[int, int], list[str]] = {}
    for spec_id in used:
        for field in specs[spec_id].fields:
            if isinstance(field.transform, VoidTransform):
                continue
            columns.setdefault(field.source_id, _name(specs, field.source_id))
            said = "?" if isinstance(field.transform, UnknownTransform) else str(field.transform)
            found.setdefault((field.source_id, spec_id), []).append(said)
    cells = tuple(tuple(", ".join(found.get((source, spec), ())) for spec in used) for source in columns)
    return Pruning(tuple(columns.values()), used, cells, given)


def _name(specs: Specs, source_id: int) -> str:
    current, *older = specs.schemas
    if source_id in fields_by_id(current):
        return str(current.find_column_name(source_id))
    schema = next((s for s in older if source_id in fields_by_id(s)), None)
    return f"column {source_id} (gone)" if schema is None else f"{schema.find_column_name(source_id)} (dropped)"
