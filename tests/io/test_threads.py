"""How many files are read at once: storage that answers late is asked many things together, a disk is not."""

from __future__ import annotations

from threading import Barrier

import pytest
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from neve.io.parallel import map_in_threads, reader_count, usable_cores

AWAY = ["s3://bucket/a.avro", "s3://bucket/b.avro"]


def test_files_away_are_waited_for_together():
    meeting = Barrier(8, timeout=30)
    found = map_in_threads(lambda n: (n, meeting.wait())[0], range(8), reader_count(PyArrowFileIO(), AWAY))
    assert found == [*range(8)]


@pytest.mark.parametrize("paths", [["/t/a.avro"], ["file:///t/a.avro"], []], ids=["plain", "file", "none"])
def test_a_disk_has_a_reader_a_core(paths: list[str]):
    assert reader_count(PyArrowFileIO(), paths) == usable_cores()


def test_a_disk_with_little_to_read_has_one_reader_and_storage_away_many():
    asked = [([path], size) for path in ("/t/a.avro", AWAY[0]) for size in (1 << 10, 1 << 30)]
    here_few, here_many, away_few, away_many = (reader_count(PyArrowFileIO(), paths, size) for paths, size in asked)
    assert (here_few, here_many) == (1, usable_cores()) and away_few == away_many >= 8


def test_files_of_a_storage_nobody_knows_are_away():
    class Elsewhere(FileIO):
        new_input = new_output = delete = None

    assert reader_count(Elsewhere(), ["/t/a.avro"]) >= 8
