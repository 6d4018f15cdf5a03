"""Table metadata of format versions 1 to 4: the models, and how they are read from bytes and written to bytes.

The models are subclasses of PyIceberg's, which lose something otherwise: version 3 can be written, version 4 exists,
unknown keys survive a commit, snapshots are parsed only when they are used, and metadata of old writers is completed
as the Java library does it. Bytes are not trusted: size, depth and shape are checked first.
"""

from __future__ import annotations

import gzip
import re
import zlib
from typing import Any, Literal, Self, TypeAlias, cast

from pydantic import ConfigDict, Field, ValidationError, field_serializer, field_validator
from pydantic_core import from_json
from pyiceberg.conversions import from_json as from_json_value
from pyiceberg.conversions import to_json as to_json_value
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.schema import Schema
from pyiceberg.table import metadata as iceberg
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.statistics import BlobMetadata, PartitionStatisticsFile, StatisticsFile
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.types import TimestampNanoType, TimestamptzNanoType
from pyiceberg.utils.datetime import nanos_to_timestamp, timestamp_to_nanos, timestamptz_to_nanos

from neve.errors import CorruptFile, LimitExceeded, UnsupportedFeature, UserError
from neve.model.metadata_defaults import complete_metadata, uuid_from_location
from neve.model.pyiceberg_private import fields_by_id
from neve.model.snapshots import Snapshot, Snapshots
from neve.model.v3_types import prepare_types, restore_types

MAX_METADATA_BYTES = 256 << 20
"""Metadata larger than this, after decompression, is rejected. The value is looked up on every read."""

MAX_FIELDS = 20_000
"""A schema with more fields than this, including nested ones, is rejected: each file costs time for each field."""

MAX_SPECS = 1_000
"""More partition specs, or more fields in one spec, are rejected: the union tuple has a column for each field."""

_MAX_RATIO = 100  # of decompressed to compressed size, checked above `_RATIO_FLOOR`; real metadata is below 30
_RATIO_FLOOR = 64 << 20
_DEFAULTS_SINCE = 3
_KEEP_UNKNOWN = ConfigDict(extra="allow", populate_by_name=True, frozen=True)
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_SUFFIXES = (".gz.metadata.json", ".metadata.json.gz")


class Ref(SnapshotRef):
    """A branch or tag that keeps unknown keys."""

    model_config = _KEEP_UNKNOWN


class Blob(BlobMetadata):
    """A blob of a statistics file, of any type (PyIceberg accepts two types)."""

    model_config = _KEEP_UNKNOWN
    type: str  # type: ignore[assignment]


class Statistics(StatisticsFile):
    """A statistics file that keeps unknown keys."""

    model_config = _KEEP_UNKNOWN
    blob_metadata: list[Blob] = Field(alias="blob-metadata")  # type: ignore[assignment]


class PartitionStatistics(PartitionStatisticsFile):
    """A partition statistics file that keeps unknown keys."""

    model_config = _KEEP_UNKNOWN


class _CommonMetadata(iceberg.TableMetadataCommonFields):
    """Shared by all versions: unknown keys are kept, snapshots are lazy, a deep copy copies no snapshot."""

    model_config = _KEEP_UNKNOWN
    refs: dict[str, Ref] = Field(default_factory=dict)  # type: ignore[assignment]
    statistics: list[Statistics] = Field(default_factory=list)  # type: ignore[assignment]
    partition_statistics: list[PartitionStatistics] = Field(  # type: ignore[assignment]
        alias="partition-statistics", default_factory=list
    )

    @field_validator("snapshots", mode="plain")
    @classmethod
    def _parse_snapshots(cls, value: Any) -> Snapshots:
        return Snapshots.of(value or ())

    @field_serializer("snapshots")
    def serialize_snapshots(self, snapshots: Any) -> Any:
        return self.lazy_snapshots.rows

    @property
    def lazy_snapshots(self) -> Snapshots:
        """The snapshots as `Snapshots`: lookup by id without a scan, raw rows without building objects."""
        return Snapshots.of(self.snapshots)

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        return self.lazy_snapshots.by_id(snapshot_id)

    def model_copy(self, *, update: Any = None, deep: bool = False) -> Self:
        # All values are frozen; PyIceberg makes deep copies only to protect its lists and dicts.
        copied = super().model_copy(update=update)
        if deep:
            for name, value in copied.__dict__.items():
                if type(value) in (list, dict):
                    copied.__dict__[name] = value.copy()
        return copied


class MetadataV1(_CommonMetadata, iceberg.TableMetadataV1):
    """Version 1: one current schema and spec, with or without the later lists."""


class MetadataV2(_CommonMetadata, iceberg.TableMetadataV2):
    """Version 2: sequence numbers and row-level deletes."""


