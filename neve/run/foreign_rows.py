"""Read the rows of files that belong to no table, by the names of their columns, as they are stored in a table.

Field ids in the files are not looked at, because they are those of another table. The code runs in a task of Spark or
in the driver, and holds one batch of a file at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as at
from pyiceberg.io import FileIO

from neve.errors import UserError
from neve.plan.foreign_files import FOLDER_VALUE
from neve.run.read.field_ids import FileField
from neve.run.read.formats import DataFile, open_file
from neve.run.read.parquet import ParquetData
from neve.run.read.variants import is_variant_group, is_whole_variant, read_variants
from neve.run.write.patch import FILE_TASK_COLUMN
from neve.run.write.store_assignment import assign_column, assign_rows, check_assignable
from neve.run.write.target import WriteTarget


@dataclass(frozen=True)
class ForeignRows:
    """Reads the files of tasks, and returns their rows in the columns of a table's data files."""

    target: WriteTarget

    def batches(self, tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files that the rows of these batches name."""
        io = self.target.open_io()
        for batch in tasks:
            for payload in batch.column(FILE_TASK_COLUMN):
                yield from self._read_file(io, pa.ipc.open_stream(payload.as_buffer()).read_all())

    def _read_file(self, io: FileIO, task: pa.Table) -> Iterator[pa.RecordBatch]:
        path, file_format, size = (task[n][0].as_py() for n in ("file_path", "file_format", "file_size_in_bytes"))
        part = (task["part"][0].as_py(), task["parts"][0].as_py())
        values = {n.removeprefix(FOLDER_VALUE): task[n][0] for n in task.column_names if n.startswith(FOLDER_VALUE)}
        with open_file(io, path, file_format, size, None) as data:
            try:
                for rows in self._named_batches(data, part, values):
                    check_assignable(rows.schema, self.target.schema)
                    yield assign_rows(rows, self.target.file_schema, self.target.arrow_schema)
            except UserError as e:
                raise UserError(f"Cannot store the rows of {path}: {e}") from e

    def _named_batches(self, data: DataFile, part: tuple[int, int], values: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a file by their names, and beside them those whose values its folders give."""
        fields = data.fields
        names = [field.name for field in fields]
        leaves = [leaf for field in fields for leaf in field.leaves]
        instants = data.instants_without_zone if isinstance(data, ParquetData) else frozenset()
        for rows, columns in data.batches(leaves, part):
            stored = [
                _with_zone(_whole_variants(each), field, instants) for each, field in zip(columns, fields, strict=True)
            ]
            given = {name: pa.repeat(value, rows.count) for name, value in values.items()}
            for name, column in zip(names, stored, strict=True):
                self._refuse_other_values(name, column, given)
            kept = {name: column for name, column in given.items() if name.lower() not in map(str.lower, names)}
            yield pa.RecordBatch.from_arrays([*stored, *kept.values()], names=[*names, *kept])

    def _refuse_other_values(self, name: str, column: pa.Array, given: Mapping[str, pa.Array]) -> None:
        """Reject values of a column that differ from those that the folder gives it."""
        own = next((own for own in given if own.lower() == name.lower()), None)
        if own is None:
            return
        field = self.target.schema.find_field(own)
        values, expected = (assign_column(each, field) for each in (column, given[own]))
        is_same = pc.or_kleene(pc.equal(values, expected), pc.and_(values.is_null(), expected.is_null()))
        if not pc.all(is_same.fill_null(False)).as_py():
            shown = given[own][0].as_py()
            raise UserError(f"Column {name!r} has other values than its folder, which says {shown!r}. Rename one.")


def _whole_variants(column: pa.Array) -> pa.Array:
    """Put variants together that the file stores in parts."""
    is_shredded = is_variant_group(column.type) and not is_whole_variant(column.type)
    return read_variants(column) if is_shredded else column


def _with_zone(column: pa.Array, field: FileField, instants: Collection[int]) -> pa.Array:
    """Return a column whose times of 96 bits, which are instants, have the zone that Arrow leaves out."""
    has_instants = any(leaf in instants for leaf in field.leaves)
    return column.cast(_type_with_zone(field, instants)) if has_instants else column


def _type_with_zone(field: FileField, instants: Collection[int]) -> pa.DataType:
    children = [_type_with_zone(child, instants) for child in field.children]
    if at.is_struct(field.type):
        return pa.struct([f.with_type(kind) for f, kind in zip(field.type, children, strict=True)])
    if at.is_map(field.type):
        return pa.map_(field.type.key_field.with_type(children[0]), field.type.item_field.with_type(children[1]))
    if children:
        return pa.list_(field.type.value_field.with_type(children[0]))
    return pa.timestamp("us", "UTC") if field.leaves.start in instants else field.type
