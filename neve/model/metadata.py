"""Table metadata of format versions 1 to 4: the models, read from bytes and written to them.

PyIceberg's models are the base, subclassed where they lose something: version 3 can be written, version 4 exists,
keys nobody here knows survive a commit, snapshots stay raw until looked at, and metadata of old writers is
completed the way the Java library completes it. Bytes are not trusted: size, depth and shape are checked first.
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

MAX_METADATA_BYTES = 256 << 20
"""Metadata larger than this, after decompression, is refused; looked at anew on every read."""

MAX_FIELDS = 20_000
"""A schema with more fields than this, nested ones included, is refused: every file takes time for each of them."""

MAX_SPECS = 1_000
"""More partition specs than this, or fields in one of them, are refused: their tuples stand side by side."""

_MAX_RATIO = 100  # of compressed metadata, once it inflates beyond `_RATIO_FLOOR`; what writers write is below 30
_RATIO_FLOOR = 64 << 20
_DEFAULTS_SINCE = 3
_KEEP_UNKNOWN = ConfigDict(extra="allow", populate_by_name=True, frozen=True)
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_SUFFIXES = (".gz.metadata.json", ".metadata.json.gz")


class Ref(SnapshotRef):
    """A branch or tag that keeps keys it does not know."""

    model_config = _KEEP_UNKNOWN


class Blob(BlobMetadata):
    """A blob of a statistics file, of any type (PyIceberg knows two)."""

    model_config = _KEEP_UNKNOWN
    type: str  # type: ignore[assignment]


class Statistics(StatisticsFile):
    """A statistics file that keeps keys it does not know."""

    model_config = _KEEP_UNKNOWN
    blob_metadata: list[Blob] = Field(alias="blob-metadata")  # type: ignore[assignment]


class PartitionStatistics(PartitionStatisticsFile):
    """A partition statistics file that keeps keys it does not know."""

    model_config = _KEEP_UNKNOWN


class _CommonMetadata(iceberg.TableMetadataCommonFields):
    """What all versions share: unknown keys are kept, snapshots are lazy, a deep copy copies no snapshot."""

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
        """The snapshots by their own type: `by_id` without a walk, `rows` without objects."""
        return Snapshots.of(self.snapshots)

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        return self.lazy_snapshots.by_id(snapshot_id)

    def model_copy(self, *, update: Any = None, deep: bool = False) -> Self:
        # Everything inside is frozen; PyIceberg asks for deep copies only to protect its containers.
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

    def model_dump_json(  # type: ignore[override]
        self, exclude_none: bool = True, exclude: Any = None, by_alias: bool = True, **kwargs: Any
    ) -> str:
        """JSON text; PyIceberg refuses to write version 3."""
        return IcebergBaseModel.model_dump_json(
            self, exclude_none=exclude_none, exclude=exclude, by_alias=by_alias, **kwargs
        )


class MetadataV4(MetadataV3):
    """Version 4: snapshots may name a root manifest."""

    format_version: Literal[4] = Field(alias="format-version", default=4)  # type: ignore[assignment]


TableMetadata: TypeAlias = MetadataV1 | MetadataV2 | MetadataV3 | MetadataV4
VERSIONS: dict[int, type[TableMetadata]] = {1: MetadataV1, 2: MetadataV2, 3: MetadataV3, 4: MetadataV4}


_UNKNOWN_TYPE = re.compile(r"Unsupported field type: 'variant|Could not parse geo")


# PyIceberg reads and writes the defaults of all other types. These are numbers from 1970 on: Python's own timestamps
# end at microseconds.


@from_json_value.register(TimestampNanoType)
def _(_: TimestampNanoType, value: str | int) -> int:
    return value if isinstance(value, int) else timestamp_to_nanos(str(value))


@from_json_value.register(TimestamptzNanoType)
def _(_: TimestamptzNanoType, value: str | int) -> int:
    return value if isinstance(value, int) else timestamptz_to_nanos(str(value))


@to_json_value.register(TimestampNanoType)
def _(_: TimestampNanoType, value: int) -> str:
    return f"{nanos_to_timestamp(value).isoformat(timespec='microseconds')}{value % 1000:03}"


@to_json_value.register(TimestamptzNanoType)
def _(_: TimestamptzNanoType, value: int) -> str:
    return f"{to_json_value(TimestampNanoType(), value)}+00:00"


def parse_metadata(raw: bytes, path: str, limit: int | None = None) -> TableMetadata:
    """Table metadata from the bytes of a metadata file, compressed or not.

    Raises CorruptFile naming the path, LimitExceeded, or UnsupportedFeature for a version from the future.
    """
    limit = MAX_METADATA_BYTES if limit is None else limit
    text = _decompress(raw, path, limit) if raw[:2] == _GZIP_MAGIC else raw
    if len(text) > limit:
        raise _too_large_error(path, limit)
    try:
        found = from_json(text, allow_inf_nan=False)
    except ValueError as e:
        raise CorruptFile(path, "table metadata as JSON", str(e)) from e
    except MemoryError as e:
        raise LimitExceeded(f"the memory to hold {path}", len(text), "It has too many values for this process.") from e
    return metadata_from_json(found, path)


def metadata_from_json(json_object: Any, path: str) -> TableMetadata:
    """Table metadata from a parsed JSON object; `path` says where it came from. Do not use the object after."""
    if not isinstance(json_object, dict) or type(json_object.get("format-version")) is not int:
        raise CorruptFile(path, "a JSON object with a format-version", _describe_json(json_object))
    version = json_object["format-version"]
    if version not in VERSIONS:
        raise UnsupportedFeature(f"Format version {version} of {path} is not supported; this engine knows 1 to 4.")
    _check_field_count(json_object, path)
    _check_spec_count(json_object, path)
    try:
        return _validate_model(VERSIONS[version], complete_metadata(dict(json_object), version, path))
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _invalid_metadata_error(path, f"{where}: {first['msg']}") from e
    except (ValueError, TypeError, KeyError, AttributeError, IcebergValidationError, RecursionError) as e:
        raise _invalid_metadata_error(path, str(e) or type(e).__name__) from e


def _invalid_metadata_error(path: str, why: str) -> CorruptFile | UnsupportedFeature:
    """What is wrong with metadata: the file, or that a type of the format is not known here."""
    if _UNKNOWN_TYPE.search(why):
        return UnsupportedFeature(f"Cannot read {path}: {why}. This engine does not know that type yet.")
    return CorruptFile(path, "valid table metadata", why)


def _check_field_count(json_object: dict[str, Any], path: str) -> None:
    schemas = json_object.get("schemas")
    for schema in (json_object.get("schema"), *(schemas if isinstance(schemas, list) else ())):
        count, rest = 0, [schema]
        while rest and count <= MAX_FIELDS:
            node = rest.pop()
            fields = node.get("fields", ()) if isinstance(node, dict) else ()
            if isinstance(fields, list):
                count += len(fields)
                rest += [f["type"] for f in fields if isinstance(f, dict) and isinstance(f.get("type"), dict)]
            elif isinstance(node, dict):
                rest += [node[k] for k in ("element", "key", "value") if isinstance(node.get(k), dict)]
        if count > MAX_FIELDS:
            raise LimitExceeded(
                f"the number of fields of a schema in {path}", MAX_FIELDS, "Raise neve.model.metadata.MAX_FIELDS."
            )


def _check_spec_count(json_object: dict[str, Any], path: str) -> None:
    specs = json_object.get("partition-specs")
    if not isinstance(specs, list):
        return
    widest = max(
        (len(s["fields"]) for s in specs if isinstance(s, dict) and isinstance(s.get("fields"), list)), default=0
    )
    if max(len(specs), widest) > MAX_SPECS:
        hint = "Raise neve.model.metadata.MAX_SPECS."
        raise LimitExceeded(f"the number of partition specs or fields in {path}", MAX_SPECS, hint)


def to_neve_metadata(metadata: Any, path: str = "") -> TableMetadata:
    """The same metadata in this module's types; PyIceberg's own are converted, ours are returned as they are."""
    if isinstance(metadata, _CommonMetadata):
        return cast(TableMetadata, metadata)
    found = IcebergBaseModel.model_dump(metadata, mode="json")
    if metadata.format_version >= 3 and not metadata.snapshots:
        found.setdefault("next-row-id", 0)  # PyIceberg leaves it out of a new table
    return metadata_from_json(found, path or metadata.location)


def table_identity(metadata: Any) -> str:
    """The id a table has had since it was made; empty for one of version 1 that was made without."""
    by_location = metadata.format_version == 1 and metadata.table_uuid == uuid_from_location(metadata.location)
    return str(metadata.table_uuid) if "table_uuid" in metadata.model_fields_set and not by_location else ""


def are_different_tables(one: str, other: str) -> bool:
    """Whether two identities are of different tables; what is not known is not told apart."""
    return bool(one and other) and one != other


def serialise_metadata(metadata: TableMetadata, path: str = "") -> bytes:
    """The bytes of a metadata file; compressed when the file name says so."""
    text = metadata.model_dump_json().encode()
    return gzip.compress(text, compresslevel=6, mtime=0) if path.endswith(_GZIP_SUFFIXES) else text


def check_has_scheme(location: str) -> None:
    """Version 4 resolves paths against the location, which therefore must be a URI."""
    if ":" not in location.split("/", 1)[0]:
        raise UserError(f"Location {location!r} of a version 4 table needs a URI scheme, as in 'file:///lake/db/t'.")


def check_schema_fits(schema: Schema, format_version: int) -> None:
    """Refuse types and defaults that a format version does not know: its readers would return something else."""
    try:
        schema.check_format_version_compatibility(format_version)
    except ValueError as e:
        raise UserError(f"Schema does not fit format version {format_version}: {e}") from e
    filled = [f.name for f in fields_by_id(schema).values() if f.initial_default is not None]
    if filled and format_version < _DEFAULTS_SINCE:
        raise UserError(
            f"Cannot give column {filled[0]!r} a default in a version {format_version} table: rows that are there "
            f"already would be read without it. Upgrade the table to version {_DEFAULTS_SINCE}, or add it empty."
        )


def _validate_model(kind: type[TableMetadata], json_object: dict[str, Any]) -> TableMetadata:
    last_partition_id = json_object[
        "last-partition-id"
    ]  # PyIceberg's version 1 replaces it by what the specs still use
    metadata = kind.model_validate(json_object)
    iceberg.check_schemas(metadata)
    iceberg.check_partition_specs(metadata)
    iceberg.check_sort_orders(metadata)
    _check_refs(metadata)
    if metadata.last_partition_id != last_partition_id:
        metadata = metadata.model_copy(update={"last_partition_id": last_partition_id})
    return metadata


def _check_refs(metadata: TableMetadata) -> None:
    known = metadata.lazy_snapshots.positions
    current = metadata.current_snapshot_id
    if current is not None and current not in known:
        raise ValueError(f"current-snapshot-id {current} is not among the snapshots")
    for name, ref in metadata.refs.items():
        if ref.snapshot_id not in known:
            raise ValueError(f"ref {name!r} names snapshot {ref.snapshot_id}, which is not among the snapshots")
    main = metadata.refs.get("main")
    if (main.snapshot_id if main else None) != current:
        raise ValueError(
            f"current-snapshot-id is {current}, but branch main is at {main.snapshot_id if main else None}"
        )


def _decompress(raw: bytes, path: str, limit: int) -> bytes:
    limit = min(limit, max(_RATIO_FLOOR, _MAX_RATIO * len(raw)))
    inflate = zlib.decompressobj(wbits=31)
    try:
        text = inflate.decompress(raw, limit + 1)
    except zlib.error as e:
        raise CorruptFile(path, "gzip data", str(e)) from e
    if len(text) > limit:
        raise _too_large_error(path, limit)
    if not inflate.eof:
        raise CorruptFile(path, "complete gzip data", f"a stream that ends after {len(raw)} bytes")
    return text


def _too_large_error(path: str, limit: int) -> LimitExceeded:
    return LimitExceeded(f"the size of {path}", limit, "Raise neve.model.metadata.MAX_METADATA_BYTES.")


def _describe_json(value: object) -> str:
    return f"an object with keys {sorted(value)[:8]}" if isinstance(value, dict) else type(value).__name__
