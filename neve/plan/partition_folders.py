"""Find out which files of a folder to add to a table, and the partition of each: `day=2026-01-01/region=eu/x.parquet`.

Folders are read as Spark and Hive write them. Their names are mapped to the identity fields of a spec, in any order and
without regard to case; `%XX` in a name stands for a character, and `__HIVE_DEFAULT_PARTITION__` for null. A value must
be exactly one of the column's type: nothing is rounded or guessed.

>>> parse_folder_value("2026-01-31", ice.DateType()), parse_folder_value("1.5", ice.LongType())
(20484, None)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from decimal import Decimal
from functools import cache
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import IdentityTransform, VoidTransform

from neve.display.format import format_size, plural
from neve.errors import UnsupportedFeature, UserError
from neve.model.partition import Specs
from neve.predicate.constants import parse_date, parse_instant, parse_timestamp
from neve.tree.entries import EntryTable

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
FILE_FORMATS = ("PARQUET", "ORC", "AVRO")
LOG_FOLDER = "_delta_log"  # of a Delta table

_HIDDEN_SEGMENT = r"(?:^|/)(?:\.[^/]*|_[^/=]*)(?:/|$)|/_[^/]*$|\._COPYING_$"  # as Spark and Iceberg skip them
_NANOS = 1000


@dataclass(frozen=True)
class AddFilesPlan:
    """The files to add, each with its partition; their footers have not been read yet."""

    files: EntryTable
    spec_id: int
    left_out: int = 0  # files in partitions that the filter does not select

    def explain(self) -> str:
        """Describe the plan in words."""
        partitions = "" if self.files.specs.is_unpartitioned(self.spec_id) else f" of {self.partitions}"
        sizes = self.files["file_size_in_bytes"]
        size = "" if sizes.null_count else f" ({format_size(pc.sum(sizes).as_py() or 0)})"
        left_out = f"; {plural(self.left_out, 'file')} left out by the filter" if self.left_out else ""
        return f"add {plural(len(self.files), 'file')}{size}{partitions} under partition spec {self.spec_id}{left_out}"

    @property
    def partitions(self) -> str:
        """The number of partitions, in words."""
        return plural(len(self.files.partition_codes()[1]), "partition")


@dataclass(frozen=True)
class FolderFields:
    """The partition fields of a spec that folders give values to."""

    specs: Specs
    spec_id: int
    zone: tzinfo = UTC  # of times without a zone

    @property
    def fields(self) -> list[PartitionField]:
        """The fields, without void ones, which version 1 keeps for dropped fields."""
        return [f for f in self.specs[self.spec_id].fields if not isinstance(f.transform, VoidTransform)]

    def check(self, table: str) -> None:
        """Reject a spec whose values folders cannot give."""
        for field in self.fields:
            if not isinstance(field.transform, IdentityTransform):
                raise UnsupportedFeature(
                    f"Cannot add files to table {table}: its partition field {field.name!r} is a {field.transform} "
                    "transform, and the folders of other engines are values of columns. Add the files to a table that "
                    "is partitioned by columns alone, or append their rows."
                )

    def column_name(self, field: PartitionField) -> str:
        """Return the full name of the column that a field takes its values from."""
        return self.specs.schemas[0].find_column_name(field.source_id) or field.name

    def index_by_name(self) -> dict[str, int]:
        """Return the numbers of the fields by their own names and by those of their columns, in lower case."""
        by_column = {self.column_name(f).lower(): n for n, f in enumerate(self.fields)}
        return by_column | {f.name.lower(): n for n, f in enumerate(self.fields)}

    def values_of(self, names: Mapping[str, str], where: str) -> tuple[Any, ...]:
        """Return the values of all fields from texts by name; `where` names their place in errors."""
        index, values = self.index_by_name(), dict[int, Any]()
        for name, text in names.items():
            if name.lower() not in index:
                known = ", ".join(f.name for f in self.fields) or "none"
                raise UserError(f"{where}: {name!r} is no partition field of the table. Its fields: {known}.")
            values[index[name.lower()]] = self.value_of(index[name.lower()], text, where)
        if missing := [f.name for n, f in enumerate(self.fields) if n not in values]:
            raise UserError(f"{where}: no folder names a value of the partition field {missing[0]!r}.")
        return tuple(values[n] for n in range(len(self.fields)))

    def value_of(self, number: int, text: str, where: str) -> Any:
        """Return the value that a text stands for, as the format stores it."""
        field = self.fields[number]
        name = self.column_name(field)
        if text == NULL_FOLDER:
            if self.specs.schemas[0].find_field(field.source_id).required:
                raise UserError(f"{where}: column {name!r} is required, and this is null.")
            return None
        return read_folder_value(text, name, self.specs.source_type(field), where, self.zone)


def plan_added_files(
    listing: pa.Table,
    fields: FolderFields,
    *,
    root: str | None = None,
    partition_filter: Mapping[str, str] | None = None,
    file_format: str | None = None,
) -> AddFilesPlan:
    """Plan which files of a listing (path, size) to add, and find the partition of each.

    Below `root`, the listed folder, hidden files are skipped, and folders must be partitions. Without a root, the files
    were named one by one, and their partition is in the folders that end their path.
    """
    paths = listing["path"].combine_chunks()
    if root is not None:
        listing = visible_files(listing, root)
        paths = listing["path"].combine_chunks()
    folders = pc.list_element(pc.split_pattern(paths, "/", max_splits=1, reverse=True), 0).dictionary_encode()
    names = [_partition_names(folder, root, len(fields.fields)) for folder in folders.dictionary.to_pylist()]
    tuples = [fields.values_of(n, f"Folder {f}") for n, f in zip(names, folders.dictionary.to_pylist(), strict=True)]
    wanted = _wanted_values(partition_filter or {}, fields)
    selected = [all(values[n] == value for n, value in wanted.items()) for values in tuples]
    codes = folders.indices.to_numpy(zero_copy_only=False)
    mask = np.array(selected, bool)[codes]
    columns: dict[str, Any] = {
        "manifest": -1,
        "status": 1,
        "content": 0,
        "file_path": paths.filter(pa.array(mask)),
        "file_format": file_formats(paths.filter(pa.array(mask)), file_format),
        "spec_id": fields.spec_id,
        "file_size_in_bytes": listing["size"].filter(pa.array(mask)),
    }
    columns |= _tuple_columns(tuples, codes[mask], fields)
    count = int(mask.sum())
    return AddFilesPlan(EntryTable.from_columns(columns, fields.specs, count), fields.spec_id, listing.num_rows - count)


def visible_files(listing: pa.Table, root: str) -> pa.Table:
    """Return the files below a folder without those that are hidden; a Delta or Iceberg table is an error."""
    paths = listing["path"].combine_chunks()
    if pc.any(pc.starts_with(paths, f"{root}/{LOG_FOLDER}/")).as_py():
        raise UserError(
            f"Cannot take the files in {root}: it is a Delta table, and has files of earlier versions too. Make a "
            "table of it with lake.snapshot_delta(folder, name), or append its rows."
        )
    relative = pc.utf8_slice_codeunits(paths, len(root))
    if pc.any(pc.match_substring_regex(relative, r"/metadata/[^/]+\.metadata\.json$")).as_py():
        raise UserError(
            f"Cannot take the files in {root}: it is an Iceberg table, and has files of earlier snapshots too. Append "
            "its rows instead."
        )
    return listing.filter(pc.invert(pc.match_substring_regex(relative, _HIDDEN_SEGMENT)))


def _partition_names(folder: str, root: str | None, count: int) -> dict[str, str]:
    """Return the texts of a folder by the name of the partition field; an error if other folders are in between."""
    below = [] if root is None else folder[len(root) :].strip("/").split("/") if len(folder) > len(root) else []
    if len(below) > count or any("=" not in segment for segment in below):
        wanted = f"{plural(count, 'partition folder')} such as name=value" if count else "no folders"
        raise UserError(
            f"Cannot add the files in {folder}: the table's partition spec has {wanted} below {root}. Give the folder "
            "that holds the partitions, and a table that is partitioned as it is."
        )
    segments = folder.split("/")[-count:] if count else []
    return dict(split_segment(segment) for segment in segments if "=" in segment)


def split_segment(segment: str) -> tuple[str, str]:
    """Return the name and the text of a folder `name=text`."""
    name, _, text = segment.partition("=")
    return _unescape(name), _unescape(text)


def _unescape(text: str) -> str:
    """Decode each %XX: to a character, as Spark writes it, or several to one, as Arrow and pandas write UTF-8."""
    try:
        return unquote(text, "utf-8", errors="strict")
    except UnicodeDecodeError:
        return unquote(text, "latin-1")


def _wanted_values(partition_filter: Mapping[str, str], fields: FolderFields) -> dict[int, Any]:
    """Return the values that the filter asks for, by the number of the field."""
    index, where = fields.index_by_name(), "partition_filter"
    if unknown := [name for name in partition_filter if name.lower() not in index]:
        known = ", ".join(f.name for f in fields.fields) or "none"
        raise UserError(f"{where}: {unknown[0]!r} is no partition field of the table. Its fields: {known}.")
    return {index[n.lower()]: fields.value_of(index[n.lower()], text, where) for n, text in partition_filter.items()}


def file_formats(paths: pa.Array, file_format: str | None) -> pa.Array:
    """Return the formats of files: the given one, or what their names end with; Parquet files may have any name."""
    if file_format is not None:
        if file_format.upper() not in FILE_FORMATS:
            raise UserError(f"Cannot read files of format {file_format!r}. The formats are parquet, orc and avro.")
        return pa.repeat(file_format.upper(), len(paths))
    ends = [pc.ends_with(paths, end, ignore_case=True) for end in (".orc", ".avro")]
    return pc.if_else(ends[0], "ORC", pc.if_else(ends[1], "AVRO", "PARQUET"))


def _tuple_columns(tuples: Sequence[tuple[Any, ...]], codes: Any, fields: FolderFields) -> dict[str, Any]:
    """Return the union columns of files from the tuples of their folders."""
    types = {u.column: u.arrow_type for u in fields.specs.union}
    names = fields.specs.columns(fields.spec_id)
    ids = [f.field_id for f in fields.specs[fields.spec_id].fields]
    own = [names[ids.index(f.field_id)] for f in fields.fields]
    return {
        name: pa.array([values[n] for values in tuples], types[name]).take(pa.array(codes))
        for n, name in enumerate(own)
    }


def read_folder_value(text: str, name: str, kind: ice.IcebergType, where: str, zone: tzinfo) -> Any:
    """Return the value that the text of a folder gives to a column; a text that is none is an error."""
    value = parse_folder_value(text, kind, zone)
    if value is None:
        raise UserError(f"{where}: {text!r} is no value of type {kind}, which column {name!r} has.")
    return value


def parse_folder_value(text: str, kind: ice.IcebergType, zone: tzinfo = UTC) -> Any:
    """Return the value that the text of a folder stands for, as the format stores it; None if it is none."""
    if isinstance(kind, ice.TimestampType | ice.TimestampNanoType):
        parsed = parse_timestamp(text)
        return None if parsed is None or parsed[2] is not None else _in_unit(parsed[0], parsed[1], kind)
    if isinstance(kind, ice.TimestamptzType | ice.TimestamptzNanoType):
        instant = parse_instant(text, zone)
        return None if instant is None else _in_unit(instant.value, instant.nanos, kind)
    parse = _parsers().get(type(kind))
    try:
        return None if parse is None or not text else parse(text, kind)
    except (ValueError, ArithmeticError):
        return None


def _in_unit(micros: int, nanos: int, kind: ice.IcebergType) -> int | None:
    """Return a time in the unit of a type; None if it has digits that the type lacks."""
    if isinstance(kind, ice.TimestampNanoType | ice.TimestamptzNanoType):
        return micros * _NANOS + nanos
    return None if nanos else micros


@cache
def _parsers() -> Mapping[type[ice.IcebergType], Callable[[str, Any], Any]]:
    return {
        ice.StringType: lambda text, _: text,
        ice.BooleanType: lambda text, _: {"true": True, "false": False}.get(text.lower()),
        ice.IntegerType: lambda text, _: _whole_number(text, 31),
        ice.LongType: lambda text, _: _whole_number(text, 63),
        ice.FloatType: lambda text, _: float(np.float32(_floating(text))),
        ice.DoubleType: lambda text, _: _floating(text),
        ice.DecimalType: _decimal,
        ice.DateType: lambda text, _: parse_date(text),
        ice.UUIDType: lambda text, _: UUID(text).bytes,
    }


def _whole_number(text: str, bits: int) -> int | None:
    number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else None
    return number if number is not None and -(1 << bits) <= number < 1 << bits else None


def _floating(text: str) -> float:
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|[+-]?Infinity", text):
        raise ValueError(text)
    return float(text)


def _decimal(text: str, kind: ice.DecimalType) -> Decimal | None:
    if not re.fullmatch(r"[+-]?([0-9]{1,38}\.?[0-9]{0,38}|\.[0-9]{1,38})", text):
        return None
    whole, _, fraction = text.partition(".")
    if fraction[kind.scale :].strip("0") or len(whole.lstrip("+-0")) > kind.precision - kind.scale:
        return None
    return Decimal(f"{whole or '0'}.{fraction[: kind.scale].ljust(kind.scale, '0')}" if kind.scale else whole)


def filter_texts(partition_filter: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a filter as the texts of folders."""
    return {name: _folder_text(value) for name, value in partition_filter.items()}


def _folder_text(value: Any) -> str:
    if value is None:
        return NULL_FOLDER
    return str(value).lower() if isinstance(value, bool) else str(value)
