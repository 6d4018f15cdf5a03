"""The jobs of the two Spark engines: the same tables, rows, settings and statements for both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.comparison.create_inputs import NESTED_DDL, WIDE_DDL
from bench.comparison.engine import Job
from bench.comparison.inputs import PARTS, Inputs, Lines
from bench.comparison.jobs import CHANGES, MODES
from bench.comparison.statements import (
    CHANGE_TEXTS,
    DELETE_OTHERS,
    LINE_SUMS,
    NESTED_SUMS,
    ONE_YEAR,
    UPDATE_WIDE,
    WIDE_SUMS,
    checksum,
)
from bench.lineitem import DDL

SETTINGS = {"spark.driver.memory": "4g", "spark.driver.maxResultSize": "3g"}
MODE_PROPERTIES = ("write.update.mode", "write.delete.mode", "write.merge.mode")
WITH_DELETES = "lineitem with deletes"  # a state of lineitem
CHECKED_SUMS = {"wide": WIDE_SUMS, "nested": NESTED_SUMS}  # of other tables: those of lineitem


class SparkEngine(ABC):
    """A Spark with Iceberg tables, named `bench.t` in its SQL."""

    name: str
    spark: SparkSession

    @abstractmethod
    def sql(self, text: str) -> Any:
        """Run a statement."""

    @abstractmethod
    def read(self, table: str, where: str | None = None) -> DataFrame:
        """Return rows of a table."""

    @abstractmethod
    def append(self, table: str, rows: DataFrame) -> None:
        """Append rows to a table."""

    @abstractmethod
    def exists(self, table: str) -> bool:
        """Tell whether a table exists."""

    @abstractmethod
    def current_snapshot(self, table: str) -> int:
        """Return the current snapshot of a table."""

    @abstractmethod
    def upgrade_spec(self, table: str) -> None:
        """Move all rows to the newest spec."""

    @abstractmethod
    def register(self, table: str, metadata_location: str) -> None:
        """Add a table to the catalog."""

    @abstractmethod
    def planned_files(self, table: str) -> int:
        """Return the number of files that match a filter."""

    @abstractmethod
    def commit_one_row(self, table: str) -> None:
        """Append one row, in the way that costs least."""

    def hand_over(self, table: str, inputs: Inputs) -> None:  # noqa: B027 - only Névé has readers
        """Name the table for engines that only read."""

    def spark_jobs(self) -> int:
        """Return the number of jobs that Spark has run so far."""
        scheduler: Any = self.spark.sparkContext._jsc.sc().dagScheduler()
        return int(scheduler.numTotalJobs())

    def stop(self) -> None:
        self.spark.stop()


class SparkWork:
    """The tables of one size, and the jobs on them."""

    def __init__(self, engine: SparkEngine, inputs: Inputs) -> None:
        self.engine, self.inputs = engine, inputs
        self.starts: dict[str, int] = {}  # the first snapshot with rows of each table that exists
        self.makers: dict[str, Callable[[], None]] = {
            "lineitem": partial(self.make_evolved, "lineitem", inputs.whole),
            "third": partial(self.make_evolved, "third", inputs.third),
            "plain": self.make_plain,
            "wide": partial(self.make_from, "wide", WIDE_DDL),
            "small": self.make_small_files,
        }

    # -- jobs --------------------------------------------------------------------------------------------------------

    def jobs(self) -> dict[str, Job]:
        """Return the jobs that both engines can do."""
        return {
            **self.appends(),
            **self.scans(),
            **self.changes(),
            "UPDATE CoW plain": self.change_job("plain", CHANGE_TEXTS["UPDATE"], "CoW"),
            "DELETE CoW plain": self.change_job("plain", CHANGE_TEXTS["DELETE"], "CoW"),
            **{f"UPDATE of a wide table {mode}": self.change_job("wide", UPDATE_WIDE, mode) for mode in MODES},
            "compaction": self.job("small", self.compact),
            "spec upgrade": self.job("lineitem", lambda: self.engine.upgrade_spec(self.name("lineitem"))),
            "add_files": self.add_files_job(),
            **self.metadata_jobs(),
        }

    def appends(self) -> dict[str, Job]:
        def append_job(table: str) -> Job:
            return Job(self.makers[table], partial(self.drop, table), partial(self.content, table))

        rows = partial(self.parquet, self.inputs.parquet("nested"))
        nested = Job(
            lambda: self.engine.append(self.name("nested"), rows()),
            lambda: self.create_again("nested", NESTED_DDL, "days(placed)"),
            partial(self.content, "nested"),
        )
        return {
            "append": append_job("lineitem"),
            "append plain": append_job("plain"),
            "append of nested rows": nested,
        }

    def scans(self) -> dict[str, Job]:
        table = self.name("lineitem")
        read, content = partial(self.read_and_discard, table), partial(self.content, "lineitem")
        ready = partial(self.restore, "lineitem")
        return {
            "scan": Job(read, ready, content),
            "scan of a year": Job(partial(read, ONE_YEAR), ready, partial(content, ONE_YEAR)),
            "scan with deletes": Job(read, self.restore_with_deletes, content),
        }

    def changes(self) -> dict[str, Job]:
        """Changes merge-on-read of the whole table, and copy-on-write of the smaller one."""
        tables = {"MoR": ("lineitem", self.inputs.whole), "CoW": ("third", self.inputs.third)}
        jobs = {
            f"{change} {mode}": self.change_job(table, self.change_text(change, lines), mode)
            for mode, (table, lines) in tables.items()
            for change in CHANGES
        }
        update = self.change_job("lineitem", CHANGE_TEXTS["UPDATE"], "MoR")
        return {**jobs, "UPDATE with deletes MoR": Job(update.run, self.restore_with_deletes, update.answer)}

    def add_files_job(self) -> Job:
        """Return a job that takes in files where they are: each time with another table, for none may delete them."""
        numbers, current = count(), [""]

        def ready() -> None:
            current[0] = f"added{next(numbers)}"
            self.create(current[0], "id bigint, price double, note string, region string", "region")

        def add() -> None:
            source = f"`parquet`.`{self.inputs.foreign_folder}`"
            self.engine.sql(f"CALL system.add_files(table => '{self.name(current[0])}', source_table => '{source}')")

        def answer() -> str:
            rows = self.engine.read(self.name(current[0]))
            return checksum(rows.selectExpr("count(*)", "sum(id)", "count(DISTINCT region)").first())

        return Job(add, ready, answer)

    def metadata_jobs(self) -> dict[str, Job]:
        jobs = {}
        for files in self.inputs.growth:
            table = f"bench.many_{files}"
            ready = partial(self.register, table, files)
            jobs[f"plan {files} files"] = Job(partial(self.engine.planned_files, table), ready)
            jobs[f"commit to {files} files"] = Job(partial(self.engine.commit_one_row, table), ready)
        return jobs

    def job(self, table: str, run: Callable[[], Any]) -> Job:
        """Return a job that begins with the table as it was made."""
        return Job(run, partial(self.restore, table), partial(self.content, table))

    def change_job(self, table: str, text: str, mode: str) -> Job:
        job = self.job(table, lambda: self.engine.sql(text.replace("{table}", self.name(table))))

        def ready() -> None:
            job.ready()
            self.set_mode(table, mode)

        return Job(job.run, ready, job.answer)

    def change_text(self, change: str, lines: Lines) -> str:
        """Return the statement of a change; the source of a MERGE is a view."""
        source = f"{change.replace(' ', '_')}_{lines.folder.parent.name}_{lines.folder.name}"
        if change.startswith("MERGE"):
            path = lines.changes if change == "MERGE" else lines.stream
            self.parquet(path).createOrReplaceTempView(source)
        keys = ", ".join(str(key) for key in lines.keys)
        return CHANGE_TEXTS[change].replace("{source}", source).replace("{keys}", keys)

    # -- tables ------------------------------------------------------------------------------------------------------

    def name(self, table: str) -> str:
        return f"bench.{table}_{self.inputs.name}"

    def parquet(self, *paths: str) -> DataFrame:
        return self.engine.spark.read.parquet(*paths)

    def create(self, table: str, ddl: str, by: str = "", **properties: str) -> None:
        """Create an empty table in format version 2."""
        partitions = f"PARTITIONED BY ({by})" if by else ""
        texts = ", ".join(f"'{name}' = '{value}'" for name, value in {"format-version": "2", **properties}.items())
        self.engine.sql(f"CREATE TABLE {self.name(table)} ({ddl}) USING iceberg {partitions} TBLPROPERTIES ({texts})")

    def create_again(self, table: str, ddl: str, by: str = "") -> None:
        self.drop(table)
        self.create(table, ddl, by)

    def make_evolved(self, table: str, lines: Lines) -> None:
        """Write the parts of the rows under three specs."""
        name = self.name(table)
        self.create(table, DDL, "l_returnflag")
        self.engine.append(name, self.parquet(lines.part(0)))
        self.engine.sql(f"ALTER TABLE {name} REPLACE PARTITION FIELD l_returnflag WITH years(l_shipdate)")
        self.engine.append(name, self.parquet(lines.part(1)))
        self.engine.sql(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(4, l_orderkey)")
        self.engine.append(name, self.parquet(lines.part(2)))

    def make_plain(self) -> None:
        self.create("plain", DDL)
        lines = self.inputs.third
        self.engine.append(self.name("plain"), self.parquet(*(lines.part(number) for number in range(PARTS))))

    def make_from(self, table: str, ddl: str) -> None:
        self.create(table, ddl)
        self.engine.append(self.name(table), self.parquet(self.inputs.parquet(table)))

    def make_small_files(self) -> None:
        """Append rows in many tasks, each of which writes a file."""
        self.create("small", DDL, **{"write.distribution-mode": "none"})
        rows = self.parquet(self.inputs.whole.part(0)).repartition(self.inputs.small_files)
        self.engine.append(self.name("small"), rows)

    def register(self, table: str, files: int) -> None:
        """Add a table of many files to the catalog, if it is not there."""
        if not self.engine.exists(table):
            self.engine.register(table, (self.inputs.table_of(files) / "metadata.txt").read_text())

    def drop(self, table: str) -> None:
        self.starts.pop(table, None)
        self.engine.sql(f"DROP TABLE IF EXISTS {self.name(table)} PURGE")

    def restore(self, table: str) -> None:
        """Bring a table back to the rows it was made with; make it if it does not exist."""
        if table == "lineitem":
            self.starts.pop(WITH_DELETES, None)  # a rollback cannot return to it
        if table not in self.starts:
            if not self.engine.exists(self.name(table)):
                self.makers[table]()
            self.starts[table] = self.engine.current_snapshot(self.name(table))
        self.roll_back(table, self.starts[table])

    def restore_with_deletes(self) -> None:
        """Bring lineitem to the state after one row in a hundred was deleted merge-on-read."""
        if WITH_DELETES not in self.starts:
            self.restore("lineitem")
            self.set_mode("lineitem", "MoR")
            self.engine.sql(DELETE_OTHERS.format(table=self.name("lineitem")))
            self.starts[WITH_DELETES] = self.engine.current_snapshot(self.name("lineitem"))
        self.roll_back("lineitem", self.starts[WITH_DELETES])

    def roll_back(self, table: str, snapshot: int) -> None:
        name = self.name(table)
        if self.engine.current_snapshot(name) != snapshot:
            self.engine.sql(f"CALL system.rollback_to_snapshot('{name}', {snapshot})")
        if table == "lineitem":
            self.engine.hand_over(name, self.inputs)

    def set_mode(self, table: str, mode: str) -> None:
        properties = ", ".join(f"'{name}' = '{MODES[mode]}'" for name in MODE_PROPERTIES)
        self.engine.sql(f"ALTER TABLE {self.name(table)} SET TBLPROPERTIES ({properties})")

    # -- work --------------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        options = "options => map('rewrite-all', 'true')"
        self.engine.sql(f"CALL system.rewrite_data_files(table => '{self.name('small')}', {options})")

    def read_and_discard(self, table: str, where: str | None = None) -> None:
        self.engine.read(table, where).write.format("noop").mode("overwrite").save()

    def content(self, table: str, where: str | None = None) -> str:
        sums = CHECKED_SUMS.get(table, LINE_SUMS)
        rows = self.engine.read(self.name(table), where)
        return checksum(rows.selectExpr("count(*)", *(f"sum({one})" for one in sums)).first())
