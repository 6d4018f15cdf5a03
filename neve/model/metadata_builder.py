"""Collect changes to table metadata and build the new metadata from them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from pyiceberg.exceptions import ValidationError
from pyiceberg.table.snapshots import MetadataLogEntry, SnapshotLogEntry

from neve.errors import UserError
from neve.model.metadata import VERSIONS, TableMetadata
from neve.model.properties import properties_of
from neve.model.snapshots import Snapshots


def now_ms() -> int:
    """Return the milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class MetadataBuilder:
    """Metadata under construction: the base, the fields that differ from it, and what the updates added."""

    def __init__(self, base: TableMetadata, now: Callable[[], int]) -> None:
        self.base = base
        self.now = now
        self.changed: dict[str, Any] = {}
        self.added_snapshots: set[int] = set()
        self.removed_snapshots = False
        self.last_added: dict[str, int] = {}  # "schema", "partition spec" … -> id, for updates with the id -1

    def __getitem__(self, name: str) -> Any:
        return self.changed[name] if name in self.changed else getattr(self.base, name, None)

    def __setitem__(self, name: str, value: Any) -> None:
        if value != self[name]:
            self.changed[name] = value

    @property
    def version(self) -> int:
        """The format version after the updates so far."""
        return cast(int, self["format_version"])

    @property
    def snapshots(self) -> Snapshots:
        """The snapshots after the updates so far."""
        return cast(Snapshots, self["snapshots"])

    def build(self, previous_location: str | None) -> TableMetadata:
        """Return the new metadata with updated logs; the base itself if nothing changed."""
        if not self.changed:
            return self.base
        updated_ms = self.changed.get("last_updated_ms") or self.now()
        self.changed["last_updated_ms"] = max(updated_ms, self.base.last_updated_ms)
        if "snapshot_log" in self.changed or self.removed_snapshots:
            # Leave out snapshots that readers never saw as current, and entries before a gap: the snapshot after a gap
            # would seem to have been current during the time of the removed one.
            current, snapshot_ids = self["current_snapshot_id"], self.snapshots.positions
            log: list[SnapshotLogEntry] = []
            for entry in self["snapshot_log"]:
                if entry.snapshot_id not in snapshot_ids:
                    log = [] if self.removed_snapshots else log
                elif entry.snapshot_id == current or entry.snapshot_id not in self.added_snapshots:
                    log.append(entry)
            self["snapshot_log"] = log
        if previous_location is not None:
            keep = max(1, properties_of(self["properties"]).metadata_previous_versions_max)
            previous = {"metadata-file": previous_location, "timestamp-ms": self.base.last_updated_ms}
            self["metadata_log"] = [*self["metadata_log"], MetadataLogEntry.model_validate(previous)][-keep:]
        kind = VERSIONS[self.version]
        if kind is type(self.base):
            built = self.base.model_copy(update=self.changed)
        else:
            fields = {**self.base.__dict__, **(self.base.__pydantic_extra__ or {}), **self.changed}
            built = kind.model_construct(**{k: v for k, v in fields.items() if k not in ("schema_", "partition_spec")})
        checked_fields = {"schemas", "current_schema_id", "default_spec_id", "default_sort_order_id"}
        return built if checked_fields.isdisjoint(self.changed) else _check_fits_schema(built)


def _check_fits_schema(built: Any) -> Any:
    """Check that spec and sort order fit the schema, and repeat the current schema and spec for version 1."""
    try:
        built.spec().check_compatible(built.schema())
        built.sort_order().check_compatible(built.schema())
    except ValidationError as e:
        raise UserError(f"Partition spec or sort order does not fit the schema: {e}") from e
    if built.format_version > 1:
        return built
    fields = [field.model_dump(mode="json") for field in built.spec().fields]
    return built.model_copy(update={"schema_": built.schema(), "partition_spec": fields})
