"""On a real terminal: visible progress, questions, and Ctrl-C, which leaves the table unchanged."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

import neve
from neve.cli.progress import ProgressDisplay
from neve.ops.events import Progress, Step
from tests.support.command_line import Lake, unchanged
from tests.support.terminal import Terminal

PARTITIONS = 60


@pytest.fixture
def many(lake: Lake) -> Lake:
    """Two small files in each of many partitions: several waves of groups."""
    table = neve.connect(lake.folder).create_table("db.events", "id bigint, part bigint", ["part"])
    for start in (0, 1000):
        table.append(pa.table({"id": range(start, start + PARTITIONS), "part": range(PARTITIONS)}))
    return lake


def test_progress_is_seen_and_an_interrupt_leaves_the_table_unchanged(many: Lake):
    compact = ["compact", "db.events", "--option", "min-input-files=2", "--lake", str(many.folder)]
    before = many.table()
    with Terminal(compact) as terminal:
        terminal.until(r"start Spark")
        terminal.until(r"groups [1-9]\d*/60 +files \d+/120 +[\d.]+ kB of [\d.]+ kB +[\d.]+ \w+/s")
        assert "left" in terminal.text and "%" in terminal.text
        terminal.press("\x03")
        terminal.until(r"Interrupted\. Table db\.events is unchanged: snapshot \d+ is current\.")
        assert terminal.ended() == 130
    assert "Traceback" not in terminal.text and "WARN" not in terminal.text
    after = many.table()
    assert after.context.iceberg.metadata_location == before.context.iceberg.metadata_location
    assert after.inspect.files() == before.inspect.files() and after.verify().is_sound
    assert len(list(many.folder.rglob("*.parquet"))) <= 2 * PARTITIONS + 8, "what earlier waves wrote is gone"


@pytest.mark.parametrize("seconds", [0, 2])
def test_an_interrupt_while_spark_starts_is_an_interrupt(many: Lake, seconds: float):
    compact = ["compact", "db.events", "--option", "min-input-files=2", "--lake", str(many.folder)]
    with Terminal(compact) as terminal:
        terminal.until(r"start Spark")
        time.sleep(seconds)
        terminal.press("\x03")
        terminal.until(r"Interrupted\.")
        assert terminal.ended() == 130
    assert "Traceback" not in terminal.text and "unknown" not in terminal.text.lower()


def test_a_question_can_be_answered_with_no(lake: Lake):
    lake.lived()
    with unchanged(lake), Terminal(["upgrade", "db.events", "--to", "4", "--lake", str(lake.folder)]) as terminal:
        terminal.until(r"format version +2 → 4")
        terminal.until(r"There is no way back\. \[y/N\]")
        terminal.press("n\n")
        terminal.until("Nothing was changed")
        assert terminal.ended() == 1


# --- what is drawn ---


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def counts(watch: ProgressDisplay) -> str:
    return "   ".join(watch._counts())


def test_the_rate_and_the_time_left_follow_the_bytes():
    watch = ProgressDisplay("Compacting", clock=Clock())
    watch.on_event(Step("plan"))
    assert watch.fraction_done is None
    watch.on_event(
        Progress(groups_done=1, groups=4, bytes_done=25_000_000, bytes=100_000_000, seconds=5, files_done=3, files=9)
    )
    assert watch.fraction_done == 0.25 and watch._remaining_time(watch.fraction_done) == "0:15 left"
    assert "groups 1/4   files 3/9   25.0 MB of 100.0 MB   5.0 MB/s" in counts(watch)
    watch.on_event(Step("commit"))
    assert "groups 1/4" in counts(watch), "what was done stays in sight while it is committed"
    watch.on_event(Step("look at the files", 50, 200, "files"))
    assert watch.fraction_done == 0.25 and "files 50/200" in counts(watch)
