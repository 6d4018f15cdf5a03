"""CALL runs the maintenance verbs under the names of Iceberg's procedures, and reports what it cannot parse."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import neve
from neve.cli import app
from neve.commit.environment import Environment
from neve.errors import UnknownName, UserError
from neve.ops.maintenance.remove_orphan_files import OrphanResult
from neve.ops.maintenance.rewrite_manifests import RewriteManifestsResult
from neve.sql import parse
from neve.sql.call import Call
from neve.sql.procedures import PROCEDURES

DAY = 24 * 60 * 60 * 1000


@pytest.fixture
def lake(tmp_path: Path) -> neve.Lake:
    """Three snapshots; the clock is ten days ahead, so every file is old."""
    later = Environment(now_ms=lambda: time.time_ns() // 1_000_000 + 10 * DAY)
    lake = neve.connect(tmp_path / "lake", environment=later)
    t = lake.create_table("db.t", "id bigint, region string", ["region"])
    for i in range(3):
        t.append([{"id": i, "region": "eu"}])
    return lake


def ids(lake: neve.Lake) -> list[int]:
    return [s.snapshot_id for s in lake.table("db.t").context.metadata.snapshots]


def test_arguments_are_named_or_positional(lake):
    head = ids(lake)[-1]
    for text in (
        f"CALL system.ancestors_of(table => 'db.t', snapshot_id => {head})",
        f"call neve.SYSTEM.Ancestors_Of(snapshot_id => {head}L, `table` => 'neve.db.t');",
        f"CALL system.ancestors_of('db.t', {head})",
        f"CALL system.ancestors_of('`db`.t', snapshot_id => {head})",
        "/* all of them */ CALL system.ancestors_of('db.t', NULL) -- null is nothing",
        "CALL system.ancestors_of('db.t')",
    ):
        assert lake.sql(text)["snapshot_id"].to_pylist() == ids(lake)[::-1], text
    found = lake.sql(f"CALL system.ancestors_of('db.t', {ids(lake)[1]})")
    assert found["snapshot_id"].to_pylist() == ids(lake)[1::-1] and found.schema.types[1] == pa.int64()


def test_arguments_are_constant_expressions(lake):
    first, second, *_ = ids(lake)
    times = {s.snapshot_id: s.timestamp_ms for s in lake.table("db.t").context.metadata.snapshots}
    lake.sql(f"CALL system.rollback_to_timestamp('db.t', timestamp_millis({times[first]} + 1))")
    assert lake.table("db.t").context.metadata.current_snapshot_id == first
    lake.sql(f"CALL system.set_current_snapshot('db' || '.t', {second} + 0)")
    assert lake.table("db.t").context.metadata.current_snapshot_id == second
    for expired, moment in (  # the clock of the table is ten days ahead, and five days are the default
        (False, "(current_timestamp() + INTERVAL 239 HOURS)"),
        (False, "CAST(current_timestamp() AS timestamp_ntz) + INTERVAL 239 HOURS"),
        (True, "CAST(current_timestamp() AS timestamp_ntz) + INTERVAL 241 HOURS"),
        (True, "current_date() + 12"),
    ):
        lake.sql("INSERT INTO db.t SELECT * FROM db.t LIMIT 1")
        called = lake.sql(f"CALL system.expire_snapshots('db.t', {moment}, -(-1))")
        assert bool(called.snapshot_ids) == expired
    for wrong, message in (
        ("current_timestamp() - nothing", "Argument 'older_than' is .*; it must be a timestamp"),
        ("try_to_timestamp('2026-13-01')", "it has no value"),
        ("map_concat(map('a', 1))", "Argument 'older_than' is .*; it must be a timestamp"),
    ):
        with pytest.raises(UserError, match=message):
            lake.sql(f"CALL system.expire_snapshots('db.t', {wrong})")
    lake.sql("CALL system.rewrite_data_files('db.t', where => concat('id', ' = ', 1))")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "CALL system.compact('db.t')",
            "unknown procedure 'compact': expected one of rewrite_data_files, .*ancestors_of",
        ),
        ("CALL rewrite_manifests('db.t')", r"call the procedure as system\.rewrite_manifests"),
        ("CALL other.rewrite_manifests('db.t')", r"call the procedure as system\.rewrite_manifests"),
        (
            "CALL system.ancestors_of(tabel => 'db.t')",
            "unknown argument 'tabel': ancestors_of takes table, snapshot_id",
        ),
        ("CALL system.ancestors_of('db.t', 1, 2)", "too many arguments: ancestors_of takes table, snapshot_id"),
        ("CALL system.ancestors_of('db.t', table => 'db.t')", "argument 'table' is given twice"),
        ("CALL system.ancestors_of(table => 'db.t', 1)", None),
        ("CALL system.ancestors_of(snapshot_id => 1, 'db.t')", "an argument after a named argument needs a name too"),
        ("CALL system.ancestors_of('db.t' 1)", "unexpected '1'|expected|Cannot parse"),
        ("CALL system.ancestors_of('db.t'", "missing|expected"),
        ("CALL system.ancestors_of('db.t') x", "unexpected 'x'"),
        ("CALL system.ancestors_of", r"expected \("),
        ("CALL system.ancestors_of('db.t',)", "expected a value"),
        ("CALL", "expected the name of a procedure"),
        (
            "CALL neve.db.system.ancestors_of('db.t')",
            r"only the name of a catalog may come before system\.ancestors_of",
        ),
        ("CALL system.ancestors_of('db.t'); DROP TABLE db.t", "one statement at a time"),
    ],
)
def test_a_parse_error_has_its_position(text: str, message: str | None):
    if message is None:
        assert isinstance(parse(text), Call), "the position of the next argument is clear"
        return
    with pytest.raises(UserError, match=message) as failure:
        parse(text)
    assert "line 1, column" in str(failure.value) or "Cannot parse SQL" in str(failure.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CALL system.ancestors_of()", "needs the argument 'table'"),
        (
            "CALL other.system.ancestors_of('db.t')",
            r"(?s)unknown catalog 'other': the catalog of this lake is 'neve', .*column 6:\n  CALL .*\n       \^{5}$",
        ),
        ("CALL system.ancestors_of(5)", "'table' is 5; it must be the name of a table"),
        ("CALL system.ancestors_of('db.nothing')", "Unknown table 'db.nothing'"),
        ("CALL system.ancestors_of('db.t', 'x')", "'snapshot_id' is 'x'; it must be a whole number"),
        ("CALL system.rollback_to_snapshot('db.t')", "needs the argument 'snapshot_id'"),
        ("CALL system.expire_snapshots('db.t', older_than => 'noon')", "'older_than' is 'noon'.*a timestamp such as"),
        ("CALL system.expire_snapshots('db.t', snapshot_ids => array('a'))", "must be whole numbers such as"),
        ("CALL system.expire_snapshots('db.t', retain_last => 0)", "last 0 snapshots"),
        ("CALL system.expire_snapshots('db.t', older_than => soon())", "'older_than' is"),
        ("CALL system.expire_snapshots('db.t.branch_x')", "x"),
        ("CALL system.rewrite_manifests('db.t', sort_by => array('regoin'))", "partition field 'regoin'"),
        ("CALL system.remove_orphan_files('db.t', prefix_mismatch_mode => 'x')", "prefix mismatch mode 'x'"),
        ("CALL system.remove_orphan_files('db.t', equal_schemes => 's3')", "pairs such as map"),
        ("CALL system.rewrite_data_files('db.t', strategy => 'zip')", "'strategy' is 'zip'"),
        ("CALL system.rewrite_data_files('db.t', sort_order => 'id', strategy => 'binpack')", "needs the strategy"),
        ("CALL system.set_current_snapshot('db.t')", "either snapshot_id or ref"),
    ],
)
def test_wrong_arguments_are_rejected_and_nothing_happens(lake, text: str, message: str):
    lake.table("db.t").create_branch("x")
    before = lake.table("db.t").iceberg.metadata_location
    with pytest.raises(UserError, match=message):
        lake.sql(text)
    assert lake.table("db.t").iceberg.metadata_location == before


def test_every_procedure_takes_a_table_first_and_no_options(lake):
    for name, procedure in PROCEDURES.items():
        assert next(iter(procedure.all_arguments)) == ("source_table" if name == "snapshot" else "table"), name
        with pytest.raises(UserError, match="CALL takes no option 'branch'"):
            lake.sql(f"CALL system.{name}('db.t')", branch="x")


def test_expire_snapshots(lake):
    first, second, third = ids(lake)
    lake.table("db.t").create_tag("stable", first)
    text = "CALL system.expire_snapshots('db.t', TIMESTAMP '2020-01-01 00:00:00', 1, 4, true)"
    assert lake.sql(text).snapshot_ids == (), "the hints are taken"
    assert lake.sql("CALL system.expire_snapshots('db.t')").snapshot_ids == (), "five days by default"
    done = lake.sql("CALL system.expire_snapshots('db.t', '2999-01-01', clean_expired_metadata => true)")
    assert done.snapshot_ids == (second,) and ids(lake) == [first, third]
    with pytest.raises(UserError, match="tag 'stable' points at it"):
        lake.sql(f"CALL system.expire_snapshots('db.t', snapshot_ids => array({first}))")
    lake.table("db.t").drop_tag("stable")
    done = lake.sql(f"CALL system.expire_snapshots('db.t', older_than => '2020-01-01', snapshot_ids => array({first}))")
    assert done.snapshot_ids == (first,) and ids(lake) == [third]


def test_times_are_read_on_the_clock_of_the_session(lake, monkeypatch):
    middle = lake.table("db.t").context.metadata.snapshots[1].timestamp_ms
    utc = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(middle / 1000 - 3600))
    monkeypatch.setattr(neve.Lake, "time_zone", lambda self: "+02:00")
    for text in (f"TIMESTAMP '{utc}'", f"'{utc}'", f"TIMESTAMP '{utc} +01:00'"):
        assert lake.sql(f"CALL system.expire_snapshots('db.t', older_than => {text})").snapshot_ids == ()
    text = f"CALL system.expire_snapshots('db.t', older_than => '{utc} -03:00')"
    assert len(lake.sql(text).snapshot_ids) == 2


def test_remove_orphan_files(lake, tmp_path):
    lost = tmp_path / "lake/db/t/data/lost.parquet"
    lost.write_bytes(b"lost")
    result = lake.sql("CALL system.remove_orphan_files('db.t')")
    assert isinstance(result, OrphanResult) and result.dry_run and len(result.orphans) == 1 and lost.exists()
    done = lake.sql(
        "CALL system.remove_orphan_files(table => 'db.t', dry_run => false, equal_schemes => map('a,b', 'c'), "
        f"location => '{lost.parent}', prefix_listing => true, equal_authorities => map())"
    )
    assert done.files_deleted == 1 and not lost.exists() and lake.table("db.t").verify().is_sound
    with pytest.raises(UserError, match="younger than 24 hours"):
        lake.sql("CALL system.remove_orphan_files('db.t', older_than => '2999-01-01')")


def test_rewrite_manifests_and_dangling_deletes(lake):
    lake.table("db.t").create_branch("audit")
    done = lake.sql(
        "CALL system.rewrite_manifests('db.t', use_caching => false, spec_id => 0, sort_by => array('region'))"
    )
    assert isinstance(done, RewriteManifestsResult) and (done.manifests_rewritten, done.manifests_added) == (3, 1)
    assert lake.sql("CALL system.rewrite_manifests('db.t')").snapshot_id is None
    for text in ("'db.t.branch_audit'", "'db.t', branch => 'audit'", "'db.t.branch_audit', branch => 'audit'"):
        lake.sql(f"CALL system.rewrite_manifests({text})")
    assert len(lake.table("db.t").iceberg.metadata.snapshots) == 5
    with pytest.raises(UserError, match="Give only one"):
        lake.sql("CALL system.rewrite_manifests('db.t.branch_audit', branch => 'main')")
    assert lake.sql("CALL system.remove_dangling_deletes('db.t')").summary == "nothing to remove"


def test_rollback_and_set_current_snapshot(lake):
    first, second, third = ids(lake)
    table = lake.sql(f"CALL system.rollback_to_snapshot('db.t', {first})")
    assert isinstance(table, neve.Table) and table.context.head().snapshot_id == first
    with pytest.raises(UserError, match="no ancestor"):
        lake.sql(f"CALL system.rollback_to_snapshot('db.t', {third})")
    assert lake.sql(f"CALL system.set_current_snapshot('db.t', {third})").context.head().snapshot_id == third
    lake.table("db.t").create_tag("v2", second)
    assert lake.sql("CALL system.set_current_snapshot('db.t', ref => 'v2')").context.head().snapshot_id == second
    with pytest.raises(UnknownName, match="snapshot 5"):
        lake.sql("CALL system.set_current_snapshot('db.t', 5)")


def test_rollback_to_timestamp(lake):
    first, second, third = (lake.table("db.t").context.metadata.snapshots[i] for i in range(3))
    at = datetime.fromtimestamp(third.timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    table = lake.sql(f"CALL system.rollback_to_timestamp('db.t', TIMESTAMP '{at}Z')")
    assert table.context.head().snapshot_id == second.snapshot_id, "the last one before that time"
    with pytest.raises(UserError, match=r"db\.t had no snapshot before that time"):
        lake.sql("CALL system.rollback_to_timestamp('db.t', '2001-01-01 00:00:00')")
    with pytest.raises(UserError, match="needs the argument 'timestamp'"):
        lake.sql("CALL system.rollback_to_timestamp('db.t')")
    assert first.timestamp_ms < second.timestamp_ms < third.timestamp_ms


def test_rewrite_data_files(spark: SparkSession, tmp_path):
    lake = neve.connect(tmp_path / "lake", spark=spark)
    t = lake.create_table("db.t", "id bigint, region string", ["region"])
    for i in range(2):
        t.append([{"id": i, "region": region} for region in ("eu", "us")])
    done = lake.sql(
        "CALL system.rewrite_data_files(table => 'db.t', strategy => 'binpack', where => 'region = \"eu\"', "
        "options => map('min-input-files', '2', 'rewrite-all', false))"
    )
    assert done.files_rewritten == 2 and len(t.inspect.files()) == 3
    text = "CALL system.rewrite_data_files('db.t', where => 'REGION = \"us\"', options => map('rewrite-all', 'true'))"
    assert lake.sql(text).files_rewritten == 2, "the session is not case sensitive"
    with pytest.raises(UserError, match="min-inptu-files"):
        lake.sql("CALL system.rewrite_data_files('db.t', options => map('min-inptu-files', 2))")
    arguments = "table => 'db.t', options => map('rewrite-all', 'true')"
    lake.sql(
        f"CALL system.rewrite_data_files({arguments}, strategy => 'sort', sort_order => 'id DESC NULLS LAST, region')"
    )
    assert t.scan("region = 'eu'").to_arrow()["id"].to_pylist() == [1, 0]
    assert (
        lake.sql(f"CALL system.rewrite_data_files({arguments}, sort_order => 'zorder(id, region)')").files_rewritten
        == 2
    )
    with pytest.raises(UserError, match="has no sort order"):
        lake.sql(f"CALL system.rewrite_data_files({arguments}, strategy => 'sort')")
    with pytest.raises(UserError, match=r"expected \)"):
        lake.sql(f"CALL system.rewrite_data_files({arguments}, sort_order => 'zorder(id')")


def test_rewrite_position_delete_files(spark: SparkSession, tmp_path):
    lake = neve.connect(tmp_path / "lake", spark=spark)
    t = lake.create_table("db.t", "id bigint, region string", ["region"])
    t.append([{"id": i, "region": "eu"} for i in range(6)])
    for i in (1, 3):
        t.delete().where(f"id = {i}").mode("merge-on-read").execute()
    before = sorted(t.to_arrow()["id"].to_pylist())
    text = "CALL system.rewrite_position_delete_files('db.t', map('rewrite-all', 'true'), where => 'region = \"eu\"')"
    assert lake.sql(text).snapshot_id is not None
    assert sorted(t.to_arrow()["id"].to_pylist()) == before == [0, 2, 4, 5]


def test_the_command_line_shows_what_a_procedure_did(lake, tmp_path):
    def run_command(text: str, *more: str) -> str:
        done = CliRunner().invoke(app, ["sql", text, "--lake", str(tmp_path / "lake"), *more])
        assert done.exit_code in (0, 4), done.output
        return done.stdout

    assert len(run_command("CALL system.ancestors_of('db.t')", "--json").splitlines()) == 3
    result = json.loads(run_command("CALL system.expire_snapshots('db.t', older_than => '2999-01-01')", "--json"))
    assert len(result["snapshot_ids"]) == 2 and len(result["deleted"]["lists"]) == 2
    assert json.loads(run_command("CALL system.expire_snapshots('db.t')", "--json"))["status"] == "nothing-to-do"
    assert re.search(r"manifests rewritten\W+3", run_command("CALL system.rewrite_manifests('db.t')"))


# -- output ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def spark_lake_of_peer(lake_folder: Path, spark: SparkSession) -> neve.Lake:
    return neve.connect(lake_folder, spark=spark)


def test_every_procedure_returns_the_columns_of_iceberg(spark_lake_of_peer, other_spark):
    lake, answers = spark_lake_of_peer, {}
    for owner in ("neve", "spark"):
        run = lake.sql if owner == "neve" else other_spark.sql
        name = f"calls.{owner}"
        lake.sql(f"CREATE TABLE {name} (id bigint, v int) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
        for i in range(3):
            lake.sql(f"INSERT INTO {name} VALUES ({i}, 0), ({i + 10}, 0)")
        lake.sql(f"DELETE FROM {name} WHERE id > 9 AND id < 12")
        first, second, *_ = lake.table(name).inspect.snapshots()["snapshot_id"].to_pylist()
        lake.sql(f"ALTER TABLE {name} CREATE BRANCH b AS OF VERSION {first}")
        times = {s.snapshot_id: s.timestamp_ms for s in lake.table(name).context.metadata.snapshots}
        after_second = datetime.fromtimestamp((times[second] + 1) / 1000, UTC).isoformat(sep=" ")
        metadata = lake.table(name).context.iceberg.metadata_location
        lake.table(name).append([{"id": 30, "v": 0}], stage="picked")
        lake.table(name).append([{"id": 31, "v": 0}], stage="published")
        picked = lake.table(name).context.metadata.snapshots[-2].snapshot_id
        calls = {
            "cherrypick_snapshot": f"snapshot_id => {picked}",
            "publish_changes": "wap_id => 'published'",
            "rewrite_position_delete_files": "options => map('rewrite-all', 'true')",
            "rewrite_data_files": "options => map('rewrite-all', 'true')",
            "rewrite_manifests": "use_caching => false",
            "fast_forward": "branch => 'b', to => 'main'",
            "ancestors_of": f"snapshot_id => {second}",
            "set_current_snapshot": f"snapshot_id => {second}",
            "rollback_to_timestamp": f"timestamp => TIMESTAMP '{after_second}'",
            "rollback_to_snapshot": f"snapshot_id => {first}",
            "expire_snapshots": "older_than => TIMESTAMP '2000-01-01 00:00:00'",
            "remove_orphan_files": "dry_run => true",
            "compute_table_stats": "columns => array('id')",
            "rewrite_table_path": "source_prefix => 'file:', target_prefix => 's3://b'",
        }
        found = {
            procedure: run(f"CALL neve.system.{procedure}(table => '{name}', {arguments})")
            for procedure, arguments in calls.items()
        }
        found["register_table"] = run(
            f"CALL neve.system.register_table(table => 'calls.again_{owner}', metadata_file => '{metadata}')"
        )
        ids = {
            i: f"snapshot {n}" for n, i in enumerate(lake.table(name).inspect.snapshots()["snapshot_id"].to_pylist())
        }
        for procedure, result in found.items():
            rows = result if isinstance(result, pa.Table) else result.output_rows
            kinds = rows.schema.types if procedure != "ancestors_of" else ()  # ours are times, theirs milliseconds
            values = [{n: ids.get(v, v) for n, v in row.items() if n != "timestamp"} for row in rows.to_pylist()]
            answers.setdefault(procedure, []).append((rows.column_names, kinds, values))
    # These need a folder or partitions: tests/peers/test_added_files.py and test_statistics.py, test_snapshot_folder.py
    elsewhere = {"add_files", "snapshot", "compute_partition_stats"}
    assert answers.keys() == PROCEDURES.keys() - {"remove_dangling_deletes", *elsewhere}
    sizes = ("rewritten_bytes_count", "added_bytes_count")  # of files by two writers
    for procedure, (ours, theirs) in answers.items():
        assert ours[:2] == theirs[:2], procedure
        if procedure in ("rewrite_table_path", "compute_table_stats"):
            continue  # names of files; tests/peers compares what they hold
        if procedure == "rewrite_manifests":
            continue  # each engine decides by rules of its own which manifests are worth it
        plain = [[{n: v for n, v in row.items() if n not in sizes} for row in each[2]] for each in (ours, theirs)]
        assert plain[0] == plain[1], procedure
    result = lake.sql("CALL system.remove_dangling_deletes('calls.neve')")
    assert result.output_rows.column_names == ["removed_delete_files_count"]


def test_a_table_is_registered_by_its_metadata_file(lake, tmp_path):
    location = lake.table("db.t").context.iceberg.metadata_location
    other = neve.connect(tmp_path / "other")
    table = other.sql(f"CALL system.register_table('db.again', '{location}')")
    assert table.scan().count() == 3 and other.tables() == ["db.again"]
    assert table.output_rows.to_pylist() == [
        {"current_snapshot_id": ids(lake)[-1], "total_records_count": 3, "total_data_files_count": 3}
    ]
    empty = lake.create_table("db.empty", "id int").context.iceberg.metadata_location
    rows = other.sql(f"CALL system.register_table(table => 'db.e', metadata_file => '{empty}')").output_rows
    assert set(rows.to_pylist()[0].values()) == {None}
    for text, message in (
        (f"CALL system.register_table('db.again', '{location}')", "db.again"),
        ("CALL system.register_table('db.x')", "needs the argument 'metadata_file'"),
        ("CALL system.register_table('db.x', '/no/such.metadata.json')", "such.metadata.json"),
    ):
        with pytest.raises(neve.NeveError, match=message):
            other.sql(text)
