"""Derive the next partition spec from the current one.

- A field that was dropped and is added again gets its old id, so the union tuple has one column for it. If it is added
  under another name it is another field, as in the Java library.
- Format version 1 stores tuples by position, so a dropped field stays in the spec as void.
- A change that leads back to an earlier spec of the table returns that spec.
- A field that is dropped and added in one change keeps its position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform

from neve.errors import UnknownName, UserError
from neve.model.ddl import PartitionTerm, is_named_like_a_column, refuse_names_of_columns, refuse_redundant_times


def evolved_spec(
    metadata: TableMetadata, add: Iterable[str] = (), drop: Iterable[str] = (), rename: Mapping[str, str] | None = None
) -> PartitionSpec:
    """Return the spec after a change of the default spec; `drop` takes field names or terms such as `days(ts)`."""
    spec, schema = metadata.spec(), metadata.schema()
    terms = [PartitionTerm.parse(text) for text in add]
    refuse_redundant_times(terms)
    fields_to_drop = [_find_field(spec, schema, text) for text in drop]
    added_again = [f for f in fields_to_drop if any(_is_added_again(t, f, schema) for t in terms)]
    dropped = {f.field_id for f in fields_to_drop} - {f.field_id for f in added_again}
    remaining = _remaining_fields(spec, dropped, rename or {}, metadata.format_version)
    new_terms = [t for t in terms if not any(_is_added_again(t, f, schema) for f in added_again)]
    fields = _add_fields(remaining, new_terms, metadata)
    names = [f.name for f in fields]
    if twice := [n for n in names if names.count(n) > 1]:
        raise UserError(f"Cannot name two partition fields {twice[0]!r}. Rename one of them in the same call.")
    refuse_names_of_columns(fields, schema)
    definition = [(f.source_id, f.transform, f.name) for f in fields]
    specs = metadata.specs().values()
    same = (s for s in specs if [(f.source_id, f.transform, f.name) for f in s.fields] == definition)
    return next(same, None) or PartitionSpec(*fields, spec_id=max(s.spec_id for s in specs) + 1)


def _find_field(spec: PartitionSpec, schema: Schema, text: str) -> PartitionField:
    live = [f for f in spec.fields if not isinstance(f.transform, VoidTransform)]
    matching = [f for f in live if f.name == text]
    if not matching and ("(" in text or "`" in text or text in schema.column_names):
        term = PartitionTerm.parse(text)
        matching = [f for f in live if _is_made_by(term, f, schema)]
    if not matching:
        raise UnknownName("partition field", text, [f.name for f in live], f"partition spec {spec.spec_id}")
    return matching[0]


def _is_made_by(term: PartitionTerm, field: PartitionField, schema: Schema) -> bool:
    return (field.source_id, field.transform) == (term.source_id(schema), term.transform)


def _is_added_again(term: PartitionTerm, field: PartitionField, schema: Schema) -> bool:
    return _is_made_by(term, field, schema) and term.alias in {None, field.name}


def _remaining_fields(
    spec: PartitionSpec, dropped: set[int], rename: Mapping[str, str], format_version: int
) -> list[PartitionField]:
    names = {f.name for f in spec.fields}
    for name in rename:
        if name not in names:
            raise UnknownName("partition field", name, names, f"partition spec {spec.spec_id}")
    remaining = []
    for field in spec.fields:
        if field.field_id in dropped and field.name in rename:
            raise UserError(f"Cannot both drop and rename the partition field {field.name!r}.")
        name = rename.get(field.name, field.name)
        if field.field_id not in dropped:
            remaining.append(PartitionField(field.source_id, field.field_id, field.transform, name))
        elif format_version == 1:
            remaining.append(PartitionField(field.source_id, field.field_id, VoidTransform(), name))
    return remaining


def _add_fields(
    remaining_fields: list[PartitionField], terms: list[PartitionTerm], metadata: TableMetadata
) -> list[PartitionField]:
    schema, fields = metadata.schema(), list(remaining_fields)
    next_id = max(metadata.last_partition_id or 0, 999)
    for term in terms:
        old = _field_of_earlier_spec(term, fields, metadata)
        name = term.default_name(with_size=True)
        if old is None:
            next_id += 1
        elif not is_named_like_a_column(old, schema):  # it keeps its name, unless another field has it by now
            name = name if old.name in {f.name for f in fields if f.field_id != old.field_id} else old.name
        field = term.field(schema, old.field_id if old else next_id, name)
        if any(_is_made_by(term, f, schema) for f in fields):
            raise UserError(f"Cannot add the partition field {field.name!r}: the table is partitioned by it already.")
        if any(f.field_id == field.field_id for f in fields):  # kept as void by version 1: replace it
            fields = [field if f.field_id == field.field_id else f for f in fields]
        else:
            fields = [*(_rename_if_void(f, field.name) for f in fields), field]
    return fields


def _rename_if_void(field: PartitionField, name: str) -> PartitionField:
    """Rename a void field that has a name which a new field takes."""
    if field.name != name or not isinstance(field.transform, VoidTransform):
        return field
    return PartitionField(field.source_id, field.field_id, field.transform, f"{field.name}_{field.field_id}")


def _field_of_earlier_spec(
    term: PartitionTerm, fields: list[PartitionField], metadata: TableMetadata
) -> PartitionField | None:
    """Return the same field of an earlier spec. Version 1 reuses no ids: its tuples are stored by position.

    Early version 1 writers gave one id to several fields; an id that another field of the spec has is not reused.
    """
    if metadata.format_version == 1:
        return None
    schema = metadata.schema()
    source_id, specs = term.source_id(schema), sorted(metadata.specs().values(), key=lambda s: -s.spec_id)
    taken = {f.field_id for f in fields if not (isinstance(f.transform, VoidTransform) and f.source_id == source_id)}
    earlier = (f for s in specs for f in s.fields if _is_added_again(term, f, schema))
    return next((f for f in earlier if f.field_id not in taken), None)