class MetadataV3(_CommonMetadata, iceberg.TableMetadataV3):
    """Version 3: row lineage, deletion vectors, defaults."""

    # PyIceberg's own method raises an error for version 3.
    model_dump_json = IcebergBaseModel.model_dump_json  # type: ignore[pydantic-field]


class MetadataV4(MetadataV3):
    """Version 4: a snapshot may have a root manifest."""

    format_version: Literal[4] = Field(alias="format-version", default=4)  # type: ignore[assignment]


TableMetadata: TypeAlias = MetadataV1 | MetadataV2 | MetadataV3 | MetadataV4
VERSIONS: dict[int, type[TableMetadata]] = {1: MetadataV1, 2: MetadataV2, 3: MetadataV3, 4: MetadataV4}
_UNKNOWN_TYPE = re.compile(r"Unsupported field type: '\w+|Could not parse geo")


# PyIceberg converts the default values of all other types. Nanosecond timestamps are numbers since 1970, because
# Python's own timestamps end at microseconds.


@from_json_value.register(TimestampNanoType)
@from_json_value.register(TimestamptzNanoType)
def _(kind: TimestampNanoType | TimestamptzNanoType, value: str | int) -> int:
    parse = timestamp_to_nanos if isinstance(kind, TimestampNanoType) else timestamptz_to_nanos
    return value if isinstance(value, int) else parse(str(value))


@to_json_value.register(TimestampNanoType)
@to_json_value.register(TimestamptzNanoType)
def _(kind: TimestampNanoType | TimestamptzNanoType, value: int) -> str:
    text = f"{nanos_to_timestamp(value).isoformat(timespec='microseconds')}{value % 1000:03}"
    return text if isinstance(kind, TimestampNanoType) else f"{text}+00:00"


def parse_metadata(raw: bytes, path: str, limit: int | None = None) -> TableMetadata:
    """Parse a metadata file, compressed or not. Raises CorruptFile, LimitExceeded or UnsupportedFeature (version)."""
    limit = MAX_METADATA_BYTES if limit is None else limit
    hint = "Raise neve.model.metadata.MAX_METADATA_BYTES."
    return metadata_from_json(parse_json(raw, path, limit, "table metadata", hint), path)


def parse_json(raw: bytes, path: str, limit: int, what: str, hint: str) -> Any:
    """Parse a JSON file, compressed or not, of at most so many bytes. Raises CorruptFile or LimitExceeded."""
    text = raw
    if raw[:2] == _GZIP_MAGIC:
        limit = min(limit, max(_RATIO_FLOOR, _MAX_RATIO * len(raw)))
        inflate = zlib.decompressobj(wbits=31)
        try:
            text = inflate.decompress(raw, limit + 1)
        except zlib.error as e:
            raise CorruptFile(path, "gzip data", str(e)) from e
        if len(text) <= limit and not inflate.eof:
            raise CorruptFile(path, "complete gzip data", f"a stream that ends after {len(raw)} bytes")
    if len(text) > limit:
        raise LimitExceeded(f"the size of {path}", limit, hint)
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as e:
        raise CorruptFile(path, f"{what} as JSON", str(e)) from e
    except MemoryError as e:
        raise LimitExceeded(f"the memory to hold {path}", len(text), "It has too many values for this process.") from e


def metadata_from_json(json_object: Any, path: str) -> TableMetadata:
    """Parse metadata from a JSON object, which is changed in the process; `path` is where it came from."""
    if not isinstance(json_object, dict) or type(json_object.get("format-version")) is not int:
        is_object = isinstance(json_object, dict)
        found = f"an object with keys {sorted(json_object)[:8]}" if is_object else type(json_object).__name__
        raise CorruptFile(path, "a JSON object with a format-version", found)
    version = json_object["format-version"]
    if version not in VERSIONS:
        raise UnsupportedFeature(f"Format version {version} of {path} is not supported; this engine supports 1 to 4.")
    _check_limits(json_object, path)
    for key in ("schema", "schemas"):
        prepare_types(json_object.get(key))
    try:
        return _validate_model(VERSIONS[version], complete_metadata(dict(json_object), version, path))
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _invalid_metadata_error(path, f"{where}: {first['msg']}") from e
    except (ValueError, TypeError, KeyError, AttributeError, IcebergValidationError, RecursionError) as e:
        raise _invalid_metadata_error(path, str(e) or type(e).__name__) from e


def _invalid_metadata_error(path: str, why: str) -> CorruptFile | UnsupportedFeature:
    if _UNKNOWN_TYPE.search(why):
        return UnsupportedFeature(f"Cannot read {path}: {why}. This engine does not support that type.")
    return CorruptFile(path, "valid table metadata", why)


