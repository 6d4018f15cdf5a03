"""ORC data files, one stripe after the other.

ORC has no type for times of day: they are longs with the attribute `iceberg.long-type`, and count microseconds. Field
ids are the type attribute `iceberg.id`, which pyarrow shows as field metadata. Whole top-level columns are read.
pyarrow holds ORC timestamps in nanoseconds, so those before 1677 or after 2262 are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import orc
from pyiceberg.io import FileIO

from neve.errors import UnsupportedFeature
from neve.io.untrusted import opened, reading
from neve.run.arrow.build import Rows, Stretch
from neve.run.arrow.ids import FileField, fields_of, top_level

__all__ = ["OrcData", "open_orc"]


@dataclass(frozen=True)
class OrcData:
    """An open ORC file."""

    path: str
    file: orc.ORCFile
    stream: Any
    prunes_nested: bool = False

    @property
    def fields(self) -> tuple[FileField, ...]:
        """The columns of the file."""
        with reading(self.path, "an ORC schema"):
            return fields_of(pa.schema(map(_timed, self.file.schema)), self.path)

    @property
    def record_count(self) -> int:
        """The rows the footer counts."""
        return int(self.file.nrows)

    def batches(self, leaves: Sequence[int], part: tuple[int, int] = (0, 1)) -> Iterator[Stretch]:
        """The top-level columns that hold the leaves asked for; the file is never divided."""
        wanted = top_level(self.fields, leaves) or [0]  # without any column a stripe would not tell its rows
        start = 0
        for stripe in range(self.file.nstripes if part[0] == 0 else 0):
            with _reading(self.path):
                whole = self.file.read_stripe(stripe, columns=wanted)
            columns = zip(whole.schema, whole.columns, strict=True)
            yield Rows(start, whole.num_rows), [column.cast(_timed(f).type) for f, column in columns]
            start += whole.num_rows

    def close(self) -> None:
        """Release the file."""
        self.stream.close()


def open_orc(io: FileIO, path: str, size: int | None) -> OrcData:
    """Open an ORC file and read its footer."""
    stream, _ = opened(io, path, size)
    try:
        with reading(path, "an ORC file"):
            return OrcData(path, orc.ORCFile(stream), stream)
    except BaseException:
        stream.close()
        raise


def _timed(field: pa.Field) -> pa.Field:
    """A field with the types that its attributes mean."""
    kind = field.type
    if (field.metadata or {}).get(b"iceberg.long-type") == b"TIME" and pa.types.is_int64(kind):
        return field.with_type(pa.time64("us"))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_timed(f) for f in kind]))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_timed(kind.key_field), _timed(kind.item_field)))
    return field.with_type(pa.list_(_timed(kind.value_field))) if pa.types.is_list(kind) else field


@contextmanager
def _reading(path: str) -> Iterator[None]:
    with reading(path, "readable ORC stripes"):
        try:
            yield
        except pa.ArrowInvalid as error:
            if "out of range for nanosecond" not in str(error):
                raise
            raise UnsupportedFeature(
                f"Cannot read {path}: ORC timestamps before 1677 or after 2262 are not supported. "
                "Rewrite the file as Parquet with another engine."
            ) from error
