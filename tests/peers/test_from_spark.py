"""What docs/reference/from-spark.md says is the same: the same text in a session with either engine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

import neve
from neve.errors import NeveError
from neve.io.parquet_footer import parse_statistics, read_footer
from tests.peers.engine_comparison import SharedLake
from tests.peers.spark import SparkSaid
from tests.peers.test_definitions import definition
from tests.support.coverage import IS_LONG
from tests.support.spark_sessions import names_in

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "from-spark.md"
ROW = re.compile(r"^\| (?P<typed>.+?) \| (?P<here>same|differs|no)\b", re.MULTILINE)
MIN_SHARE = 0.95
NAME_MAPPING = "schema.name-mapping.default"
COLUMNS = "(id bigint NOT NULL, region string, ts timestamp, n int, s struct<x: int, y: string>)"
ROWS = (
    "(1, 'eu', TIMESTAMP '2024-01-01 10:00:00', 10, named_struct('x', 1, 'y', 'a')), (2, 'us', NULL, 20, NULL), "
    "(3, 'eu', TIMESTAMP '2024-02-01 00:00:00', 30, named_struct('x', NULL, 'y', 'cc'))",
    "(4, 'us', TIMESTAMP '2023-12-31 23:59:59', NULL, NULL), (5, 'as', NULL, 50, named_struct('x', 5, 'y', NULL))",
)
NAMES = count()


def read_examples(text: str) -> dict[str, list[str]]:
    """Return the statements of each example by the row of the page that it is about."""
    lines = [line for line in text.replace("\\\n", "").splitlines() if line and not line.startswith("#")]
    defined, examples = dict[str, str](), dict[str, list[str]]()
    for line in lines:
        name, is_definition, value = line.partition(" = ")
        if line.startswith("= "):
            examples[line.removeprefix("= ")] = []
        elif not examples and is_definition:
            defined[name] = value
        else:
            examples[[*examples][-1]].append(defined.get(line, line))
    return examples


EXAMPLES = read_examples(Path(__file__).with_name("from_spark.txt").read_text())
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Side:
    """One of the engines, with a table of its own."""

    lake: neve.Lake
    name: str
    folder: Path  # of rows that are not in the table
    own: Path
    sql: Callable[[str], pa.Table]
    python: Callable[[str], pa.Table]
    outcome: dict[str, Any] = field(default_factory=dict)
    context: Any = None  # the newest state of the table

    @property
    def table(self) -> neve.Table:
        return self.lake.table(f"from_spark.{self.name}")

    def run(self, lines: list[str]) -> dict[str, Any]:
        """Run an example; return what came of it, without what is different in each run."""
        found = None
        for line in lines:
            text = self.filled_in(line)
            if text.startswith("! show "):
                self.outcome[text.replace(self.name, "t")] = self.state(self.lake.table(text.removeprefix("! show ")))
            elif text.startswith("! drop "):
                self.lake.drop_table(text.removeprefix("! drop "))
            elif text.startswith("! refused "):
                with pytest.raises((NeveError, SparkSaid, PySparkException)) as refused:
                    self.sql(text.removeprefix("! refused "))
                assert "pars" not in str(refused.value).lower()  # it was understood
            else:
                found = self.python(text.removeprefix("> ")) if text.startswith("> ") else self.sql(text)
        assert found is not None
        shown = [found.column_names, [[*row.values()] for row in found.to_pylist()]]
        return self.outcome | {"result": self.masked(shown), "table": self.state(self.table)}

    def filled_in(self, line: str) -> str:
        with suppress(NeveError):  # an example may have renamed the table
            self.context = self.table.context
        context = self.context
        snapshots = context.metadata.snapshots
        times = [datetime.fromtimestamp(s.timestamp_ms / 1000, UTC) for s in snapshots]
        names = {
            "t": f"neve.from_spark.{self.name}", "n": f"from_spark.{self.name}", "name": self.name,
            "ids": [s.snapshot_id for s in snapshots], "ms": [s.timestamp_ms for s in snapshots],
            "at": [f"{time:%Y-%m-%d %H:%M:%S.%f}Z" for time in times], "folder": self.folder, "own": f"file://{self.own}",
            "metadata": context.iceberg.metadata_location, "location": context.metadata.location,
        }  # fmt: skip
        return line.format(**names)

    def state(self, table: neve.Table) -> Any:
        metadata = table.refresh().context.metadata
        rows = sorted(map(str, table.to_arrow().to_pylist()))
        defined = definition(metadata)
        files = sorted({format_of(path) for path in table.inspect.data_files()["file_path"].to_pylist()})
        if (mapping := defined["properties"].get(NAME_MAPPING)) is not None:
            defined["properties"][NAME_MAPPING] = json.loads(mapping)
        return self.masked([rows, defined, files, [s.summary.operation.value for s in metadata.snapshots if s.summary]])

    def masked(self, value: Any) -> Any:
        """Replace what two tables cannot have in common: names, ids, the time of day, random parts of paths."""
        snapshots = self.table.context.metadata.snapshots
        ids = {s.snapshot_id: f"snapshot {n}" for n, s in enumerate(snapshots)}
        ids |= {s.timestamp_ms: f"time {n}" for n, s in enumerate(snapshots)}
        if isinstance(value, list | tuple):
            return [self.masked(each) for each in value]
        if isinstance(value, dict):
            return {key: self.masked(each) for key, each in value.items()}
        if isinstance(value, datetime):
            return "now" if value.replace(tzinfo=value.tzinfo or UTC) > NOW else str(value)
        if isinstance(value, str):
            value = value.replace("file:///", "file:/")  # both are right
            value = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=/)[0-9]{5}-", "*", value)
            for snapshot_id, shown in ids.items():
                value = value.replace(str(snapshot_id), shown)
            return value.replace(self.name, "t").replace(str(self.own), "own")
        return ids.get(value, value) if isinstance(value, int) else value


def format_of(path: str) -> tuple[str, bool]:
    """How a data file is compressed, and whether it has a bloom filter."""
    file = Path(unquote(urlsplit(path).path))
    with file.open("rb") as stream:
        chunks = parse_statistics(read_footer(stream, file.stat().st_size, path))[0]
    compression = pq.read_metadata(file).row_group(0).column(0).compression
    return compression, any(chunk.bloom_filter_start for chunk in chunks)


@pytest.fixture
def sides(shared_lake: SharedLake, tmp_path: Path) -> Iterator[list[Side]]:
    lake, other = shared_lake.lake, shared_lake.spark
    spark = lake.spark()
    before = names_in(spark)
    neve.attach(spark, lake, name="neve")
    kept: dict[str, Any] = {}

    def python(code: str) -> pa.Table:
        names = {"spark": spark, "F": functions, "result": spark.range(0)} | kept
        exec(code, names)
        kept["df"] = names.get("df")
        return names["result"].toArrow()

    engines = (lambda text: spark.sql(text).toArrow(), python), (other.sql, other.python)
    sides = []
    for engine, (run_sql, run_python) in zip(("ours", "theirs"), engines, strict=True):
        own = tmp_path / engine
        own.mkdir()
        sides.append(Side(lake, f"f{next(NAMES)}_{engine}", tmp_path / "files", own, run_sql, run_python))
        properties = "TBLPROPERTIES ('format-version' = '2', 'write.parquet.compression-codec' = 'zstd')"
        lake.sql(f"CREATE TABLE from_spark.{sides[-1].name} {COLUMNS} PARTITIONED BY (region) {properties}")
        for rows in ROWS:
            lake.sql(f"INSERT INTO from_spark.{sides[-1].name} VALUES {rows}")
    more = spark.sql(f"SELECT * FROM VALUES {ROWS[0]} AS more(id, region, ts, n, s)")
    more = more.withColumn("id", functions.expr("id + 30L"))
    more.coalesce(1).write.partitionBy("region").parquet(str(tmp_path / "files"))
    yield sides
    neve.detach(spark)
    for name in names_in(spark) - before:
        spark.catalog.dropTempView(name)


def claims() -> dict[str, str]:
    return {row["typed"]: row["here"] for row in ROW.finditer(PAGE.read_text())}


def test_every_claim_has_an_example():
    same = [typed for typed, here in claims().items() if here == "same"]
    assert same == list(EXAMPLES)
    assert len(same) / len(claims()) >= MIN_SHARE


@pytest.mark.parametrize("typed", EXAMPLES if IS_LONG else list(EXAMPLES)[::9])
def test_both_engines_do_the_same(sides: list[Side], typed: str):
    ours, theirs = (side.run(EXAMPLES[typed]) for side in sides)
    for part in ours:
        assert ours[part] == theirs[part], part