def _check_limits(json_object: dict[str, Any], path: str) -> None:
    schemas, specs = json_object.get("schemas"), json_object.get("partition-specs")
    for schema in (json_object.get("schema"), *(schemas if isinstance(schemas, list) else ())):
        count, pending = 0, [schema]
        while pending and count <= MAX_FIELDS:
            node = pending.pop()
            fields = node.get("fields", ()) if isinstance(node, dict) else ()
            if isinstance(fields, list):
                count += len(fields)
                pending += [f["type"] for f in fields if isinstance(f, dict) and isinstance(f.get("type"), dict)]
            elif isinstance(node, dict):
                pending += [node[k] for k in ("element", "key", "value") if isinstance(node.get(k), dict)]
        if count > MAX_FIELDS:
            raise LimitExceeded(
                f"the number of fields of a schema in {path}", MAX_FIELDS, "Raise neve.model.metadata.MAX_FIELDS."
            )
    if isinstance(specs, list):
        field_lists = [s["fields"] for s in specs if isinstance(s, dict) and isinstance(s.get("fields"), list)]
        if max(len(specs), *map(len, field_lists), 0) > MAX_SPECS:
            hint = "Raise neve.model.metadata.MAX_SPECS."
            raise LimitExceeded(f"the number of partition specs or fields in {path}", MAX_SPECS, hint)


def to_neve_metadata(metadata: Any, path: str = "") -> TableMetadata:
    """Convert PyIceberg's metadata to the types of this module; metadata of these types is returned as it is."""
    if isinstance(metadata, _CommonMetadata):
        return cast(TableMetadata, metadata)
    json_object = IcebergBaseModel.model_dump(metadata, mode="json")
    if metadata.format_version >= 3 and not metadata.snapshots:
        json_object.setdefault("next-row-id", 0)  # PyIceberg leaves it out of a new table
    return metadata_from_json(json_object, path or metadata.location)


def table_identity(metadata: Any) -> str:
    """Return the id a table has had since it was created; empty for a version 1 table created without an id."""
    by_location = metadata.format_version == 1 and metadata.table_uuid == uuid_from_location(metadata.location)
    return str(metadata.table_uuid) if "table_uuid" in metadata.model_fields_set and not by_location else ""


def are_different_tables(one: str, other: str) -> bool:
    """Check whether two identities belong to different tables; an empty identity may be any table."""
    return bool(one and other) and one != other


def serialise_metadata(metadata: TableMetadata, path: str = "") -> bytes:
    """Serialize metadata; compressed if the file name ends as that of a gzip file."""
    text = restore_types(metadata.model_dump_json().encode())
    return gzip.compress(text, compresslevel=6, mtime=0) if path.endswith(_GZIP_SUFFIXES) else text


def check_has_scheme(location: str) -> None:
    """Reject a location without a URI scheme: version 4 resolves relative paths against it."""
    if ":" not in location.split("/", 1)[0]:
        raise UserError(f"Location {location!r} of a version 4 table needs a URI scheme, as in 'file:///lake/db/t'.")


def check_schema_fits(schema: Schema, format_version: int) -> None:
    """Reject types and defaults that a format version does not have: its readers would return other values."""
    try:
        schema.check_format_version_compatibility(format_version)
    except ValueError as e:
        raise UserError(f"Schema does not fit format version {format_version}: {e}") from e
    with_default = [f.name for f in fields_by_id(schema).values() if f.initial_default is not None]
    if with_default and format_version < _DEFAULTS_SINCE:
        raise UserError(
            f"Cannot give column {with_default[0]!r} a default in a version {format_version} table: existing rows "
            f"would be read without it. Upgrade the table to version {_DEFAULTS_SINCE}, or leave the default out."
        )


def _validate_model(kind: type[TableMetadata], json_object: dict[str, Any]) -> TableMetadata:
    last_partition_id = json_object["last-partition-id"]
    metadata = kind.model_validate(json_object)
    iceberg.check_schemas(metadata)
    iceberg.check_partition_specs(metadata)
    iceberg.check_sort_orders(metadata)
    snapshot_ids, current = metadata.lazy_snapshots.positions, metadata.current_snapshot_id
    if current is not None and current not in snapshot_ids:
        raise ValueError(f"current-snapshot-id {current} is not among the snapshots")
    for name, ref in metadata.refs.items():
        if ref.snapshot_id not in snapshot_ids:
            raise ValueError(f"ref {name!r} names snapshot {ref.snapshot_id}, which is not among the snapshots")
    main = metadata.refs["main"].snapshot_id if "main" in metadata.refs else None
    if main != current:
        raise ValueError(f"current-snapshot-id is {current}, but branch main is at {main}")
    if metadata.last_partition_id != last_partition_id:  # PyIceberg's version 1 sets it to the highest id in use
        metadata = metadata.model_copy(update={"last_partition_id": last_partition_id})
    return metadata
