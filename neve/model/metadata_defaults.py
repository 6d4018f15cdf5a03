"""What old writers left out of table metadata, filled in; what no writer may leave out, demanded.

Works on the JSON object before any model is built. Version 1 began with one schema and one spec and no ids for
either; later writers added lists, ids and references. A reader has to accept all of them.

Transforms this engine does not know: they keep the name another engine gave them.

PyIceberg reads any such transform as `unknown` and writes that. A commit would then take its name away for everyone.

>>> str(NamedTransform("geohash[5]")), NamedTransform("geohash[5]") == NamedTransform("geohash[6]")
('geohash[5]', False)
"""

from __future__ import annotations

import re
import uuid
from typing import Any

from pydantic import Field
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START
from pyiceberg.transforms import UnknownTransform, parse_transform

from neve.model.snapshots import Snapshots

_SIZED_TRANSFORM_START = re.compile(r"(bucket|truncate)\W")


class NamedTransform(UnknownTransform[Any, Any]):
    """An unknown transform that is written as it was read, and equal only to one of the same name."""

    root: str = Field(default="unknown")  # type: ignore[assignment]

    def __init__(self, transform: str, **data: Any) -> None:
        super().__init__(transform, **{"root": transform, **data})


def with_named_transforms(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fields of a spec or a sort order as JSON has them, with transforms nobody here knows made into values."""
    return [
        {**field, "transform": _as_named_transform(field.get("transform"))} if "transform" in field else field
        for field in fields
    ]


def _as_named_transform(transform: Any) -> Any:
    try:
        is_unknown = isinstance(transform, str) and isinstance(parse_transform(transform), UnknownTransform)
    except (ValueError, ValidationError):  # of a known name and unreadable, which the model says; or it only begins so
        is_unknown = _SIZED_TRANSFORM_START.match(str(transform)) is None
    return NamedTransform(transform) if is_unknown else transform


_REQUIRED_V1 = ("location", "last-updated-ms", "last-column-id", "schema", "partition-specs")
_REQUIRED_V2 = (
    "table-uuid",
    "location",
    "last-sequence-number",
    "last-updated-ms",
    "last-column-id",
    "schemas",
    "current-schema-id",
    "partition-specs",
    "default-spec-id",
    "last-partition-id",
    "sort-orders",
    "default-sort-order-id",
)
_REQUIRED = {1: _REQUIRED_V1, 2: _REQUIRED_V2, 3: (*_REQUIRED_V2, "next-row-id"), 4: (*_REQUIRED_V2, "next-row-id")}


_PATH_KEYS = {
    "snapshots": ("root-manifest", "manifest-list"),
    "statistics": ("statistics-path",),
    "partition-statistics": ("statistics-path",),
    "metadata-log": ("metadata-file",),
}
_NOT_RELATIVE = re.compile(r"^/|^[A-Za-z][A-Za-z0-9+.-]*:|(^|/)\.{1,2}(/|$)")


def complete_metadata(json_object: dict[str, Any], version: int, path: str) -> dict[str, Any]:
    """The object ready for the model of its version. Changes `found`; raises ValueError when something is missing."""
    if version == 1:
        _complete_v1(json_object)
    if version == 4:
        json_object["location"] = json_object.get("location") or _location_of(path)
        _resolve_relative_paths(json_object)
    missing = [key for key in _REQUIRED[version] if json_object.get(key) is None]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing")
    _check_schemas(json_object)
    _check_numbers(json_object)
    for spec in json_object["partition-specs"]:
        spec["fields"] = with_named_transforms(_with_field_ids(spec.get("fields") or []))
    for order in json_object.get("sort-orders") or ():
        order["fields"] = with_named_transforms(order.get("fields") or [])
    json_object.setdefault("last-partition-id", _highest_field_id(json_object["partition-specs"]))
    json_object["snapshots"] = Snapshots.of(json_object.get("snapshots") or (), path)
    if json_object.get("current-snapshot-id", -1) not in (None, -1):
        main = {"snapshot-id": json_object["current-snapshot-id"], "type": "branch"}
        json_object["refs"] = {"main": main, **(json_object.get("refs") or {})}
    return {key: value for key, value in json_object.items() if value is not None}


def _resolve_relative_paths(json_object: dict[str, Any]) -> None:
    """Paths that are relative to the table, as version 4 allows, in full: whoever asks what is in use knows one form.

    One that leads elsewhere stays as it is, and is refused where it is followed.
    """
    location = json_object["location"]
    for part, keys in _PATH_KEYS.items():
        for row in json_object.get(part) or () if isinstance(location, str) else ():
            for key in keys:
                path = row.get(key) if isinstance(row, dict) else None
                if isinstance(path, str) and path and not _NOT_RELATIVE.search(path):
                    row[key] = f"{location.rstrip('/')}/{path}"


def _complete_v1(json_object: dict[str, Any]) -> None:
    _complete_v1_schemas(json_object)
    _complete_v1_specs(json_object)
    if not json_object.get("sort-orders"):
        json_object["sort-orders"] = [{"order-id": 0, "fields": []}]
        json_object["default-sort-order-id"] = 0
    if json_object.get("table-uuid") is None and json_object.get("location") is not None:
        # The same on every load until a commit writes it down; a random one would look like another table each time.
        json_object["table-uuid"] = str(uuid_from_location(json_object["location"]))


def uuid_from_location(location: str) -> uuid.UUID:
    """The id of a table that was made without one."""
    return uuid.uuid5(uuid.NAMESPACE_URL, location)


def _complete_v1_schemas(json_object: dict[str, Any]) -> None:
    schema, schemas = json_object.get("schema"), json_object.get("schemas")
    if isinstance(schema, dict):
        schema.setdefault("schema-id", 0)
        if not schemas:
            json_object["schemas"], json_object["current-schema-id"] = [schema], schema["schema-id"]
    elif schemas:
        current = json_object.get("current-schema-id", 0)
        json_object["schema"] = next((s for s in schemas if s.get("schema-id") == current), None)


def _complete_v1_specs(json_object: dict[str, Any]) -> None:
    fields, specs = json_object.get("partition-spec"), json_object.get("partition-specs")
    if not specs and fields is not None:
        json_object["partition-specs"], json_object["default-spec-id"] = [{"spec-id": 0, "fields": fields}], 0
    if fields is not None:
        json_object["partition-spec"] = _with_field_ids(fields)


def _check_schemas(json_object: dict[str, Any]) -> None:
    if not isinstance(json_object["schemas"], list) or not isinstance(json_object["partition-specs"], list):
        raise ValueError("schemas and partition-specs must be lists")
    for schema in (*json_object["schemas"], json_object.get("schema")):
        if schema is not None and schema.get("type") != "struct":
            raise ValueError(f"schema {schema.get('schema-id', '')} has type {schema.get('type')!r}, not 'struct'")


def _check_numbers(json_object: dict[str, Any]) -> None:
    for key, value in json_object.items():
        if type(value) is int and not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{key} {value} does not fit in 64 bits")


def _with_field_ids(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Partition fields with ids; where a spec has none at all they count from 1000, as early version 1 implied."""
    missing = sum("field-id" not in field for field in fields)
    if missing not in (0, len(fields)):
        raise ValueError(f"{missing} of {len(fields)} partition fields lack a field-id")
    if not missing:
        return fields
    return [{**field, "field-id": PARTITION_FIELD_ID_START + i} for i, field in enumerate(fields)]


def _highest_field_id(specs: list[dict[str, Any]]) -> int:
    return max((field["field-id"] for spec in specs for field in spec["fields"]), default=PARTITION_FIELD_ID_START - 1)


def _location_of(path: str) -> str | None:
    """The table location implied by the place of its metadata file, or None."""
    folder, _, name = path.rpartition("/metadata/")
    return folder if folder and "/" not in name else None
