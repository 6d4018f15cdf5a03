"""What verbs and statements work on: one state of a table, or a whole lake, and the Spark session to run in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyiceberg.io import FileIO
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from neve.catalog import list_tables, load_table, refresh_table
from neve.catalog.base import NeveCatalog
from neve.commit.actions import Action
from neve.commit.environment import Environment
from neve.commit.outcome import Conflict, Outcome
from neve.commit.protocol import MetadataChange, commit
from neve.commit.window import CommitBase
from neve.errors import UnknownName, UserError
from neve.model.metadata import TableMetadata
from neve.model.partition import Specs
from neve.model.properties import TableProperties, properties_of
from neve.model.view import StoredView
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable, Manifest
from neve.tree.partition_types import infer_partition_types
from neve.tree.read import EntryPredicate, manifests_of, read_entries

_LOADING_MODE = "snapshot-loading-mode"


@dataclass(frozen=True)
class TemporaryView:
    """A query that later statements read under a name."""

    query: str
    marker: str  # in the metadata of the first column of the Spark view, which shows that nobody has replaced it


@dataclass
class SqlSession:
    """What statements of a lake leave behind for later ones: the namespace in use, and temporary views by name."""

    namespace: tuple[str, ...] = ()  # of table names without one; empty: they have none
    views: dict[str, TemporaryView] = field(default_factory=dict)  # by name in lower case


@dataclass(frozen=True)
class TableContext:
    """One state of a table. A verb that changes the table does not change this value."""

    catalog: NeveCatalog
    iceberg: IcebergTable
    spark: Callable[[], SparkSession]
    schemes: Mapping[str, str] = field(default_factory=dict)
    time_zone: Callable[[], str] = lambda: "UTC"  # of the times in conditions
    environment: Environment = field(default_factory=Environment)
    running_spark: Callable[[], SparkSession | None] = SparkSession.getActiveSession  # starts none
    session: SqlSession = field(default_factory=SqlSession)
    lookup: Callable[[tuple[str, ...]], TableContext | None] | None = None  # of other tables; None: in the catalog

    @property
    def name(self) -> str:
        """The table's name with its namespace."""
        return ".".join(self.iceberg.name())

    @property
    def metadata(self) -> TableMetadata:
        """The table metadata of this state."""
        return self.iceberg.metadata  # type: ignore[return-value]

    @property
    def io(self) -> FileIO:
        """Access to the table's files."""
        return self.iceberg.io

    @cached_property
    def specs(self) -> Specs:
        """All partition specs, typed."""
        specs = Specs.of(self.metadata)
        if not specs.untyped_fields:
            return specs
        return infer_partition_types(self.io, specs, manifests_of(self.io, self.metadata, self.head()))

    @cached_property
    def facts(self) -> TableFacts:
        """The facts about the table that the data plane needs."""
        return replace(TableFacts.of(self.metadata, self.io, self.schemes), specs=self.specs)

    @property
    def properties(self) -> TableProperties:
        """The table's properties."""
        return properties_of(self.metadata.properties)

    def live_manifests(self, snapshot: Snapshot | None) -> list[Manifest]:
        """Read the manifests of a snapshot that may hold live files."""
        return [m for m in manifests_of(self.io, self.metadata, snapshot) if m.may_hold_live_files]

    def live_entries(
        self, manifests: Sequence[Manifest], detail: Collection[str] = (), detail_where: EntryPredicate | None = None
    ) -> EntryTable:
        """Read the live files of manifests, with details of those that `detail_where` selects."""
        return read_entries(self.io, manifests, self.specs, detail=detail, detail_where=detail_where, live_only=True)

    def refreshed(self) -> TableContext:
        """Return the newest state of the table."""
        return replace(self, iceberg=refresh_table(self.catalog, self.iceberg))

    def commit(
        self,
        action: Action,
        *,
        branch: str = "main",
        creates_branch: bool = False,
        wap_id: str | None = None,
        properties: Mapping[str, str] | None = None,
        written_files: Collection[str] = (),
        keep_files_if_rejected: bool = False,
        extra_check: Callable[[CommitBase], Conflict | None] | None = None,
        change_metadata: MetadataChange | None = None,
    ) -> Outcome:
        """Commit an action to a branch, as all verbs do; `neve.commit.protocol.commit` explains the arguments."""
        return commit(
            self.catalog,
            self.iceberg,
            action,
            branch=branch,
            creates_branch=creates_branch,
            wap_id=wap_id,
            properties=properties,
            environment=self.environment,
            files_of_this_commit=written_files,
            keep_files_if_rejected=keep_files_if_rejected,
            extra_check=extra_check,
            change_metadata=change_metadata,
        )

    @property
    def sees_all_snapshots(self) -> bool:
        """True unless the catalog loads only some of the snapshots."""
        return str(self.catalog.properties.get(_LOADING_MODE, "all")) == "all"

    @property
    def may_delete_files(self) -> bool:
        """True if maintenance may delete files of the table."""
        return self.properties.gc_enabled and self.sees_all_snapshots

    def refuse_to_delete_files(self, doing: str) -> None:
        """Reject the deletion of files that another table may share, or of a table that is loaded only in part."""
        if not self.properties.gc_enabled:
            raise UserError(
                f"Cannot {doing} table {self.name}: its property gc.enabled is false, so its files may belong to "
                "another table. Set it to true if they do not."
            )
        if not self.sees_all_snapshots:
            raise UserError(
                f"Cannot {doing} table {self.name}: the catalog loads only some of its snapshots, and files of "
                f"the others would be lost. Connect without {_LOADING_MODE!r}."
            )

    def head(self, branch: str = "main") -> Snapshot | None:
        """Return the newest snapshot of a branch, or None for a table without snapshots."""
        if branch == "main":
            return self.metadata.current_snapshot()
        ref = self.metadata.refs.get(branch)
        if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
            raise UserError(f"{branch!r} of table {self.name} is a tag, and tags do not move. Name a branch.")
        return self.snapshot_of_ref(branch)

    def snapshot_of_ref(self, name: str) -> Snapshot | None:
        """Return the snapshot of a branch or tag."""
        if name not in self.metadata.refs:
            if name == "main":
                return None
            raise UnknownName("branch or tag", name, self.metadata.refs, f"table {self.name}")
        return self.metadata.snapshot_by_id(self.metadata.refs[name].snapshot_id)

    def snapshot(
        self, snapshot_id: int | None = None, ref: str | None = None, as_of: int | None = None
    ) -> Snapshot | None:
        """Return the snapshot to read: by id, by branch or tag, as of a time in milliseconds, or the current one."""
        if sum(choice is not None for choice in (snapshot_id, ref, as_of)) > 1:
            raise UserError("Choose one of snapshot_id, ref and as_of: each names a snapshot by itself.")
        if snapshot_id is not None:
            snapshot = self.metadata.snapshot_by_id(snapshot_id)
            if snapshot is None:
                ids = [s.snapshot_id for s in self.metadata.snapshots]
                raise UnknownName("snapshot", snapshot_id, ids, f"table {self.name}")
            return snapshot
        if ref is not None:
            return self.snapshot_of_ref(ref)
        if as_of is None:
            return self.metadata.current_snapshot()
        log = [e for e in self.metadata.snapshot_log if e.timestamp_ms <= as_of]
        if not log:
            raise UserError(f"Table {self.name} has no snapshot as old as {as_of} ms since 1970.")
        newest = max(reversed(log), key=lambda e: e.timestamp_ms).snapshot_id  # the later of two in one millisecond
        snapshot = self.metadata.snapshot_by_id(newest)
        if snapshot is None:
            raise UserError(f"Snapshot {newest} of table {self.name} was current then, but has been expired.")
        return snapshot

    def ancestors(self, snapshot: Snapshot | None) -> Iterator[Snapshot]:
        """Yield a snapshot and its ancestors, newest first; an expired one ends the walk."""
        visited: set[int] = set()
        while snapshot is not None and snapshot.snapshot_id not in visited:
            visited.add(snapshot.snapshot_id)
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self.metadata.snapshot_by_id(parent)


