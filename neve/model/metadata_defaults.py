"""Fill in what old writers left out of table metadata, and require what no writer may leave out.

This works on the JSON object, before a model is built from it. Version 1 began with one schema and one spec, and no ids
for either; later writers added lists, ids and references. A reader must accept all of them.

Unknown transforms keep the name another engine gave them. PyIceberg reads each of them as `unknown` and writes that, so
that a commit would erase the name.

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
    """An unknown transform that is written as it was read, and equal only to one with the same name."""

    root: str = Field(default="unknown")  # type: ignore[assignment]

    def __init__(self, transform: str, **data: Any) -> None:
        super().__init__(transform, **{"root": transform, **data})


def with_named_transforms(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the JSON fields of a spec or a sort order, with unknown transforms replaced by `NamedTransform`."""
    return [
        {**field, "transform": _as_named_transform(field.get("transform"))} if "transform" in field else field
        for field in fields
    ]


def _as_named_transform(transform: Any) -> Any:
    try:
        is_unknown = isinstance(transform, str) and isinstance(parse_transform(transform), UnknownTransform)
    except (ValueError, ValidationError):
        # The model reports a malformed bucket or truncate; other names only begin with one of these words.
        is_unknown = _SIZED_TRANSFORM_START.match(str(transform)) is None
    return NamedTransform(transform) if is_unknown else transform


_REQUIRED_V1 = ("location", "last-updated-ms", "last-column-id", "schema", "partition-specs")
_REQUIRED_V2 = (
    *("table-uuid", "location", "last-sequence-number", "last-updated-ms", "last-column-id"),
    *("schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id"),
    *("sort-orders", "default-sort-order-id"),
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
    """Complete `json_object` in place and return it without null values. Raises ValueError if something is missing."""
    if version == 1:
        _complete_v1(json_object)
    if version == 4:
        if not json_object.get("location"):  # the folder that holds metadata/
            folder, _, name = path.rpartition("/metadata/")
            json_object["location"] = folder if folder and "/" not in name else None
        _resolve_relative_paths(json_object)
    if missing := [key for key in _REQUIRED[version] if json_object.get(key) is None]:
        raise ValueError(f"{', '.join(missing)} missing")
    if not isinstance(json_object["schemas"], list) or not isinstance(json_object["partition-specs"], list):
        raise ValueError("schemas and partition-specs must be lists")
    for schema in (*json_object["schemas"], json_object.get("schema")):
        if schema is not None and schema.get("type") != "struct":
            raise ValueError(f"schema {schema.get('schema-id', '')} has type {schema.get('type')!r}, not 'struct'")
    for key, value in json_object.items():
        if type(value) is int and not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{key} {value} does not fit in 64 bits")
    for spec in json_object["partition-specs"]:
        spec["fields"] = with_named_transforms(_with_field_ids(spec.get("fields") or []))
    for order in json_object.get("sort-orders") or ():
        order["fields"] = with_named_transforms(order.get("fields") or [])
    field_ids = [field["field-id"] for spec in json_object["partition-specs"] for field in spec["fields"]]
    json_object.setdefault("last-partition-id", max(field_ids, default=PARTITION_FIELD_ID_START - 1))
    json_object["snapshots"] = Snapshots.of(json_object.get("snapshots") or (), path)
    if json_object.get("current-snapshot-id", -1) not in (None, -1):
        main = {"snapshot-id": json_object["current-snapshot-id"], "type": "branch"}
        json_object["refs"] = {"main": main, **(json_object.get("refs") or {})}
    return {key: value for key, value in json_object.items() if value is not None}


def _resolve_relative_paths(json_object: dict[str, Any]) -> None:
    """Make the relative paths that version 4 allows absolute, so that paths in use have one form everywhere.

    A path that leads out of the table stays as it is, and is rejected when it is read.
    """
    location = json_object["location"]
    for part, keys in _PATH_KEYS.items():
        for row in json_object.get(part) or () if isinstance(location, str) else ():
            for key in keys:
                path = row.get(key) if isinstance(row, dict) else None
                if isinstance(path, str) and path and not _NOT_RELATIVE.search(path):
                    row[key] = f"{location.rstrip('/')}/{path}"


def _complete_v1(json_object: dict[str, Any]) -> None:
    schema, schemas = json_object.get("schema"), json_object.get("schemas")
    if isinstance(schema, dict):
        schema.setdefault("schema-id", 0)
        if not schemas:
            json_object["schemas"], json_object["current-schema-id"] = [schema], schema["schema-id"]
    elif schemas:
        current = json_object.get("current-schema-id", 0)
        json_object["schema"] = next((s for s in schemas if s.get("schema-id") == current), None)
    fields, specs = json_object.get("partition-spec"), json_object.get("partition-specs")
    if not specs and fields is not None:
        json_object["partition-specs"], json_object["default-spec-id"] = [{"spec-id": 0, "fields": fields}], 0
    if fields is not None:
        json_object["partition-spec"] = _with_field_ids(fields)
    if not json_object.get("sort-orders"):
        json_object["sort-orders"] = [{"order-id": 0, "fields": []}]
        json_object["default-sort-order-id"] = 0
    if json_object.get("table-uuid") is None and json_object.get("location") is not None:
        # The same on every load until a commit writes it; with a random id each load would look like another table.
        json_object["table-uuid"] = str(uuid_from_location(json_object["location"]))


def uuid_from_location(location: str) -> uuid.UUID:
    """Return the id of a table that was created without one."""
    return uuid.uuid5(uuid.NAMESPACE_URL, location)


def _with_field_ids(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return partition fields with ids; if a spec has none at all they count from 1000, as early version 1 implied."""
    missing = sum("field-id" not in field for field in fields)
    if missing not in (0, len(fields)):
        raise ValueError(f"{missing} of {len(fields)} partition fields lack a field-id")
    if not missing:
        return fields
    return [{**field, "field-id": PARTITION_FIELD_ID_START + i} for i, field in enumerate(fields)]
