"""Change the columns of a table: PyIceberg's `UpdateSchema` under the rules of the format, with our own errors.

Differences from PyIceberg:
- A promoted decimal keeps its scale; from version 3 on a date may become a timestamp.
- A column cannot take the name of a partition field: of the default spec always, of an older spec as long as the source
  column of the field exists. The Java library cannot load a table with another column of such a name.
- Identifier fields follow the structs around them when these are renamed.

Within one change, columns have the names they had before it.

Isolation: the change lands only on the schema it was made for; concurrent commits of rows do not matter.
Writes: table metadata only; no data file is touched.

>>> with t.evolve_schema() as change:
...     _ = change.rename_column("region", "area").move_first("region")
>>> t.schema.column_names
['area', 'id']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

import pyarrow as pa
from pyiceberg.exceptions import ResolveError, ValidationError
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.update import AssertDefaultSpecId, AssertLastAssignedFieldId
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.typedef import TableVersion
from pyiceberg.types import DecimalType, IcebergType, NestedField, UnknownType

from neve.errors import CommitConflict, NeveError, UnknownName, UserError
from neve.model.metadata_updates import apply_updates
from neve.model.new_table import with_fresh_ids, with_next_ids
from neve.model.pyiceberg_private import columns_after_changes, fields_by_id, ids_by_name, schema_without_ids
from neve.model.schema_rules import refuse_default, refuse_promotion, refuse_unfit_schema
from neve.ops.context import TableContext
from neve.ops.metadata.evolve import RequirementsAndUpdates, commit_updates

Method = TypeVar("Method", bound=Callable[..., Any])
ColumnPath = str | tuple[str, ...]

_PYICEBERG_ERRORS = (
    ValueError,
    TypeError,
    AttributeError,
    NotImplementedError,
    ResolveError,
    UnsupportedPyArrowTypeException,
    ValidationError,
)


def _wrap_method(method: Method, *paths: str, counts_added: bool = False) -> Method:
    """Wrap a method of PyIceberg with our errors; columns in the arguments `paths` must exist, or may also be added."""
    parameters = signature(method)

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _translate_pyiceberg_errors(self):
            arguments = parameters.bind(self, *args, **kwargs).arguments
            for path in paths:
                if not (counts_added and _dotted_name(arguments[path]) in self._added_name_to_id):
                    self.find(arguments[path])
            return method(self, *args, **kwargs)

    return cast(Method, call)


class SchemaChange(UpdateSchema):
    """Changes of columns that are committed together; use it in a `with` block, or call `commit`."""

    def __init__(
        self,
        context: TableContext,
        landed: Callable[[], object] = lambda: None,
        allow_incompatible_changes: bool = False,
        case_sensitive: bool = True,
    ) -> None:
        self.context, self.landed = context, landed
        with _translate_pyiceberg_errors(self):
            mapping = context.iceberg.name_mapping()
            super().__init__(
                Transaction(context.iceberg), allow_incompatible_changes, case_sensitive, name_mapping=mapping
            )
        self._identifiers: tuple[str, ...] | None = None  # None: unchanged

    delete_column = _wrap_method(UpdateSchema.delete_column, "path")
    make_column_optional = _wrap_method(UpdateSchema.make_column_optional, "path")
    move_after = _wrap_method(UpdateSchema.move_after, "path", "after_name", counts_added=True)
    move_before = _wrap_method(UpdateSchema.move_before, "path", "before_path", counts_added=True)
    move_first = _wrap_method(UpdateSchema.move_first, "path", counts_added=True)
    _add_column = _wrap_method(UpdateSchema.add_column)
    rename_column = _wrap_method(UpdateSchema.rename_column, "path_from")
    _set_default_value = _wrap_method(UpdateSchema.set_default_value, "path")
    _update_column = _wrap_method(UpdateSchema.update_column, "path")
    _union_by_name = _wrap_method(UpdateSchema.union_by_name)

    def find(self, path: ColumnPath) -> NestedField:
        """Return the column of a name or path, as it was before the change."""
        name = _dotted_name(path)
        try:
            return self._schema.find_field(name, self._case_sensitive)
        except ValueError:
            raise UnknownName("column", name, ids_by_name(self._schema), f"table {self.context.name}") from None

    def add_column(
        self,
        path: ColumnPath,
        field_type: IcebergType,
        doc: str | None = None,
        required: bool = False,
        default_value: Any | None = None,
    ) -> UpdateSchema:
        """Add a column; a path of several names adds it to a struct, also one inside a list or the values of a map."""
        if not isinstance(path, str) and len(path) > 1:
            self.find(tuple(path[:-1]))
        if not isinstance(field_type, IcebergType):
            raise UserError(
                f"Cannot add the column {_dotted_name(path)!r}: give a type such as LongType(), not {field_type!r}."
            )
        refuse_default(default_value, field_type)
        if field_type.is_primitive:
            return self._add_column(path, field_type, doc, required, default_value)
        # Added as unknown first: PyIceberg would lose the defaults of the fields inside.
        self._add_column(path, UnknownType(), doc, required)
        field_id = self._added_name_to_id[_dotted_name(path)]
        fields = next(fields for fields in self._adds.values() if fields[-1].field_id == field_id)
        fields[-1] = fields[-1].model_copy(update={"field_type": with_next_ids(field_type, self.assign_new_column_id)})
        return self

    def set_default_value(self, path: ColumnPath, default_value: Any | None) -> UpdateSchema:
        """Set the value that new rows have in a column they leave out; None removes it."""
        refuse_default(default_value, self.find(path).field_type)
        return self._set_default_value(path, default_value)

    def set_identifier_fields(self, *fields: str) -> None:
        """Choose the columns that identify rows, by their names before the change, or added ones."""
        if wrong := [field for field in fields if not isinstance(field, str)]:
            raise UserError(f"Cannot make {wrong[0]!r} an identifier field: give names, one after the other.")
        self._identifiers = fields

    def update_column(
        self,
        path: ColumnPath,
        field_type: IcebergType | None = None,
        required: bool | None = None,
        doc: str | None = None,
    ) -> UpdateSchema:
        """Promote a column to a wider type, change its nullability or its description."""
        field = self.find(path)
        if field_type is not None and field_type != field.field_type:
            if not self._allow_incompatible_changes:
                refuse_promotion(field, field_type, self.context.metadata)
            # Our rules have checked the type change: let PyIceberg make it.
            before, self._allow_incompatible_changes = self._allow_incompatible_changes, True
            try:
                self._update_column(path, field_type)
            finally:
                self._allow_incompatible_changes = before
        return self._update_column(path, None, required, doc)

    def union_by_name(self, new_schema: Schema | pa.Schema, format_version: TableVersion | None = None) -> UpdateSchema:
        """Add the columns of another schema that this one lacks, and widen those that are wider there."""
        with _translate_pyiceberg_errors(self):
            version = format_version or min(self.context.metadata.format_version, 3)
            theirs = new_schema
            if not isinstance(theirs, Schema):
                theirs = with_fresh_ids(schema_without_ids(theirs, version))
        for name in ids_by_name(theirs).keys() & ids_by_name(self._schema).keys():
            match self._schema.find_type(name), theirs.find_type(name):
                # PyIceberg takes a decimal of another scale for the same type.
                case (DecimalType() as ours, DecimalType() as other) if ours.scale != other.scale:
                    raise UserError(f"Cannot change the column {name!r} from {ours} to {other}.")
        return self._union_by_name(theirs)

    def commit(self) -> None:
        """Make the changed schema the current one."""
        with _translate_pyiceberg_errors(self):
            updates, requirements = self._commit()
            new_schema = self._apply()
        base = self.context.metadata

        def change(state: TableContext) -> RequirementsAndUpdates:
            current = state.metadata
            if (current.current_schema_id, current.last_column_id) != (base.current_schema_id, base.last_column_id):
                raise CommitConflict(
                    f"The columns of table {state.name} were changed by a concurrent writer: its schema is "
                    f"{current.current_schema_id}, not {base.current_schema_id}. Look at it, and make the change again."
                )
            refuse_unfit_schema(new_schema, current)
            more = (
                AssertLastAssignedFieldId(last_assigned_field_id=base.last_column_id),
                AssertDefaultSpecId(default_spec_id=current.default_spec_id),
            )
            return ((*requirements, *more), updates) if updates else ((), ())

        commit_updates(self.context, change, "schema change")
        self.landed()

    def preview_context(self) -> TableContext:
        """Return the table as it will be after the change; nothing is committed."""
        with _translate_pyiceberg_errors(self):
            updates, _ = self._commit()
        table = copy(self.context.iceberg)
        table.metadata = apply_updates(self.context.metadata, updates)
        return replace(self.context, iceberg=table)

    def _apply(self) -> Schema:
        """Return the schema after the change. PyIceberg's own checks all specs, where only some matter."""
        for move in (m for moves in self._moves.values() for m in moves):
            if self._deletes & {move.field_id, move.other_field_id}:
                raise UserError(f"Cannot move the column {move.full_name!r}: the change drops it, or its neighbour.")
        fields = columns_after_changes(self)
        schema = Schema(*fields)
        if lost := {f.name for added in self._adds.values() for f in added if f.field_id not in fields_by_id(schema)}:
            raise UserError(f"Cannot add the column {min(lost)!r}: the change drops the struct it is added to.")
        if not all(f.name for f in fields_by_id(schema).values()):
            raise UserError("Cannot give a column an empty name.")
        identifier_ids = set(self._schema.identifier_field_ids)  # by id, whatever the new names of the columns
        if self._identifiers is not None:
            identifier_ids = {self._resolve_identifier(schema, name) for name in self._identifiers}
        if dropped := identifier_ids - fields_by_id(schema).keys():
            name = self._schema.find_column_name(min(dropped))
            raise UserError(
                f"Cannot drop the column {name!r}: it is an identifier field. Choose others with set_identifier_fields "
                "in the same change."
            )
        schema_id = max(s.schema_id for s in self.context.metadata.schemas) + 1
        return Schema(*fields, schema_id=schema_id, identifier_field_ids=sorted(identifier_ids))

    def _resolve_identifier(self, schema: Schema, name: str) -> int:
        for candidate in (self._schema, schema):
            with suppress(ValueError):
                field_id = candidate.find_field(name, self._case_sensitive).field_id
                if field_id in fields_by_id(schema):
                    return field_id
        raise UnknownName("column", name, ids_by_name(schema), f"table {self.context.name}")

    def _find_for_move(self, name: str) -> int | None:
        """Prefer an added column over the old one of the same name that it replaces."""
        return self._added_name_to_id.get(name) or super()._find_for_move(name)


@contextmanager
def _translate_pyiceberg_errors(change: SchemaChange) -> Iterator[None]:
    """Report PyIceberg's errors, which are of many kinds, as wrong input."""
    try:
        yield
    except NeveError:
        raise
    except _PYICEBERG_ERRORS as e:
        raise UserError(f"Cannot change the columns of table {change.context.name}: {e}") from e


def _dotted_name(path: ColumnPath) -> str:
    return path if isinstance(path, str) else ".".join(path)