@dataclass(frozen=True)
class LakeContext:
    """What a statement over many tables works on: a catalog, and the Spark session to run in."""

    catalog: NeveCatalog
    spark: Callable[[], SparkSession]  # starts a session when none is running
    running_spark: Callable[[], SparkSession | None]  # starts none
    schemes: Mapping[str, str] = field(default_factory=dict)
    time_zone: Callable[[], str] = lambda: "UTC"  # of the times in conditions
    environment: Environment = field(default_factory=Environment)
    session: SqlSession = field(default_factory=SqlSession)
    sql_name: str | None = None  # the name of the lake in SQL; None: that of its catalog
    lookup: Callable[[tuple[str, ...]], TableContext | None] | None = None  # of tables by name; None: in the catalog
    # the full name of a table, which begins with its lake, or None for one of Spark; None: the lake is by itself
    place_of: Callable[[tuple[str, ...]], tuple[str, ...] | None] | None = None
    # views by name, each with its lake; None: those of the catalog
    view_lookup: Callable[[tuple[str, ...]], tuple[LakeContext, StoredView] | None] | None = None

    @property
    def name(self) -> str:
        """The name that may come before the names of namespaces in SQL."""
        return self.catalog.name if self.sql_name is None else self.sql_name

    def table(self, name: str | tuple[str, ...]) -> TableContext:
        """Return the newest state of a table; an unknown name is an error that suggests similar names."""
        return self.of_table(load_table(self.catalog, name))

    def of_table(self, iceberg: IcebergTable) -> TableContext:
        """Return the context of a table that was loaded from the catalog."""
        return TableContext(
            self.catalog,
            iceberg,
            self.spark,
            self.schemes,
            self.time_zone,
            self.environment,
            self.running_spark,
            self.session,
            self.lookup,
        )

    def table_names(self, namespace: str | None = None) -> list[str]:
        """Return the names of all tables, or of those in one namespace."""
        return [".".join(identifier) for identifier in list_tables(self.catalog, namespace)]
