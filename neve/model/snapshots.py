"""The snapshots of table metadata: raw JSON rows, parsed into objects when they are used.

A commit reads all snapshots of a table and changes one. Keeping the rows as they were read makes this cheap for
thousands of snapshots, and preserves every key that another engine wrote, also unknown ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, overload

from pydantic import ConfigDict, Field, SerializeAsAny, ValidationError
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.table.update import AddSnapshotUpdate as IcebergAddSnapshot

from neve.errors import CorruptFile, UnsupportedFeature

SnapshotRow = dict[str, Any]

# Keys of a snapshot summary by which changes are staged, and published once they are audited.
STAGED_WAP_ID = "wap.id"
PUBLISHED_WAP_ID = "published-wap-id"
SOURCE_SNAPSHOT_ID = "source-snapshot-id"  # the snapshot whose changes were applied again


class Snapshot(IcebergSnapshot):
    """A snapshot of any format version. Its files are listed in one of three fields."""

    model_config = ConfigDict(extra="allow", populate_by_name=True, frozen=True)

    manifest_list: str | None = Field(alias="manifest-list", default=None)  # type: ignore[assignment]
    """Location of the Avro manifest list (v1 to v3)."""
    root_manifest: str | None = Field(alias="root-manifest", default=None)
    """Location of the Parquet root manifest (v4 tree)."""
    manifest_paths: list[str] | None = Field(alias="manifests", default=None)
    """Locations of manifests listed in the snapshot itself (early v1)."""
    key_id: str | None = Field(alias="key-id", default=None)
    """Id of the encryption key of the manifest list."""

    @property
    def tree_root_location(self) -> str | None:
        """Location of the file that lists the manifests; None if the snapshot itself lists them."""
        return tree_root_location(self)

    def manifests(self, io: FileIO) -> list[ManifestFile]:
        """Read the manifests with PyIceberg; this needs a manifest list."""
        if self.manifest_list is None:
            raise UnsupportedFeature(
                f"Snapshot {self.snapshot_id} has no manifest list, so PyIceberg cannot read it. Use Névé's scan."
            )
        return super().manifests(io)


class AddSnapshot(IcebergAddSnapshot):
    """The update that adds a snapshot, serialized with all its keys; PyIceberg's own drops undeclared ones."""

    snapshot: SerializeAsAny[IcebergSnapshot]


