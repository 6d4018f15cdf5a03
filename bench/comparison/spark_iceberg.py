"""Spark with Iceberg's own runtime."""

from __future__ import annotations

from typing import Any

from bench.comparison.engine import Job
from bench.comparison.inputs import ONE_IN_A_HUNDRED, ONE_YEAR, PLANNED, Inputs
from bench.comparison.jobs import MODES
from bench.comparison.sparks import SETTINGS, content, in_parts, read_and_discard
from bench.lineitem import DDL
from neve.run.spark.session import local_session
from tests.peers.jars import ICEBERG, SQLITE, path_of

CATALOG = "peer"
MODE_OF = {"UPDATE": "write.update.mode", "DELETE": "write.delete.mode", "MERGE": "write.merge.mode"}


class SparkIceberg:
    """Iceberg's runtime in a Spark with the same settings; its catalog is a SQLite file too."""

    name = f"Spark + Iceberg {ICEBERG.version}"

    def __init__(self, inputs: Inputs) -> None:
        jars = [str(path_of(jar)) for jar in (ICEBERG, SQLITE)]
        home = inputs.folder / "spark-iceberg"
        home.mkdir()
        prefix = f"spark.sql.catalog.{CATALOG}"
        options = {
            **SETTINGS,
            "spark.jars": ",".join(jars),
            "spark.driver.extraClassPath": ":".join(jars),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{prefix}.uri": f"jdbc:sqlite:{home}/catalog.db",
            f"{prefix}.warehouse": f"file://{home}",
            f"{prefix}.jdbc.schema-version": "V1",
        }
        self.spark = local_session("local[2]", options)

    def jobs(self, inputs: Inputs) -> dict[str, Job]:
        on = _Work(self, inputs)
        changes = {
            f"{verb} {short}": Job(
                lambda v=verb: on.change(v),  # type: ignore[misc]
                lambda v=verb, m=mode: on.restore_table(v, m),  # type: ignore[misc]
                lambda: content(self.spark.table(on.table)),
            )
            for short, mode in MODES.items()
            for verb in ("UPDATE", "DELETE", "MERGE")
        }
        return {
            "append": Job(on.append, answer=lambda: content(self.spark.table(on.table))),
            "scan": Job(lambda: read_and_discard(self.spark.table(on.table))),
            "scan of a year": Job(lambda: read_and_discard(self.spark.table(on.table).where(ONE_YEAR))),
            **changes,
            "compaction": Job(
                lambda: on.rewrite(on.small), on.make_small_files, lambda: content(self.spark.table(on.small))
            ),
            "spec upgrade": Job(
                lambda: on.rewrite(on.table), on.restore_table, lambda: content(self.spark.table(on.table))
            ),
            **{
                f"plan {n} files": Job(lambda n=n: on.planned_files(n), lambda n=n: on.table_of_many_files(n))
                for n in inputs.growth
            },  # type: ignore[misc]
            **{
                f"commit to {n} files": Job(lambda n=n: on.commit(n), lambda n=n: on.table_of_many_files(n))
                for n in inputs.growth
            },  # type: ignore[misc]
        }

    def stop(self) -> None:
        self.spark.stop()


class _Work:
    """The tables of one size."""

    def __init__(self, engine: SparkIceberg, inputs: Inputs) -> None:
        self.spark, self.inputs = engine.spark, inputs
        self.table, self.small = (f"{CATALOG}.bench.{name}_{inputs.name}" for name in ("lineitem", "small"))
        self.start: int | None = None

    def rows(self, part: int) -> Any:
        return self.spark.read.parquet(self.inputs.part(part))

    def create(self, table: str, by: str, properties: str) -> None:
        self.spark.sql(f"CREATE TABLE {table} ({DDL}) USING iceberg {by} TBLPROPERTIES ({properties})")

    def append(self) -> None:
        self.create(self.table, "PARTITIONED BY (l_returnflag)", "'format-version' = '2'")
        self.rows(0).writeTo(self.table).append()
        self.spark.sql(f"ALTER TABLE {self.table} REPLACE PARTITION FIELD l_returnflag WITH years(l_shipdate)")
        self.rows(1).writeTo(self.table).append()
        self.spark.sql(f"ALTER TABLE {self.table} ADD PARTITION FIELD bucket(4, l_orderkey)")
        self.rows(2).writeTo(self.table).append()
        self.start = self.current()

    def current(self) -> int:
        found = self.spark.sql(f"SELECT snapshot_id FROM {self.table}.refs WHERE name = 'main'").first()
        return int(found[0]) if found else 0

    def restore_table(self, verb: str = "", mode: str = "") -> None:
        if verb:
            self.spark.sql(f"ALTER TABLE {self.table} SET TBLPROPERTIES ('{MODE_OF[verb]}' = '{mode}')")
        if self.start is not None and self.current() != self.start:
            name = self.table.removeprefix(f"{CATALOG}.")
            self.spark.sql(f"CALL {CATALOG}.system.rollback_to_snapshot('{name}', {self.start})")

    def change(self, verb: str) -> None:
        match verb:
            case "UPDATE":
                text = f"UPDATE {self.table} SET l_extendedprice = l_extendedprice + 1 WHERE {ONE_IN_A_HUNDRED}"
            case "DELETE":
                text = f"DELETE FROM {self.table} WHERE {ONE_IN_A_HUNDRED}"
            case _:
                text = (
                    f"MERGE INTO {self.table} t USING parquet.`{self.inputs.changes}` s "
                    "ON t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber "
                    "WHEN MATCHED THEN UPDATE SET t.l_extendedprice = s.price"
                )
        self.spark.sql(text)

    def make_small_files(self) -> None:
        self.create(self.small, "", "'format-version' = '2', 'write.distribution-mode' = 'none'")
        in_parts(self.rows(0), self.inputs.small_files).writeTo(self.small).append()

    def rewrite(self, table: str) -> None:
        name = table.removeprefix(f"{CATALOG}.")
        options = "options => map('rewrite-all', 'true')"
        self.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{name}', {options})")

    def table_of_many_files(self, files: int) -> str:
        """Register a table of many files in the catalog."""
        name = f"bench.many_{files}"
        if not self.spark.catalog.tableExists(f"{CATALOG}.{name}"):
            location = (self.inputs.table_of(files) / "metadata.txt").read_text()
            call = f"{CATALOG}.system.register_table(table => '{name}', metadata_file => '{location}')"
            self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.bench")
            self.spark.sql(f"CALL {call}")
        return f"{CATALOG}.{name}"

    def planned_files(self, files: int) -> int:
        return len(self.spark.table(self.table_of_many_files(files)).where(PLANNED).inputFiles())

    def commit(self, files: int) -> None:
        self.spark.sql(f"INSERT INTO {self.table_of_many_files(files)} (id, region) VALUES (1, 'r01')")
