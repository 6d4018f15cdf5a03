"""The metadata of views (Iceberg's view spec, version 1), and how a new definition takes the place of the last one.

>>> from pyiceberg.types import LongType, NestedField
>>> schema = Schema(NestedField(1, "id", LongType()))
>>> first = new_view(ViewDefinition("SELECT id FROM db.t", schema), "file:///lake/db/v")
>>> second = replace_definition(first, ViewDefinition("SELECT id FROM db.t WHERE id > 0", schema))
>>> second.current_version_id, [entry.version_id for entry in second.version_log], len(second.schemas)
(2, [1, 2], 1)
>>> replace_definition(second, ViewDefinition("SELECT id FROM db.t", schema)).current_version_id
1
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import ConfigDict, ValidationError
from pyiceberg.schema import Schema
from pyiceberg.typedef import Identifier
from pyiceberg.view import View
from pyiceberg.view import metadata as iceberg

from neve._version import __version__
from neve.errors import CorruptFile, UnsupportedFeature, UserError
from neve.model.metadata import parse_json

MAX_VIEW_BYTES = 16 << 20
DIALECT = "spark"
QUERY_COLUMNS = "spark.query-column-names"  # a property with the columns of the query, as Spark with Iceberg writes it
_HISTORY_LENGTH, _DEFAULT_HISTORY_LENGTH = "version.history.num-entries", 10
_MAY_LOSE_DIALECTS = "replace.drop-dialect.allowed"
_KEEP_UNKNOWN = ConfigDict(extra="allow", populate_by_name=True, frozen=True)


class ViewVersion(iceberg.ViewVersion):
    """A version of the definition that keeps unknown keys."""

    model_config = _KEEP_UNKNOWN


class ViewMetadata(iceberg.ViewMetadata):
    """View metadata that keeps unknown keys."""

    model_config = _KEEP_UNKNOWN
    versions: list[ViewVersion]  # type: ignore[assignment]

    def current_version(self) -> ViewVersion:
        """Return the current version of the definition."""
        return next(version for version in self.versions if version.version_id == self.current_version_id)

    def current_schema(self) -> Schema:
        """Return the columns of the current version."""
        wanted = self.current_version().schema_id
        return next(schema for schema in self.schemas if schema.schema_id == wanted)

    def spark_sql(self, name: str) -> str:
        """Return the query in the dialect of Spark."""
        texts = {each.root.dialect.lower(): each.root.sql for each in self.current_version().representations}
        if DIALECT not in texts:
            raise UnsupportedFeature(
                f"Cannot read view {name}: its query is written for {' and '.join(sorted(texts))}, not for Spark. "
                "Write it for Spark too, with CREATE OR REPLACE VIEW under another name."
            )
        return texts[DIALECT].rstrip().rstrip(";")


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """What the creator of a view has said: the query, its columns, and where names without a namespace belong."""

    sql: str
    schema: Schema
    default_namespace: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredView:
    """A view as a catalog has it."""

    identifier: Identifier
    metadata: ViewMetadata
    metadata_location: str

    @property
    def name(self) -> str:
        """The name with its namespace."""
        return ".".join(self.identifier)

    def to_pyiceberg(self) -> View:
        """Return the view as PyIceberg's class."""
        return View(self.identifier, self.metadata)


def new_view(definition: ViewDefinition, location: str) -> ViewMetadata:
    """Return the metadata of a view with a first definition."""
    version = _version_of(definition, version_id=1, schema_id=0)
    return ViewMetadata(
        view_uuid=str(uuid.uuid4()),
        format_version=1,
        location=location,
        schemas=[definition.schema.model_copy(update={"schema_id": 0})],
        current_version_id=1,
        versions=[version],
        version_log=[iceberg.ViewHistoryEntry(timestamp_ms=version.timestamp_ms, version_id=1)],
        properties=dict(definition.properties),
    )


