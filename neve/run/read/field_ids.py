"""Match the columns of a file with the fields of a table.

If a file has field ids, only they count. A file without any is read through the table's name mapping. If the table has
no name mapping, one is built from all names that its columns have ever had: the mapping that Iceberg would have
maintained if it had been switched on from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyarrow import types as at
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from neve.errors import CorruptFile

_ID_KEYS = (b"PARQUET:field_id", b"iceberg.id", b"field-id")  # Parquet, ORC, Avro


@dataclass(frozen=True, slots=True)
class FileField:
    """A column of a file at any depth; children are a struct's fields, a list's element, or a map's key and value."""

    field_id: int | None
    name: str
    type: pa.DataType
    leaves: range  # the ordinals of its primitive columns, as Parquet counts them
    children: tuple[FileField, ...] = ()


def file_fields(schema: pa.Schema, path: str) -> tuple[FileField, ...]:
    """Return the columns of a file with this Arrow schema, with the field ids in its metadata."""
    return _number_leaves(list(schema), 0, path)


def top_level_ordinals(fields: Sequence[FileField], leaves: Iterable[int]) -> list[int]:
    """Return the ordinals of the top-level columns that hold any of these leaves."""
    leaf_set = set(leaves)
    return [i for i, field in enumerate(fields) if not leaf_set.isdisjoint(field.leaves)]


def _number_leaves(fields: Iterable[pa.Field], first_leaf: int, path: str) -> tuple[FileField, ...]:
    numbered = []
    for field in fields:
        children = _number_leaves(_child_fields(field.type), first_leaf, path)
        end = children[-1].leaves.stop if children else first_leaf + 1
        metadata = field.metadata or {}
        id_text = next((metadata[key] for key in _ID_KEYS if key in metadata), b"-1")
        try:
            id_or_minus_one = int(id_text)  # Parquet readers report a missing id as -1
        except ValueError:
            raise CorruptFile(path, f"a field id for column {field.name!r}", repr(id_text[:40])) from None
        field_id = None if id_or_minus_one < 0 else id_or_minus_one
        numbered.append(FileField(field_id, field.name, field.type, range(first_leaf, end), children))
        first_leaf = end
    return tuple(numbered)


def _child_fields(kind: pa.DataType) -> list[pa.Field]:
    if isinstance(kind, pa.BaseExtensionType):
        return _child_fields(kind.storage_type)
    if at.is_struct(kind):
        return list(kind)
    if at.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if _is_list(kind) else []


def _is_list(kind: pa.DataType) -> bool:
    tests = (at.is_list, at.is_large_list, at.is_fixed_size_list, at.is_list_view, at.is_large_list_view)
    return any(test(kind) for test in tests)


def assign_field_ids(
    fields: tuple[FileField, ...], path: str, mapping: NameMapping | None, schemas: Sequence[Schema]
) -> tuple[FileField, ...]:
    """Return the same columns, each with the id of its table field, or None if no field matches."""
    if next(nested_field_ids(fields), None) is not None:
        return fields
    if mapping is not None:
        return apply_name_mapping(fields, mapping.root)
    with_ids = apply_name_mapping(fields, name_mapping_of_all_schemas(schemas))
    if fields and all(field.field_id is None for field in with_ids):
        raise CorruptFile(
            path,
            "columns with field ids, or with names of table columns (set schema.name-mapping.default to map others)",
            f"columns {', '.join(repr(f.name) for f in fields[:5])} without ids",
        )
    return with_ids


def nested_field_ids(fields: Iterable[FileField]) -> Iterator[int]:
    """Yield the field ids of columns and everything inside them."""
    for field in fields:
        if field.field_id is not None:
            yield field.field_id
        yield from nested_field_ids(field.children)


def apply_name_mapping(fields: tuple[FileField, ...], mapping: Sequence[MappedField]) -> tuple[FileField, ...]:
    """Return the same columns, each with the id that a mapping has for its name."""
    by_name = {name: mapped for mapped in mapping for name in mapped.names}
    with_ids = []
    for field in fields:
        mapped, children = by_name.get(field.name), field.children
        if mapped is None:
            with_ids.append(field)
            continue
        # The mapping uses the names of the spec; writers named the element of a list `item`, `array` or `bag`.
        if at.is_map(field.type):
            children = tuple(replace(c, name=n) for c, n in zip(children, ("key", "value"), strict=True))
        elif _is_list(field.type):
            children = tuple(replace(c, name="element") for c in children)
        mapped_children = apply_name_mapping(children, mapped.fields)
        with_ids.append(replace(field, field_id=mapped.field_id, children=mapped_children))
    return tuple(with_ids)


def name_mapping_of_all_schemas(schemas: Sequence[Schema]) -> list[MappedField]:
    """Build a name mapping from all schemas of a table: the current one first, then from the newest to the oldest.

    A name that moved from one field to another belongs to the field that had it last.
    """
    return _merge_name_mappings([schema.as_struct() for schema in reversed(schemas)])


def _merge_name_mappings(structs: Sequence[IcebergType]) -> list[MappedField]:
    owner: dict[str, int] = {}
    history: dict[int, list[NestedField]] = {}
    for struct in structs:
        for field in _nested_fields(struct):
            owner[field.name] = field.field_id
            history.setdefault(field.field_id, []).append(field)
    names = {i: [n for n, o in owner.items() if o == i] for i in history}
    return [
        MappedField(**{"field-id": i}, names=names[i], fields=_merge_name_mappings([f.field_type for f in fields]))
        for i, fields in history.items()
        if names[i]
    ]


def _nested_fields(kind: IcebergType) -> tuple[NestedField, ...]:
    match kind:
        case StructType():
            return kind.fields
        case ListType():
            return (NestedField(kind.element_id, "element", kind.element_type, required=False),)
        case MapType():
            key = NestedField(kind.key_id, "key", kind.key_type, required=True)
            return (key, NestedField(kind.value_id, "value", kind.value_type, required=False))
        case _:
            return ()
