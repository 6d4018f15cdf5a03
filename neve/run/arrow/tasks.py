"""What it takes to read one data file, as values that travel to whoever reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from neve.io.deletion_vectors import PositionSet
from neve.run.arrow.types import Carrier

__all__ = ["DeleteFile", "EqualityDeletes", "FileTask", "ReadTarget"]


@dataclass(frozen=True)
class ReadTarget:
    """What is the same for every file of a scan."""

    schema: Schema  # the columns of the result, metadata columns included, in order
    name_mapping: NameMapping | None = None
    schemas: Sequence[Schema] = ()  # of the table, the current one first: the names of columns in files without ids
    carrier: Carrier = Carrier.EXACT
    predicate: BooleanExpression | None = None  # bound, without NOT: row groups without a row that meets it are skipped


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file, or a deletion vector inside a Puffin file (then with its place and size)."""

    path: str
    file_format: str = "PARQUET"
    file_size: int | None = None
    record_count: int | None = None
    content_offset: int | None = None
    content_size: int | None = None


@dataclass(frozen=True, slots=True)
class EqualityDeletes:
    """Delete files whose rows delete every row that agrees with one of them in the key columns."""

    files: tuple[DeleteFile, ...]
    keys: tuple[int, ...]  # field ids, also of columns inside structs


@dataclass(frozen=True)
class FileTask:
    """One data file, or one part of it, with the deletes that apply to it."""

    path: str
    file_format: str = "PARQUET"
    file_size: int | None = None
    record_count: int | None = None
    spec_id: int = 0
    partition: Mapping[int, Any] = field(default_factory=dict)  # identity partition values by id of the source column
    union: Sequence[Any] = ()  # the union tuple, for `_partition`
    first_row_id: int | None = None
    sequence_number: int | None = None
    positions: PositionSet | None = None  # rows known to be deleted
    deletes: tuple[DeleteFile, ...] = ()  # position delete files and vectors still to be read
    equality: tuple[EqualityDeletes, ...] = ()
    ordinal: int = -1  # its place in a numbered plan
    part: tuple[int, int] = (0, 1)  # which of how many equal stretches of bytes; only Parquet files are divided
