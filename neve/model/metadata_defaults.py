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

_BEGINNING = re.compile(r"(bucket|truncate)\W")


class NamedTransform(UnknownTransform[Any, Any]):
    """An unknown transform that is written as it was read, and equal only to one of the same name."""

    root: str = Field(default="unknown")  # type: ignore[assignment]

    def __init__(self, transform: str, **data: Any) -> None:
        super().__init__(transform, **{"root": transform, **data})


def with_named_transforms(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fields of a spec or a sort order as JSON has them, with transforms nobody here knows made into values."""
    return [
        {**field, "transform": _named(field.get("transform"))} if "transform" in field else field for field in fields
    ]


def _named(transform: Any) -> Any:
    try:
        is_unknown = isinstance(transform, str) and isinstance(parse_transform(transform), UnknownTransform)
    except (ValueError, ValidationError):  # of a known name and unreadable, which the model says; or it only begins so
        is_unknown = _BEGINNING.match(str(transform)) is None
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


_PATHS = {
    "snapshots": ("root-manifest", "manifest-list"),
    "statistics": ("statistics-path",),
    "partition-statistics": ("statistics-path",),
    "metadata-log": ("metadata-file",),
}
_IN_FULL = re.compile(r"^/|^[A-Za-z][A-Za-z0-9+.-]*:|(^|/)\.{1,2}(/|$)")


def completed(found: dict[str, Any], version: int, path: str) -> dict[str, Any]:
    """The object ready for the model of its version. Changes `found`; raises ValueError when something is missing."""
    if version == 1:
        _complete_v1(found)
    if version == 4:
        found["location"] = found.get("location") or _location_of(path)
        _resolve(found)
    missing = [key for key in _REQUIRED[version] if found.get(key) is None]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing")
    _check_schemas(found)
    _check_numbers(found)
    for spec in found["partition-specs"]:
        spec["fields"] = with_named_transforms(_with_field_ids(spec.get("fields") or []))
    for order in found.get("sort-orders") or ():
        order["fields"] = with_named_transforms(order.get("fields") or [])
    found.setdefault("last-partition-id", _highest_field_id(found["partition-specs"]))
    found["snapshots"] = Snapshots.of(found.get("snapshots") or (), path)
    if found.get("current-snapshot-id", -1) not in (None, -1):
        main = {"snapshot-id": found["current-snapshot-id"], "type": "branch"}
        found["refs"] = {"main": main, **(found.get("refs") or {})}
    return {key: value for key, value in found.items() if value is not None}


def _resolve(found: dict[str, Any]) -> None:
    """Paths that are relative to the table, as version 4 allows, in full: whoever asks what is in use knows one form.

    One that leads elsewhere stays as it is, and is refused where it is followed.
    """
    location = found["location"]
    for part, keys in _PATHS.items():
        for row in found.get(part) or () if isinstance(location, str) else ():
            for key in keys:
                path = row.get(key) if isinstance(row, dict) else None
                if isinstance(path, str) and path and not _IN_FULL.search(path):
                    row[key] = f"{location.rstrip('/')}/{path}"


def _complete_v1(found: dict[str, Any]) -> None:
    _complete_v1_schemas(found)
    _complete_v1_specs(found)
    if not found.get("sort-orders"):
        found["sort-orders"] = [{"order-id": 0, "fields": []}]
        found["default-sort-order-id"] = 0
    if found.get("table-uuid") is None and found.get("location") is not None:
        # The same on every load until a commit writes it down; a random one would look like another table each time.
        found["table-uuid"] = str(id_by_location(found["location"]))


def id_by_location(location: str) -> uuid.UUID:
    """The id of a table that was made without one."""
    return uuid.uuid5(uuid.NAMESPACE_URL, location)


def _complete_v1_schemas(found: dict[str, Any]) -> None:
    schema, schemas = found.get("schema"), found.get("schemas")
    if isinstance(schema, dict):
        schema.setdefault("schema-id", 0)
        if not schemas:
            found["schemas"], found["current-schema-id"] = [schema], schema["schema-id"]
    elif schemas:
        current = found.get("current-schema-id", 0)
        found["schema"] = next((s for s in schemas if s.get("schema-id") == current), None)


def _complete_v1_specs(found: dict[str, Any]) -> None:
    fields, specs = found.get("partition-spec"), found.get("partition-specs")
    if not specs and fields is not None:
        found["partition-specs"], found["default-spec-id"] = [{"spec-id": 0, "fields": fields}], 0
    if fields is not None:
        found["partition-spec"] = _with_field_ids(fields)


def _check_schemas(found: dict[str, Any]) -> None:
    if not isinstance(found["schemas"], list) or not isinstance(found["partition-specs"], list):
        raise ValueError("schemas and partition-specs must be lists")
    for schema in (*found["schemas"], found.get("schema")):
        if schema is not None and schema.get("type") != "struct":
            raise ValueError(f"schema {schema.get('schema-id', '')} has type {schema.get('type')!r}, not 'struct'")


def _check_numbers(found: dict[str, Any]) -> None:
    for key, value in found.items():
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
