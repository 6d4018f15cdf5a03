"""Metadata in the making: the base, the fields that differ from it, and how they become metadata again."""

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
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class MetadataBuilder:
    """Metadata in the making: the base, the fields that differ from it, and what was added on the way."""

    def __init__(self, base: TableMetadata, now: Callable[[], int]) -> None:
        self.base = base
        self.now = now
        self.changed: dict[str, Any] = {}
        self.added_snapshots: set[int] = set()
        self.removed_snapshots = False
        self.last_added: dict[str, int] = {}  # "schema", "partition spec" … -> id, for updates that say -1

    def __getitem__(self, name: str) -> Any:
        return self.changed[name] if name in self.changed else getattr(self.base, name, None)

    def __setitem__(self, name: str, value: Any) -> None:
        if value is not self[name]:
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
        """The metadata with its logs brought up to date; the base itself when nothing changed."""
        if not self.changed:
            return self.base
        self.changed["last_updated_ms"] = max(
            self.changed.get("last_updated_ms") or self.now(), self.base.last_updated_ms
        )
        if "snapshot_log" in self.changed or self.removed_snapshots:
            self["snapshot_log"] = self._snapshot_log()
        if previous_location is not None:
            self["metadata_log"] = self._metadata_log(previous_location)
        return self._apply_changes()

    def _apply_changes(self) -> TableMetadata:
        kind = VERSIONS[self.version]
        if kind is type(self.base):
            built = self.base.model_copy(update=self.changed)
        else:
            fields = {**self.base.__dict__, **(self.base.__pydantic_extra__ or {}), **self.changed}
            built = kind.model_construct(**{k: v for k, v in fields.items() if k not in ("schema_", "partition_spec")})
        if not self.changed.keys().isdisjoint(
            ("schemas", "current_schema_id", "default_spec_id", "default_sort_order_id")
        ):
            built = _check_fits_schema(built)
        return built

    def _snapshot_log(self) -> list[SnapshotLogEntry]:
        """The log without snapshots that were never current for readers, and without anything before a gap.

        A gap would make the snapshot after it look current during the time of the one that is gone.
        """
        current, known = self["current_snapshot_id"], self.snapshots.positions
        kept: list[SnapshotLogEntry] = []
        for entry in self["snapshot_log"]:
            if entry.snapshot_id not in known:
                kept = [] if self.removed_snapshots else kept
            elif entry.snapshot_id == current or entry.snapshot_id not in self.added_snapshots:
                kept.append(entry)
        return kept

    def _metadata_log(self, previous_location: str) -> list[MetadataLogEntry]:
        keep = max(1, properties_of(self["properties"]).metadata_previous_versions_max)
        entry = MetadataLogEntry.model_validate(
            {"metadata-file": previous_location, "timestamp-ms": self.base.last_updated_ms}
        )
        log = [*self["metadata_log"], entry]
        return log[-keep:]


def _check_fits_schema(built: Any) -> Any:
    """The metadata, once its spec and sort order fit its schema; version 1 repeats its current schema and spec."""
    try:
        built.spec().check_compatible(built.schema())
        built.sort_order().check_compatible(built.schema())
    except ValidationError as e:
        raise UserError(f"Partition spec or sort order does not fit the schema: {e}") from e
    if built.format_version > 1:
        return built
    fields = [field.model_dump(mode="json") for field in built.spec().fields]
    return built.model_copy(update={"schema_": built.schema(), "partition_spec": fields})
