"""A table to commit to, without any rows: data files, delete files and vectors that exist in metadata only.

>>> t = Kit.create(tmp_path, version=2)                 # specs: 0 by region, 1 also by bucket of id, 2 none
>>> a = t.data("a", region="eu")
>>> t.ok(Append(a))
>>> start = t.head_id
>>> t.ok(RowDelta(added_deletes=t.positions("d", of=a)))
>>> t.refused(RewriteFiles(removed(a), t.data("b", region="eu"), start_snapshot_id=start), Check.NEW_DELETES_FOR_FILES)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    RemoveSnapshotsUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

import neve
from neve.catalog.base import NewTable
from neve.catalog.sql import EmbeddedCatalog
from neve.commit.actions import Action, RemovedFiles
from neve.commit.environment import Environment
from neve.commit.outcome import Check, Committed, Conflict, Outcome, Rejected
from neve.commit.protocol import commit
from neve.io.deletion_vectors import PositionSet
from neve.io.puffin import pack_vectors, read_vectors
from neve.model.metadata import TableMetadata
from neve.model.partition import Specs
from neve.model.snapshots import Snapshot
from neve.plan.delete_index import match_deletes
from neve.tree.entries import DETAIL, Content, EntryTable, Manifest, Status
from neve.tree.read import manifests_of, read_entries
from tests.support.entry_tables import new_entries
from tests.support.two_writers import quick

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "amount", DoubleType(), required=False),
)
BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"), spec_id=0)
BY_REGION_AND_ID = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "region"),
    PartitionField(1, 1001, BucketTransform(4), "id_bucket"),
    spec_id=1,
)
UNPARTITIONED = PartitionSpec(spec_id=2)
VOID = PartitionSpec(PartitionField(2, 1000, VoidTransform(), "region"), spec_id=3)
SPECS = (BY_REGION, BY_REGION_AND_ID, UNPARTITIONED, VOID)
NAME = ("db", "t")


@dataclass
class Kit:
    """A table with four specs in a real SQLite catalog."""

    catalog: EmbeddedCatalog
    folder: Path
    environment: Environment = field(default_factory=lambda: Environment(sleep=lambda seconds: None))

    @classmethod
    def create(cls, folder: Path, version: int = 2, *, default_spec: int = 0, **properties: str) -> Kit:
        """A table of no files; property names have `_` for `-` and `__` for `.`."""
        return cls.of_specs(folder, version, *SPECS, default_spec=default_spec, **properties)

    @classmethod
    def of_specs(
        cls, folder: Path, version: int, *specs: PartitionSpec, default_spec: int = 0, **properties: str
    ) -> Kit:
        """A table of no files with these specs."""
        catalog: EmbeddedCatalog = quick(EmbeddedCatalog(folder))
        catalog.create_namespace("db")
        named = {key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
        catalog.create(NAME, NewTable(SCHEMA, specs[0], UNSORTED_SORT_ORDER, None, named, version))
        kit = cls(catalog, folder)
        kit.update(*(AddPartitionSpecUpdate(spec=s) for s in specs[1:]), SetDefaultSpecUpdate(spec_id=default_spec))
        return kit

    # --- the table ---

    @property
    def table(self) -> Table:
        return self.catalog.load_table(NAME)

    @property
    def metadata(self) -> TableMetadata:
        return self.table.metadata

    @cached_property
    def specs(self) -> Specs:
        return Specs.of(self.metadata)

    @cached_property
    def location(self) -> str:
        return self._any_state.metadata.location

    @cached_property
    def _any_state(self) -> Table:
        """The table at some time: enough to say which one a commit is meant for."""
        return self.table

    @cached_property
    def io(self) -> FileIO:
        return self._any_state.io

    def update(self, *updates: Any) -> None:
        """Change the metadata beside any commit: specs, properties, refs, expiry, upgrades."""
        self.catalog.swap(self.table, (), updates)
        self.__dict__.pop("specs", None)

    def set(self, **properties: str) -> None:
        self.update(
            SetPropertiesUpdate(updates={k.replace("__", ".").replace("_", "-"): v for k, v in properties.items()})
        )

    def upgrade(self, version: int) -> None:
        self.update(UpgradeFormatVersionUpdate(format_version=version))

    def expire(self, *snapshot_ids: int) -> None:
        self.update(RemoveSnapshotsUpdate(snapshot_ids=list(snapshot_ids)))

    def branch(self, name: str, snapshot_id: int | None = None, kind: str = "branch") -> None:
        self.update(SetSnapshotRefUpdate(ref_name=name, type=kind, snapshot_id=snapshot_id or self.head_id))

    def default_spec(self, spec_id: int) -> None:
        self.update(SetDefaultSpecUpdate(spec_id=spec_id))

    # --- committing ---

    def commit(self, action: Action, **options: Any) -> Outcome:
        return commit(self.catalog, self._any_state, action, **({"environment": self.environment} | options))

    def ok(self, action: Action, **options: Any) -> Committed:
        """Commit, or fail the test with the conflict."""
        outcome = self.commit(action, **options)
        assert isinstance(outcome, Committed), outcome
        return outcome

    def refused(self, action: Action, rule: Check, **options: Any) -> Conflict:
        """Commit, expect one check to refuse it, and nothing to change: no snapshot, no file left behind."""
        before, files = self.table.metadata_location, self.files_on_disk()
        outcome = self.commit(action, **options)
        assert isinstance(outcome, Rejected), outcome
        (conflict,) = outcome.conflicts
        assert conflict.rule == rule, conflict
        assert self.table.metadata_location == before
        assert self.files_on_disk() == files
        return conflict

    # --- looking ---

    def head(self, branch: str = "main") -> Snapshot | None:
        return _head(self.metadata, branch)

    @property
    def head_id(self) -> int | None:
        head = self.head()
        return None if head is None else head.snapshot_id

    def summary(self, branch: str = "main") -> dict[str, str]:
        head = self.head(branch)
        assert head is not None
        return {"operation": head.summary.operation.value, **head.summary.additional_properties}

    def manifests(self, *, deletes: bool | None = None, branch: str = "main") -> list[Manifest]:
        metadata = self.metadata
        found = manifests_of(self.io, metadata, _head(metadata, branch))
        return [m for m in found if deletes is None or m.is_deletes == deletes]

    def entries(self, *, deletes: bool | None = None, branch: str = "main", all_details: bool = False) -> EntryTable:
        """The entries of the head, tombstones included."""
        manifests = self.manifests(deletes=deletes, branch=branch)
        return read_entries(self.io, manifests, self.specs, detail=DETAIL.names if all_details else ())

    def live(self, *, deletes: bool | None = None, branch: str = "main") -> EntryTable:
        return self.entries(deletes=deletes, branch=branch).live()

    def names(self, *, deletes: bool | None = False, branch: str = "main") -> set[str]:
        """The names of the live files: data files unless deletes are asked for."""
        return {name_of(p) for p in self.live(deletes=deletes, branch=branch)["file_path"].to_pylist()}

    def names_by_pyiceberg(self) -> set[str]:
        """The names of the live data files as PyIceberg finds them, in an export where it cannot read the tree."""
        head = self.head()
        readable = head is None or head.manifest_list is not None
        table = self.table if readable else StaticTable.from_metadata(self.exported())
        return {name_of(task.file.file_path) for task in table.scan().plan_files()}

    def exported(self) -> str:
        """The path of the metadata in the spelling of version 3."""
        return neve.connect(str(self.folder)).table("db.t").export_metadata()

    def statuses(self, *, deletes: bool | None = None) -> dict[str, str]:
        """The status of each file by its name."""
        entries = self.entries(deletes=deletes)
        pairs = zip(entries["file_path"].to_pylist(), entries["status"].to_pylist(), strict=True)
        return {name_of(path): Status(status).name for path, status in pairs}

    def by_name(self, column: str, *, deletes: bool | None = None) -> dict[str, Any]:
        """A column of the live files, by their names."""
        live = self.live(deletes=deletes)
        return dict(zip(map(name_of, live["file_path"].to_pylist()), live[column].to_pylist(), strict=True))

    def attached(self) -> dict[str, set[str]]:
        """The names of the delete files that apply to each data file; files without any are left out."""
        entries = self.entries(all_details=True).live()
        data = entries.of_content(Content.DATA)
        deletes = entries.of_content(Content.POSITION_DELETES, Content.EQUALITY_DELETES)
        found: dict[str, set[str]] = {}
        for pair in match_deletes(data, deletes).to_pylist():
            file, delete = (table["file_path"][pair[key]] for table, key in ((data, "file"), (deletes, "delete")))
            found.setdefault(name_of(file.as_py()), set()).add(name_of(delete.as_py()))
        return found

    def deleted_positions(self) -> dict[str, list[int]]:
        """The positions that the vectors of the table delete, by data file, as their Puffin files tell."""
        found: dict[str, list[int]] = {}
        for row in self.live(deletes=True).columns.to_pylist():
            place = (row["content_offset"], row["content_size_in_bytes"], row["record_count"])
            name = name_of(row["referenced_data_file"])
            assert name not in found, f"{name} has two vectors"
            found[name] = read_vectors(self.io, row["file_path"], [place])[0].positions().tolist()
        return found

    def files_on_disk(self) -> set[str]:
        """The metadata files and vectors of the table, without the catalog's own."""
        root = self.folder / "db" / "t"
        return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}

    # --- files that exist in metadata only ---

    def data(
        self, *names: str, region: str | None = "eu", spec: int = 0, bucket: int = 0, rows: int = 10, **stated: Any
    ) -> EntryTable:
        """New data files of one partition; `ids=(lowest, highest)` gives statistics of the column `id`."""
        return self._files(names, Content.DATA, spec, (region, bucket), rows, **stated)

    def plain(self, *names: str, rows: int = 10, **stated: Any) -> EntryTable:
        """New data files without a partition, of the first spec."""
        return self._files(names, Content.DATA, 0, (), rows, **stated)

    def new(self, *names: str, **stated: Any) -> EntryTable:
        """New data files under the default spec of the table, as a command writes them."""
        return self.data(*names, spec=self.metadata.default_spec_id, **stated)

    def positions(
        self,
        *names: str,
        of: EntryTable | None = None,
        region: str | None = "eu",
        spec: int = 0,
        bucket: int = 0,
        **stated: Any,
    ) -> EntryTable:
        """New position delete files; `of` a data file they take its spec and partition and name it."""
        if of is None:
            return self._files(names, Content.POSITION_DELETES, spec, (region, bucket), stated.pop("rows", 1), **stated)
        made = [self._beside(of, name, Content.POSITION_DELETES, **stated) for name in names]
        return plus(*made)

    def vector(self, name: str, of: EntryTable, positions: Sequence[int] | None = None, **stated: Any) -> EntryTable:
        """A new deletion vector of a data file; with positions a real Puffin file holds it."""
        place = {"content_offset": 4, "content_size_in_bytes": 40, "rows": 1}
        path = self.path(name, "puffin")
        if positions is not None:
            data, found = pack_vectors([(of["file_path"][0].as_py(), PositionSet.of(list(positions)))])
            with self.io.new_output(path).create() as stream:
                stream.write(data)
            row = found.to_pylist()[0]
            place = {key: row[key] for key in ("content_offset", "content_size_in_bytes")} | {
                "rows": row["record_count"]
            }
        vector = self._beside(of, name, Content.POSITION_DELETES, **{**place, "file_format": "PUFFIN", **stated})
        return vector.with_columns(file_path=path)

    def equality(
        self, *names: str, region: str | None = "eu", spec: int = 0, bucket: int = 0, rows: int = 1, **stated: Any
    ) -> EntryTable:
        """New equality delete files on the column `id`."""
        stated.setdefault("equality_ids", [1])
        return self._files(names, Content.EQUALITY_DELETES, spec, (region, bucket), rows, **stated)

    def deletes(self, name: str, of: EntryTable) -> EntryTable:
        """New position deletes of a data file in the form the format version knows: a delete file or a vector."""
        return self.vector(name, of) if self.metadata.format_version > 2 else self.positions(name, of=of)

    def path(self, name: str, suffix: str = "parquet") -> str:
        return f"{self.location}/data/{name}.{suffix}"

    def _beside(self, of: EntryTable, name: str, content: Content, **stated: Any) -> EntryTable:
        made = self._files([name], content, 0, (None, 0), stated.pop("rows", 1), **stated)
        columns = {"spec_id", *(u.column for u in self.specs.union)} - set(stated)
        same = {c: of[c].slice(0, 1) for c in columns}
        return made.with_columns(
            referenced_data_file=stated.get("referenced_data_file", of["file_path"].slice(0, 1)), **same
        )

    def _files(
        self, names: Sequence[str], content: Content, spec: int, partition: Sequence[Any], rows: int, **stated: Any
    ) -> EntryTable:
        columns = {"content": content, "spec_id": spec, "record_count": rows, "file_size_in_bytes": 100 * rows}
        columns |= dict(zip(self.specs.columns(spec), partition, strict=False)) if spec in (0, 1) else {}
        columns |= {**_bounds(stated.pop("ids", None)), **stated}
        files = [{"file_path": self.path(name), **columns} for name in names]
        return new_entries(self.specs, files, DETAIL.names)


def _head(metadata: TableMetadata, branch: str) -> Snapshot | None:
    ref = metadata.refs.get(branch)
    return None if ref is None else metadata.snapshot_by_id(ref.snapshot_id)


def _bounds(ids: tuple[int, int] | None) -> dict[str, Any]:
    if ids is None:
        return {}
    lower, upper = (to_bytes(LongType(), i) for i in ids)
    counts = {"value_counts": {1: 10}, "null_value_counts": {1: 0}}
    return {"lower_bounds": {1: lower}, "upper_bounds": {1: upper}, **counts}


def plus(*tables: EntryTable) -> EntryTable:
    """Several files as one set."""
    return EntryTable.concat(tables, tables[0].specs)


def removed(*tables: EntryTable, manifests: Iterable[str] = ()) -> RemovedFiles:
    """Files to be removed, known by their entries."""
    return RemovedFiles(plus(*tables), manifests=tuple(manifests))


def name_of(path: str) -> str:
    return path.rsplit("/", 1)[-1].split(".", maxsplit=1)[0]