class Snapshots(Sequence[Snapshot]):
    """The snapshots of one table, in metadata order; looking one up does not parse the others."""

    __slots__ = ("_parsed", "_path", "_positions", "rows")

    def __init__(self, rows: Sequence[SnapshotRow] = (), path: str = "") -> None:
        self.rows = rows  # the JSON objects with unknown keys; they are shared: do not change them
        self._path = path
        self._parsed: dict[int, Snapshot] = {}
        self._positions: dict[int, int] | None = None

    @property
    def positions(self) -> Mapping[int, int]:
        """Position of each snapshot id."""
        if self._positions is None:
            self._positions = {row["snapshot-id"]: i for i, row in enumerate(self.rows)}
        return self._positions

    def by_id(self, snapshot_id: int) -> Snapshot | None:
        """Return the snapshot with this id, or None."""
        position = self.positions.get(snapshot_id)
        return None if position is None else self[position]

    def with_snapshot(self, snapshot: IcebergSnapshot, version: int) -> Snapshots:
        """Return these snapshots and one more, serialized for a format version."""
        return Snapshots([*self.rows, snapshot_row(snapshot, version)], self._path)

    def without_ids(self, snapshot_ids: Iterable[int]) -> Snapshots:
        """Return the snapshots without some. Parent ids stay: a link to an expired parent still proves the order."""
        removed = set(snapshot_ids)
        return Snapshots([row for row in self.rows if row["snapshot-id"] not in removed], self._path)

    def with_sequence_numbers(self) -> Snapshots:
        """Return the snapshots with sequence number 0 if they have none: versions after 1 require the number."""
        return Snapshots([{"sequence-number": 0, **row} for row in self.rows], self._path)

    @classmethod
    def of(cls, value: Any, path: str = "") -> Snapshots:
        """Convert JSON rows or snapshots, and check the keys that every reader relies on; parsing checks the others."""
        if isinstance(value, Snapshots):
            return value
        rows = [snapshot_row(item) if isinstance(item, IcebergSnapshot) else item for item in value]
        if not {type(row) for row in rows} <= {dict}:
            raise ValueError("snapshots must be a list of objects")
        for key, kinds in _JSON_TYPES.items():  # one set of types per key: fast for thousands of rows
            if not {type(row.get(key)) for row in rows} <= kinds:
                wrong = next(row for row in rows if type(row.get(key)) not in kinds)
                raise ValueError(f"snapshot {wrong.get('snapshot-id')} has {key} {wrong.get(key)!r}")
            if int in kinds and not all(-(1 << 63) <= (row.get(key) or 0) < 1 << 63 for row in rows):
                raise ValueError(f"{key} of a snapshot does not fit in 64 bits")
        for row in rows:
            if all(row.get(key) is None for key in ("manifest-list", "root-manifest", "manifests")):
                names = "manifest-list, root-manifest nor manifests"
                raise ValueError(f"snapshot {row['snapshot-id']} names neither {names}")
        snapshots = cls(rows, path)
        if len(snapshots.positions) != len(rows):
            raise ValueError(f"{len(rows) - len(snapshots.positions)} snapshots repeat the id of another")
        return snapshots

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Snapshot: ...
    @overload
    def __getitem__(self, index: slice) -> list[Snapshot]: ...
    def __getitem__(self, index: int | slice) -> Snapshot | list[Snapshot]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        if position not in self._parsed:
            row = self.rows[position]
            summary = row.get("summary")
            if summary is not None and "operation" not in summary:  # PyIceberg warns and assumes the same
                row = {**row, "summary": {**summary, "operation": "overwrite"}}
            try:
                self._parsed[position] = Snapshot.model_validate(row)
            except (ValidationError, TypeError) as e:
                raise CorruptFile(self._path, f"a readable snapshot {row['snapshot-id']}", str(e)) from e
        return self._parsed[position]

    def __iter__(self) -> Iterator[Snapshot]:
        return (self[i] for i in range(len(self)))

    def __add__(self, others: Iterable[IcebergSnapshot]) -> Snapshots:
        return Snapshots([*self.rows, *(snapshot_row(s) for s in others)], self._path)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Snapshots):
            return self.rows is other.rows or list(self.rows) == list(other.rows)
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Snapshots({[row['snapshot-id'] for row in self.rows]})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Snapshots:
        return self  # rows are never changed in place


def summary_value(snapshot: IcebergSnapshot, key: str) -> str | None:
    """Return a value of the summary of a snapshot; None if it is missing."""
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(key)


def snapshot_operation(snapshot: IcebergSnapshot) -> Operation:
    """Return the operation of a snapshot; one without a summary may have done anything, as an overwrite does."""
    return Operation.OVERWRITE if snapshot.summary is None else snapshot.summary.operation


def snapshot_row(snapshot: IcebergSnapshot, version: int = 2) -> SnapshotRow:
    """Return the JSON object of a snapshot; version 1 has no sequence numbers."""
    row: SnapshotRow = snapshot.model_dump(mode="json")
    if version == 1:
        row.pop("sequence-number", None)
    return row


_JSON_TYPES: dict[str, set[type]] = {
    "snapshot-id": {int},
    "timestamp-ms": {int},
    "parent-snapshot-id": {int, NoneType},
    "sequence-number": {int, NoneType},
    "manifest-list": {str, NoneType},
    "root-manifest": {str, NoneType},
    "manifests": {list, NoneType},
    "summary": {dict, NoneType},
    "schema-id": {int, NoneType},
    "first-row-id": {int, NoneType},
    "added-rows": {int, NoneType},
}


def tree_root_location(snapshot: IcebergSnapshot) -> str | None:
    """Return the location of the file that lists the manifests of a snapshot; None if the snapshot does."""
    return getattr(snapshot, "root_manifest", None) or snapshot.manifest_list