def replace_definition(metadata: ViewMetadata, definition: ViewDefinition) -> ViewMetadata:
    """Return the metadata with a new current version. A definition that was there before becomes current again."""
    schema = next((s for s in metadata.schemas if s.fields == definition.schema.fields), None)
    schemas = list(metadata.schemas)
    if schema is None:
        schema = definition.schema.model_copy(update={"schema_id": max(s.schema_id for s in schemas) + 1})
        schemas.append(schema)
    new_id = max(version.version_id for version in metadata.versions) + 1
    new = _version_of(definition, new_id, schema.schema_id)
    version = next((known for known in metadata.versions if _mean_the_same(known, new)), new)
    _refuse_to_lose_dialects(metadata, new)
    entry = iceberg.ViewHistoryEntry(timestamp_ms=new.timestamp_ms, version_id=version.version_id)
    is_current = version.version_id == metadata.current_version_id
    changed = metadata.model_copy(
        update={
            "schemas": schemas,
            "versions": [*metadata.versions, *([new] if version is new else [])],
            "current_version_id": version.version_id,
            "version_log": [*metadata.version_log, *([] if is_current else [entry])],
            "properties": {**metadata.properties, **definition.properties},
        }
    )
    return _without_old_versions(changed)


def change_properties(metadata: ViewMetadata, updates: Mapping[str, str], removals: Iterable[str] = ()) -> ViewMetadata:
    """Return the metadata with properties set and removed."""
    gone = set(removals)
    kept = {name: value for name, value in metadata.properties.items() if name not in gone}
    return metadata.model_copy(update={"properties": {**kept, **updates}})


def parse_view(raw: bytes, location: str) -> ViewMetadata:
    """Parse a metadata file of a view, compressed or not. Raises CorruptFile or LimitExceeded with the location."""
    found = parse_json(raw, location, MAX_VIEW_BYTES, "metadata of a view", "A view holds a query, and no data.")
    try:
        metadata = ViewMetadata.model_validate(found)
        metadata.current_schema()
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CorruptFile(location, "valid metadata of a view", f"{where}: {first['msg']}") from e
    except (StopIteration, ValueError, RecursionError) as e:
        raise CorruptFile(location, "valid metadata of a view", str(e) or "no current version") from e
    return metadata


def serialise_view(metadata: ViewMetadata) -> bytes:
    """Return view metadata as JSON."""
    return metadata.model_dump_json().encode()


def _version_of(definition: ViewDefinition, version_id: int, schema_id: int) -> ViewVersion:
    representation = iceberg.SQLViewRepresentation(type="sql", sql=definition.sql, dialect=DIALECT)
    return ViewVersion(
        version_id=version_id,
        schema_id=schema_id,
        timestamp_ms=int(time.time() * 1000),
        summary={"engine-name": "neve", "engine-version": __version__},
        representations=[iceberg.ViewRepresentation(representation)],
        default_namespace=definition.default_namespace,
    )


def _mean_the_same(one: ViewVersion, other: ViewVersion) -> bool:
    """Return whether two versions have the same query, columns and names, whoever wrote them and when."""
    ignored = {"version_id", "timestamp_ms", "summary"}
    return one.model_dump(exclude=ignored) == other.model_dump(exclude=ignored)


def _refuse_to_lose_dialects(metadata: ViewMetadata, new: ViewVersion) -> None:
    lost = {each.root.dialect.lower() for each in metadata.current_version().representations} - {
        each.root.dialect.lower() for each in new.representations
    }
    if lost and metadata.properties.get(_MAY_LOSE_DIALECTS, "false").lower() != "true":
        raise UserError(
            f"Cannot replace the view: its query for {' and '.join(sorted(lost))} would be lost. Set the property "
            f"{_MAY_LOSE_DIALECTS} of the view to true if nobody needs it."
        )


def _without_old_versions(metadata: ViewMetadata) -> ViewMetadata:
    """Return the metadata with as many versions as its property allows; the current one always stays."""
    limit = metadata.properties.get(_HISTORY_LENGTH, str(_DEFAULT_HISTORY_LENGTH))
    if not limit.isdecimal() or int(limit) < 1:
        raise UserError(f"Property {_HISTORY_LENGTH} must be a whole number above 0, not {limit!r}.")
    newest_first = sorted(
        metadata.versions, key=lambda v: (v.version_id == metadata.current_version_id, v.version_id), reverse=True
    )
    kept = {version.version_id for version in newest_first[: int(limit)]}
    log = list(metadata.version_log)
    newest_lost = max((at for at, entry in enumerate(log) if entry.version_id not in kept), default=-1)
    return metadata.model_copy(
        update={
            "versions": [version for version in metadata.versions if version.version_id in kept],
            "version_log": log[newest_lost + 1 :],
        }
    )
