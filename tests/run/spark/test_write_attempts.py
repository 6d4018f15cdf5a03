"""Attempts of tasks that fail, die or are run twice: only the files of attempts that succeeded come back.

Tasks are tried again only by a Spark that is started so; it runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STORAGE = """
import os
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyspark import TaskContext

class Bad(PyArrowFileIO):
    begun = 0
    def new_output(self, location):
        self.begun += 1
        context = TaskContext.get()
        if self.begun == 3 and context.attemptNumber() == 0 and context.partitionId() == 0:
            self.go_wrong()
        return super().new_output(location)

class Dies(Bad):
    def go_wrong(self):
        os._exit(9)

class Fails(Bad):
    def go_wrong(self):
        raise OSError(5, "Input/output error")
"""

SCRIPT = """
import json, sys
from pathlib import Path
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from neve.model.partition import Specs
from neve.run.spark.session import local_session
from neve.run.spark.write import write_dataframe
from neve.run.write.target import WriteOptions, WriteTarget

folder = sys.argv[1]
spark = local_session("local[2,3]", {"spark.driver.memory": "1g", "spark.local.dir": folder})
schema = Schema(NestedField(1, "id", LongType(), required=True))
specs = Specs({0: PartitionSpec(spec_id=0)}, 0, (schema,))
for how in ("Dies", "Fails"):
    location = f"{folder}/{how}"
    io = {"py-io-impl": f"storage.{how}"}
    target = WriteTarget(
        schema, specs, 0, location, 2, io_properties=io, options=WriteOptions(target_file_size=50000)
    )
    written = write_dataframe(spark.range(0, 200000, 1, 2), target)
    paths = written["file_path"].to_pylist()
    disk = {str(p) for p in Path(location).rglob("*.parquet")}
    rows = sum(written["record_count"].to_pylist())
    answer = {"rows": rows, "missing": sorted(set(paths) - disk), "left": len(disk - set(paths))}
    Path(f"{location}.json").write_text(json.dumps(answer))
spark.stop()
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    folder = tmp_path_factory.mktemp("attempts")
    root = str(Path(__file__).parents[3])
    (folder / "storage.py").write_text(STORAGE)
    path = os.pathsep.join([root, str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {how: json.loads((folder / f"{how}.json").read_text()) for how in ("Dies", "Fails")}


@pytest.mark.parametrize("how", ["Dies", "Fails"])
def test_files_of_a_bad_attempt_are_not_in_the_answer(answers: dict[str, dict[str, object]], how: str):
    assert answers[how]["rows"] == 200_000
    assert answers[how]["missing"] == []


def test_an_attempt_that_fails_removes_its_files_and_one_that_dies_leaves_them(answers: dict[str, dict[str, object]]):
    assert answers["Fails"]["left"] == 0
    assert answers["Dies"]["left"] == 2
