"""Every verb as an operation on a small evolved table, and the lake that holds the table.

The lake is created once per format version and copied for every case. Tables refer to their files by absolute paths, so
each copy replaces the lake at its original location.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from neve import Lake, Table
from neve.commit.outcome import require_committed
from neve.model.ddl import schema_of_ddl
from neve.ops.write.replace_table import ReplaceTable, replacement_of
from tests.proof.audit import HOUR, NEW_NAME, State, lake_in, newest_metadata, table_in
from tests.proof.faults import DURABLE, Fault, Kind, Step, run_forked
from tests.proof.statements_without_spark import COLUMNS, Statement, StatementWriter, open_table, where

VERSIONS = (2, 3, 4)
ROWS = tuple((i, ("eu", "us")[i % 2], i, f"note {i}") for i in range(8))
MORE = tuple((i, ("eu", "us")[i % 2], i, f"note {i}") for i in range(20, 26))
PROPERTIES = {"commit.retry.num-retries": "3", "neve.commit.reruns": "1", "commit.status-check.num-retries": "1"}

EU, US = where(("region", "=", "eu")), where(("region", "=", "us"))
FIRST, ALL_BUT_FIRST = where(("id", "=", 2)), where(("id", ">=", 2))


def create_evolved_table(lake: Lake, version: int) -> Table:
    """Create a table with two specs, deletes, several manifests and a tag."""
    lake.create_table("db.t", COLUMNS, ["region"], format_version=version, properties=PROPERTIES)
    table = open_table(lake)
    hand = StatementWriter(table)
    for statement in (
        Statement("append", rows=ROWS),
        Statement("delete", where(("id", "=", 1))),
        Statement("append", rows=MORE[:2]),
    ):
        require_committed(hand.do(statement))  # type: ignore[arg-type]
    table.create_tag("early").evolve_partitions(add=["bucket(2, id)"])
    for statement in (
        Statement("delete", where(("id", "=", 20))),
        Statement("append", rows=MORE[2:4]),
        Statement("append", rows=MORE[4:]),
    ):
        require_committed(hand.do(statement))  # type: ignore[arg-type]
    return table


def _add_orphans(lake: Lake) -> None:
    folder = _folder(lake) / "db" / "t"
    for name in ("data/lost.parquet", "metadata/lost-m0.avro", "data/.0123456789abcdef0123456789abcdef.part"):
        (folder / name).write_bytes(b"lost")


def statement(value: Statement) -> Callable[[Lake], None]:
    def run(lake: Lake) -> None:
        outcome = StatementWriter(open_table(lake)).do(value)
        assert outcome is not None
        require_committed(outcome, value.kind)

    return run


def on_table(act: Callable[[Table], Any]) -> Callable[[Lake], None]:
    def run(lake: Lake) -> None:
        act(open_table(lake))

    return run


def _in_an_hour() -> int:
    return int(time.time() * 1000) + HOUR


def _add_column(table: Table) -> None:
    with table.evolve_schema() as change:
        from pyiceberg.types import StringType

        change.add_column("more", StringType())
        change.rename_column("note", "remark")


def _replace_table(table: Table) -> None:
    """Give the table other columns, another spec and other rows, as CREATE OR REPLACE TABLE … AS SELECT does."""
    replacement = replacement_of(
        table.context, schema_of_ddl("id bigint, n int, more int, region string"), ["bucket(3, id)"]
    )
    ReplaceTable(table.context, [{"id": 92, "n": 3, "more": 1}], replacement=replacement).execute()


def _recreate(lake: Lake) -> None:
    lake.create_table("db.t", COLUMNS, ["region"], format_version=3)


def _register(lake: Lake) -> None:
    """Register a dropped table by its newest metadata file."""
    lake.register_table("db.t", newest_metadata(_folder(lake)).as_uri())


def _remove_table_and_files(lake: Lake) -> None:
    lake.drop_table("db.t", purge=True)
    shutil.rmtree(_folder(lake) / "db")


def _bring_file(lake: Lake) -> None:
    """Partition the table by region alone, and put a file of another writer beside its own."""
    table = open_table(lake).evolve_partitions(drop=["bucket(2, id)"])
    path = _foreign_file(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [95, 96], "n": pa.array([1, 2], pa.int32()), "note": ["x", "y"]}), path)


def _foreign_file(table: Table) -> Path:
    return Path(table.context.metadata.location.removeprefix("file://"), "data", "region=eu", "foreign.parquet")


def _stage(*later: Callable[[Table], Any]) -> Callable[[Lake], None]:
    """Stage an overwrite of partitions as `audit`; what is done later makes it no child of the current snapshot."""

    def prepare(table: Table) -> None:
        table.overwrite_partitions([{"id": 22, "region": "eu", "n": 0, "note": "x"}], stage="audit")
        for act in later:
            act(table)

    return on_table(prepare)


def _folder(lake: Lake) -> Path:
    return Path(lake.catalog.properties["warehouse"].removeprefix("file://"))


def _first(table: Table) -> int:
    return table.context.metadata.snapshots[0].snapshot_id


VERBS: dict[str, Callable[[Lake], Any]] = {
    "append": on_table(lambda t: t.append([{"id": 90, "region": "eu", "n": 0, "note": "x"}])),
    "add_files": on_table(lambda t: t.add_files([_foreign_file(t)]).execute()),
    "ingest": on_table(lambda t: t.ingest([_foreign_file(t)]).execute()),
    "overwrite": on_table(lambda t: t.overwrite([{"id": 91, "region": "eu", "n": 0, "note": "x"}], "region = 'eu'")),
    "overwrite_partitions": on_table(
        lambda t: t.overwrite_partitions([{"id": 22, "region": "eu", "n": 0, "note": "x"}])
    ),
    "append, staged": on_table(lambda t: t.append([{"id": 90, "region": "eu", "n": 0}], stage="audit")),
    "publish_changes": on_table(lambda t: t.publish_changes("audit")),
    "cherrypick_snapshot": on_table(lambda t: t.cherrypick_snapshot(t.context.metadata.snapshots[-2].snapshot_id)),
    "delete": statement(Statement("delete", FIRST)),
    "delete, copied": statement(Statement("delete", FIRST, mode="copy-on-write")),
    "delete of files": statement(Statement("drop", US)),
    "update": statement(Statement("update", EU, add=100)),
    "update, copied": statement(Statement("update", EU, add=100, mode="copy-on-write")),
    "merge": statement(Statement("merge", rows=((2, "us", 7, "merged"), (77, "eu", 7, "merged")))),
    "merge, copied": statement(
        Statement("merge", rows=((2, "us", 7, "merged"), (77, "eu", 7, "merged")), mode="copy-on-write")
    ),
    "compaction": statement(Statement("compact")),
    "rewrite_manifests": on_table(lambda t: t.rewrite_manifests().execute()),
    "expire_snapshots": on_table(lambda t: t.expire_snapshots().older_than(_in_an_hour()).retain_last(1).execute()),
    "remove_orphan_files": on_table(
        lambda t: t.remove_orphan_files().older_than(_in_an_hour()).allow_young().dry_run(False).execute()
    ),
    "evolve_partitions": on_table(lambda t: t.evolve_partitions(drop=["region"])),
    "evolve_schema": on_table(_add_column),
    "replace_table": on_table(_replace_table),
    "set_properties": on_table(lambda t: t.set_properties(owner="me")),
    "set_sort_order": on_table(lambda t: t.set_sort_order("id DESC", distribution_mode="range")),
    "upgrade": on_table(lambda t: t.upgrade(t.context.metadata.format_version + 1)),
    "compute_table_stats": on_table(lambda t: t.compute_table_stats()),
    "compute_partition_stats": on_table(lambda t: t.compute_partition_stats()),
    "remove_dangling_deletes": on_table(lambda t: t.remove_dangling_deletes().execute()),
    "remove_properties": on_table(lambda t: t.remove_properties("neve.commit.reruns")),
    "create_branch": on_table(lambda t: t.create_branch("side")),
    "create_tag": on_table(lambda t: t.create_tag("late")),
    "drop_branch": on_table(lambda t: t.drop_branch("old")),
    "drop_tag": on_table(lambda t: t.drop_tag("early")),
    "fast_forward": on_table(lambda t: t.fast_forward("old", "main")),
    "rollback": on_table(lambda t: t.rollback(t.context.metadata.snapshots[1].snapshot_id)),
    "set_current_snapshot": on_table(lambda t: t.set_current_snapshot(_first(t))),
    "create_table": _recreate,
    "register_table": _register,
    "rename_table": lambda lake: lake.rename_table("db.t", NEW_NAME),
    "drop_table": lambda lake: lake.drop_table("db.t"),
    "purge_table": lambda lake: lake.drop_table("db.t", purge=True),
}
INVISIBLE_CHANGES = ("remove_orphan_files",)  # changes nothing that a table shows
# Verbs that change tables and are not in the list, with the reason; `test_verbs.py` checks that no other is missing.
BY_OTHER_NAMES = {
    "rewrite_data_files": "compaction",
    "rewrite_position_deletes": "a Spark job; tests/proof/test_spark_crash.py",
    "maintain": "a Spark job; runs other verbs of the list one by one",
    "export_metadata": "changes nothing of the table; tests/tree",
    "rewrite_table_path": "changes nothing of the table; tests/ops/maintenance/test_rewrite_table_path.py",
    "copy_to": "changes nothing of the table; tests/ops/maintenance/test_copy_table.py interrupts it",
    "relocate": "copies as copy_to does, then one swap; tests/ops/maintenance/test_relocate_table.py interrupts it",
    "snapshot_delta": "create_table, then add_files as a delta of rows",
    "migrate_folder": "create_table, then add_files; between them a crash leaves an empty table",
    "snapshot_folder": "create_table, then add_files; between them a crash leaves an empty table",
    "set_location": "commits as set_properties does; what a crash leaves is in a folder that is not the table's",
}

# Preparations and the verbs that need them; the other verbs run on the evolved table as it is.
PREPARATIONS: tuple[tuple[Any, ...], ...] = (
    (_add_orphans, "remove_orphan_files"),
    (_bring_file, "add_files", "ingest"),
    (_remove_table_and_files, "create_table"),
    (lambda lake: lake.drop_table("db.t"), "register_table"),
    (on_table(lambda t: t.create_branch("old", _first(t))), "drop_branch", "fast_forward"),
    (_stage(), "publish_changes"),
    (_stage(lambda t: t.append([{"id": 93, "region": "us", "n": 0}])), "cherrypick_snapshot"),
    (on_table(lambda t: t.iceberg.delete("region = 'us'")), "remove_dangling_deletes"),  # leaves the deletes of files
)


def applies_to(verb: str, version: int) -> bool:
    """Return whether a verb has work to do on a table of a format version."""
    if verb == "remove_dangling_deletes":
        return version == 2  # later ones have vectors, which go with their files
    return verb != "upgrade" or version < 4


def version_for_case(verb: str, number: int) -> int:
    """Return the format version for case `number` of a verb: the versions that apply take turns."""
    fitting = [version for version in VERSIONS if applies_to(verb, version)]
    return fitting[number % len(fitting)]


@dataclass
class RestorableLake:
    """A lake that can be restored to its original state."""

    folder: Path  # where cases run
    version: int
    copies: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        create_evolved_table(lake_in(self.folder), self.version)
        self._save_copy("plain")
        for prepare, *verbs in PREPARATIONS:
            if any(applies_to(verb, self.version) for verb in verbs):
                self.restore("plain")
                prepare(lake_in(self.folder))
                self._save_copy(*verbs)

    def _save_copy(self, *names: str) -> None:
        """Save a copy of the lake, from which some verbs start."""
        copy = self.folder.with_name(f"{self.folder.name}-{names[0]}")
        shutil.copytree(self.folder, copy)
        self.copies.update(dict.fromkeys(names, copy))

    def restore(self, verb: str) -> None:
        """Restore the lake to its state before a verb."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.copies.get(verb, self.copies["plain"]), self.folder)

    def run(self, verb: str) -> None:
        VERBS[verb](lake_in(self.folder))

    def state(self) -> State:
        return State.of(table_in(lake_in(self.folder)))

    def states(self, verb: str) -> tuple[State, State]:
        """Return the state of the table before a verb, and after it without a fault."""
        self.restore(verb)
        before = self.state()
        self.run(verb)
        after = self.state()
        assert before != after or verb in INVISIBLE_CHANGES, f"{verb} does nothing"
        return before, after

    def steps(self, verb: str, kinds: frozenset[Kind] = DURABLE) -> tuple[Step, ...]:
        """Return the steps of a verb without a fault: the durable ones, and reads if `kinds` has them."""
        self.restore(verb)
        ended = run_forked(lambda: self.run(verb), Fault(kinds=kinds))
        assert ended.acknowledged, ended.error
        assert ended.steps
        return ended.steps
