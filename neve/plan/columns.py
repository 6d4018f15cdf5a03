"""Which columns a scan returns: the table's own, nested ones too, and those every table has without storing them."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.schema import Schema

from neve.errors import UnknownName

__all__ = ["METADATA_COLUMNS", "projected", "top_level"]

METADATA_COLUMNS = ("_file", "_pos", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")


def projected(
    schema: Schema, columns: Sequence[str] | None, *, case_sensitive: bool = True
) -> tuple[Schema, tuple[str, ...]]:
    """The columns wanted, in the order asked for, and the metadata columns among them."""
    if columns is None:
        return schema, ()
    own = [name for name in columns if not _is_metadata(name, schema, case_sensitive)]
    extra = tuple(dict.fromkeys(name for name in columns if _is_metadata(name, schema, case_sensitive)))
    ids = [_field_id(schema, name, case_sensitive) for name in own]
    chosen = schema.select(*(n for i in ids if (n := schema.find_column_name(i)) is not None))
    order = {root: place for place, root in reversed(list(enumerate(_root(schema, i) for i in ids)))}
    fields = sorted(chosen.fields, key=lambda f: order[f.field_id])
    return Schema(*fields, schema_id=schema.schema_id), extra


def top_level(schema: Schema, name: str, *, case_sensitive: bool = True) -> str:
    """The column of a result that a name asked for is, or is part of."""
    if _is_metadata(name, schema, case_sensitive):
        return name
    root = schema.find_column_name(_root(schema, _field_id(schema, name, case_sensitive)))
    return root or name


def _is_metadata(name: str, schema: Schema, case_sensitive: bool) -> bool:
    return name in METADATA_COLUMNS and not _has(schema, name, case_sensitive)


def _has(schema: Schema, name: str, case_sensitive: bool) -> bool:
    names = schema.column_names if case_sensitive else [n.lower() for n in schema.column_names]
    return (name if case_sensitive else name.lower()) in names


def _field_id(schema: Schema, name: str, case_sensitive: bool) -> int:
    try:
        return schema.find_field(name, case_sensitive).field_id
    except ValueError:
        raise UnknownName("column", name, [*schema.column_names, *METADATA_COLUMNS]) from None


def _root(schema: Schema, field_id: int) -> int:
    """The id of the top-level column a field is part of."""
    name = schema.find_column_name(field_id) or ""
    tops = {f.name: f.field_id for f in schema.fields}
    return next(tops[name[:end]] for end in range(len(name), 0, -1) if name[:end] in tops)
