"""A lake for compactions as two writers see it, and small tables of every version: (id, region, amount, note)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from neve import Table
from tests.support.tables import Row, append, on_disk
from tests.support.two_writers import TwoWriters

VERSIONS = (1, 2, 3, 4)  # what tests without deletes are played on
WITH_DELETES = (2, 3, 4)
NEWEST = VERSIONS[-1]
COLUMNS = "id bigint, region string, amount double, note string"
REGIONS = ("eu", "us", "asia")
ALL = {"rewrite-all": "true"}
PARTIAL = {"partial-progress.enabled": "true"}


@dataclass
class Place(TwoWriters):
    """A lake for many small tables, each under a name of its own."""

    names: Iterator[int] = field(default_factory=count)
    templates: dict[Any, str] = field(default_factory=dict)
    before: dict[str, set[str]] = field(default_factory=dict)  # files in storage when a table was made

    def create(self, version: int, by: Sequence[str] = (), columns: Any = COLUMNS, **options: Any) -> Table:
        """A new table of no rows."""
        name = f"db.t{next(self.names)}"
        self.theirs.create_table(name, columns, by, format_version=version, **options)
        return self.mine.table(name)

    def table(self, version: int, *files: Iterable[Row], by: Sequence[str] = (), **options: Any) -> Table:
        """A new table with an append for each batch of rows."""
        table = self.create(version, by, **options)
        for rows in files:
            append(table, rows)
        return table

    def again(self, key: Any, make: Callable[[], Table]) -> Table:
        """A table that is made once for each key, and every time again as it was then, under another name.

        Iceberg never changes what is written, so nothing has to be copied.
        """
        if key not in self.templates:
            self.templates[key] = make().iceberg.metadata_location
        name = f"db.t{next(self.names)}"
        self.theirs.register_table(name, self.templates[key])
        self.before[name] = on_disk(self.mine.table(name))
        return self.mine.table(name)

    def left_behind(self, table: Table) -> set[str]:
        """Data files in storage that came since a table was made and that no snapshot of it has."""
        snapshots = table.refresh().context.metadata.snapshots
        known = {p for s in snapshots for p in table.inspect.files(s.snapshot_id)["file_path"].to_pylist()}
        return on_disk(table) - known - self.before.get(table.name, set())

    def other(self, table: Table) -> Table:
        """The same table in the hands of the other writer."""
        return self.theirs.table(table.name)


def some_rows(start: int, number: int, region: str | None = None) -> list[Row]:
    """Rows from an id on, in one region or in all in turn."""
    return [
        {
            "id": i,
            "region": region or REGIONS[i % 3],
            "amount": None if i % 7 == 0 else i / 4,
            "note": None if i % 5 == 0 else f"note {i} é",
        }
        for i in range(start, start + number)
    ]
