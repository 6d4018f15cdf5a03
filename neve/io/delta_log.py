"""Read one version of a Delta table from its log, with the package `deltalake`.

The log says which files the version has, the partition of each, and which of their rows are deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import UnsupportedFeature, UserError
from neve.io.deletion_vectors import PositionSet
from neve.io.paths import scheme_of
from neve.model.delta_schema import DeltaColumns, parse_delta_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable

_STORAGE_OPTIONS = {  # of PyIceberg, and what the object stores of deltalake call them
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "s3.region": "AWS_REGION",
    "s3.endpoint": "AWS_ENDPOINT_URL",
}


@dataclass(frozen=True)
class DeltaVersion:
    """One version of a Delta table."""

    location: str
    version: int
    columns: DeltaColumns
    is_mapped: bool  # its data files may have other names for columns, and field ids
    partition_columns: tuple[str, ...]
    files: pa.Table  # path, size, and the partition columns
    deleted: Mapping[str, PositionSet]  # rows, by the path of the file


def read_delta_version(source: str | Path, version: int | None, properties: Mapping[str, str]) -> DeltaVersion:
    """Read a version of a Delta table, by default the newest; `properties` are those of the storage."""
    text = str(source)
    location = text.rstrip("/") if scheme_of(text) else f"file://{os.path.abspath(text)}"
    with _translate_errors(location):
        table = _open(location, version, properties)
        about = table.metadata()
        partition_columns = tuple(about.partition_columns)
        is_mapped = about.configuration.get("delta.columnMapping.mode", "none") != "none"
        return DeltaVersion(
            location,
            table.version(),
            parse_delta_schema(table.schema().to_json(), is_mapped=is_mapped),
            is_mapped,
            partition_columns,
            _files(table, location, partition_columns),
            _deleted_rows(table),
        )


@contextmanager
def _translate_errors(location: str) -> Iterator[None]:
    try:
        from deltalake.exceptions import DeltaError, TableNotFoundError  # noqa: PLC0415 - optional
    except ImportError as e:
        raise UnsupportedFeature("Reading Delta tables needs the package deltalake: pip install 'neve[delta]'.") from e
    try:
        yield
    except TableNotFoundError as e:
        raise UserError(f"There is no Delta table in {location}: {e}") from e
    except DeltaError as e:
        raise UserError(f"Cannot read the Delta table in {location}: {e}") from e


def _open(location: str, version: int | None, properties: Mapping[str, str]) -> DeltaTable:
    from deltalake import DeltaTable  # noqa: PLC0415 - optional

    options = {theirs: properties[ours] for ours, theirs in _STORAGE_OPTIONS.items() if ours in properties}
    if properties.get("s3.endpoint", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return DeltaTable(location, version=version, storage_options=options)


def _files(table: DeltaTable, location: str, partition_columns: tuple[str, ...]) -> pa.Table:
    actions = pa.table(table.get_add_actions())
    paths = [_full_path(path, location) for path in actions["path"].to_pylist()]
    columns: dict[str, Any] = {"path": pa.array(paths, pa.string()), "size": actions["size_bytes"]}
    for name in partition_columns:
        columns[f"partition.{name}"] = pc.struct_field(actions["partition"], [name])
    return pa.table(columns)


def _full_path(path: str, location: str) -> str:
    """Return the path of a file: in the log it is encoded as in a URL, and below the table unless it has a scheme."""
    return unquote(path) if scheme_of(path) else f"{location}/{unquote(path)}"


def _deleted_rows(table: DeltaTable) -> dict[str, PositionSet]:
    deleted: dict[str, PositionSet] = {}
    for batch in map(pa.record_batch, table.deletion_vectors()):
        for path, kept in zip(batch["filepath"].to_pylist(), batch["selection_vector"], strict=True):
            is_kept = kept.values.to_numpy(zero_copy_only=False)
            deleted[_path_of_url(path)] = PositionSet.of((~is_kept).nonzero()[0])
    return deleted


def _path_of_url(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}"
