"""How a partition spec becomes the next one.

A field keeps its id for life: dropped and added again it gets the same id, so the union tuple has one column for it.
Format version 1 stores tuples by position, so a dropped field stays behind as void. A change that leads back to a spec
the table had before returns that spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import TimeTransform, VoidTransform

from neve.errors import UnknownName, UserError
from neve.model.ddl import PartitionTerm

__all__ = ["evolved_spec"]


def evolved_spec(
    metadata: TableMetadata, add: Iterable[str] = (), drop: Iterable[str] = (), rename: Mapping[str, str] | None = None
) -> PartitionSpec:
    """The spec that follows the table's default spec; `drop` takes field names or terms such as `days(ts)`."""
    spec, schema = metadata.spec(), metadata.schema()
    dropped = {_field_named(spec, schema, text).field_id for text in drop}
    kept = _kept(spec, dropped, rename or {}, metadata.format_version)
    terms = [PartitionTerm.parse(text) for text in add]
    _refuse_redundant_times(terms)
    fields = _with_added(kept, terms, metadata)
    _refuse_name_clashes(fields, schema)
    return _known_or_new(fields, metadata)


def _field_named(spec: PartitionSpec, schema: Schema, text: str) -> PartitionField:
    """The field a name or a term stands for."""
    live = [f for f in spec.fields if not isinstance(f.transform, VoidTransform)]
    for field in live:
        if field.name == text:
            return field
    if "(" in text or text in schema.column_names:
        term = PartitionTerm.parse(text)
        source_id = term.source_id(schema)
        for field in live:
            if (field.source_id, field.transform) == (source_id, term.transform):
                return field
    raise UnknownName("partition field", text, [f.name for f in live], f"partition spec {spec.spec_id}")


def _kept(
    spec: PartitionSpec, dropped: set[int], rename: Mapping[str, str], format_version: int
) -> list[PartitionField]:
    known = {f.name for f in spec.fields}
    for name in rename:
        if name not in known:
            raise UnknownName("partition field", name, known, f"partition spec {spec.spec_id}")
    kept = []
    for field in spec.fields:
        if field.field_id in dropped and field.name in rename:
            raise UserError(f"Cannot both drop and rename the partition field {field.name!r}.")
        name = rename.get(field.name, field.name)
        if field.field_id not in dropped:
            kept.append(PartitionField(field.source_id, field.field_id, field.transform, name))
        elif format_version == 1:
            kept.append(PartitionField(field.source_id, field.field_id, VoidTransform(), name))
    return kept


def _refuse_redundant_times(terms: list[PartitionTerm]) -> None:
    times = [t.source for t in terms if isinstance(t.transform, TimeTransform)]
    if twice := {s for s in times if times.count(s) > 1}:
        raise UserError(
            f"Cannot add two time partitions of the column {sorted(twice)[0]!r}: the finer one says it all."
        )


def _with_added(
    kept: list[PartitionField], terms: list[PartitionTerm], metadata: TableMetadata
) -> list[PartitionField]:
    schema, fields = metadata.schema(), list(kept)
    next_id = max(metadata.last_partition_id or 0, 999)
    for term in terms:
        old = _known_before(term, schema, metadata)
        if old is None:
            next_id += 1
        name = old.name if old else term.default_name(sized=True)
        field = term.field(schema, old.field_id if old else next_id, name)
        if any((f.source_id, f.transform) == (field.source_id, field.transform) for f in fields):
            raise UserError(f"Cannot add the partition field {name!r}: the table is partitioned by it already.")
        fields = [*(_out_of_the_way(f, field) for f in fields), field]
    return fields


def _known_before(term: PartitionTerm, schema: Schema, metadata: TableMetadata) -> PartitionField | None:
    """The same field in an earlier spec. Version 1 has no ids to come back to: its tuples go by position."""
    if metadata.format_version == 1:
        return None
    wanted = (term.source_id(schema), term.transform)
    specs = sorted(metadata.specs().values(), key=lambda s: -s.spec_id)
    return next((f for s in specs for f in s.fields if (f.source_id, f.transform) == wanted), None)


def _out_of_the_way(field: PartitionField, added: PartitionField) -> PartitionField:
    """A void field yields its name to a field that is added under it."""
    if field.name != added.name or not isinstance(field.transform, VoidTransform):
        return field
    return PartitionField(field.source_id, field.field_id, field.transform, f"{field.name}_{field.field_id}")


def _refuse_name_clashes(fields: list[PartitionField], schema: Schema) -> None:
    names = [f.name for f in fields]
    if twice := [n for n in names if names.count(n) > 1]:
        raise UserError(f"Cannot name two partition fields {twice[0]!r}. Rename one of them in the same call.")
    for field in fields:
        column = schema._lazy_id_to_field.get(schema._name_to_id.get(field.name, -1))
        same = (
            column is not None and column.field_id == field.source_id and str(field.transform) in {"identity", "void"}
        )
        if column is not None and not same:
            raise UserError(f"Cannot name a partition field {field.name!r}: the table has a column of that name.")


def _known_or_new(fields: list[PartitionField], metadata: TableMetadata) -> PartitionSpec:
    wanted = [(f.source_id, f.transform, f.name) for f in fields]
    specs = metadata.specs().values()
    for spec in specs:
        if [(f.source_id, f.transform, f.name) for f in spec.fields] == wanted:
            return spec
    return PartitionSpec(*fields, spec_id=max(s.spec_id for s in specs) + 1)
