"""Where the data files of a table go and what they are called.

By default `<data path>/<partition path>/<name>`; with object storage layout a hash of the rest comes first, so that
the files of one partition do not share a prefix. Names carry the task and a number unique to the write, so no two
attempts ever meet.

>>> Layout("s3://b/t/data").path("00000-7-u-00001.parquet", "day=2026-01-01")
's3://b/t/data/day=2026-01-01/00000-7-u-00001.parquet'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import mmh3

from neve.io.paths import named_place
from neve.model.partition import Specs, partition_folders
from neve.model.properties import TableProperties

__all__ = ["FileNames", "Layout", "partition_path"]

_HASH_BITS, _FOLDER_BITS, _FOLDERS = 20, 4, 3
_FOLDER_LENGTH = 200


@dataclass(frozen=True, slots=True)
class FileNames:
    """The names of the files of one task attempt."""

    task: int  # ordinal of the task in its job
    attempt: int  # unique among all attempts of all tasks
    write_id: str  # unique among all writes

    def __iter__(self) -> Iterator[str]:
        return (f"{self.task:05d}-{self.attempt}-{self.write_id}-{n:05d}.parquet" for n in count(1))


@dataclass(frozen=True, slots=True)
class Layout:
    """How data files lie below the data path of a table."""

    data_path: str
    is_hashed: bool = False
    has_partition_folders: bool = True
    context: str = ""  # the table, named below a data path that tables share

    @classmethod
    def of(cls, location: str, properties: TableProperties) -> Layout:
        """The layout the properties of a table ask for."""
        location = location.rstrip("/")
        data_path = named_place(location, properties.data_path or "data")
        if not properties.object_storage:
            return cls(data_path)
        is_own = data_path.startswith(location)
        context = "" if is_own else "/".join(location.split("/")[-2:])
        return cls(data_path, True, properties.object_storage_partitioned_paths, context)

    def path(self, name: str, partition: str) -> str:
        """The full path of a file; `partition` is empty for a table without partitions."""
        below = f"{partition}/{name}" if partition and self.has_partition_folders else name
        if not self.is_hashed:
            return f"{self.data_path}/{below}"
        parts = _hash_folders(below)
        if self.context:
            return f"{self.data_path}/{parts}/{self.context}/{below}"
        return f"{self.data_path}/{parts}{'/' if self.has_partition_folders else '-'}{below}"


def partition_path(specs: Specs, spec_id: int, values: Sequence[object]) -> str:
    """The folders of a partition, `name=value` each, none longer than file systems take."""
    return "/".join(map(_cut, partition_folders(specs, spec_id, values)))


def _cut(folder: str) -> str:
    if len(folder) <= _FOLDER_LENGTH:
        return folder
    return f"{folder[: _FOLDER_LENGTH - 33]}-{mmh3.hash128(folder):032x}"


def _hash_folders(below: str) -> str:
    """Twenty bits of a hash as folders, the way Iceberg splits them."""
    bits = f"{mmh3.hash(below) & ((1 << _HASH_BITS) - 1):0{_HASH_BITS}b}"
    cuts = [bits[at : at + _FOLDER_BITS] for at in range(0, _FOLDER_BITS * _FOLDERS, _FOLDER_BITS)]
    return "/".join([*cuts, bits[_FOLDER_BITS * _FOLDERS :]])
