"""Lists of version 1 may leave out how many files a manifest holds: tombstones are told by reading, and leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import neve
from tests.support.foreign_tables import checksum, fixture_module, needs_fixtures

COUNTS = [f"{state}_{what}_count" for state in ("added", "existing", "deleted") for what in ("rows", "files")]


@needs_fixtures
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of what makes the tables
@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_table_whose_lists_do_not_count_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], version: int
):
    maker = fixture_module("mktables")
    complete = maker.list_schema

    def uncounted(of: int) -> dict[str, Any]:
        schema: dict[str, Any] = complete(of)
        return {**schema, "fields": [f for f in schema["fields"] if f["name"] not in (*COUNTS, "partitions")]}

    monkeypatch.setattr(maker, "list_schema", uncounted)
    made = maker.Table(str(tmp_path), "t", 1, maker.BASE, ((3, "identity", "region"),))
    for first in (0, 50):
        made.commit(list(made.data(maker.rows(20, first, 1))))
    gone = list(made.files)
    made.spec(((1, "bucket[4]", "id_bucket"),))
    made.commit(list(made.data(maker.rows(20, 100, 3))))
    made.commit(list(made.data(maker.rows(20, 200, 4))), drop=gone)
    made.m["location"] = f"file://{made.m['location']}"
    made.finish("tombstones in a spec that is not the current one")
    capsys.readouterr()

    [metadata] = sorted((tmp_path / "t" / "metadata").glob("*.metadata.json"))[-1:]
    table = neve.connect(tmp_path / "lake").register_table("db.t", metadata.as_uri())
    before = checksum().of(table.scan().to_arrow(engine="arrow"))[0]
    table = table.upgrade(version) if version > 1 else table
    table.append([{"id": -1}])
    table.append([{"id": -2}])
    assert checksum().of(table.refresh().scan().to_arrow(engine="arrow"))[0] == before + 2
