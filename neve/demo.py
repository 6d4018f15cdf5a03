"""`neve demo`: write and change a table under three partition specs, compact it, upgrade it and verify it.

Everything on the screen is read from the table when it is shown, and the rows are checked against plain Python.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.text import Text

from neve.cli.console import Screen
from neve.cli.progress import show_progress
from neve.display.format import plural
from neve.display.html import replace_unprintable
from neve.display.terminal import render_arrow_table
from neve.errors import TableError, UserError
from neve.lake import connect
from neve.table import Table

_START = datetime(2026, 1, 1, tzinfo=UTC)
_REGIONS = ("eu", "us", "apac")
_NAME = "demo.events"
_COLUMNS = "id bigint not null, ts timestamp, region string, amount double"
_ROWS = 120  # per batch
_NEW_YEAR = "region = 'eu' AND ts < TIMESTAMP '2026-01-03'"

Row = dict[str, Any]


def run(console: Console, folder: Path | None = None) -> None:
    """Run the demo in the given folder, or in a temporary one that is removed afterwards."""
    if folder is not None:
        _run(console, folder, folder)
        return
    with tempfile.TemporaryDirectory(prefix="neve-demo-") as scratch:
        _run(console, Path(scratch) / "lake")


def _run(console: Console, folder: Path, reports: Path | None = None) -> None:
    lake = connect(folder)
    if _NAME in lake.tables():
        raise UserError(f"The lake {folder} has a table {_NAME} already. Give --lake another folder.")
    console.print("Starting Spark …", highlight=False)
    lake.spark()
    started = time.monotonic()
    demo = _Demo(console, lake.create_table(_NAME, _COLUMNS, ["days(ts)"], format_version=2))
    demo.write_under_three_specs()
    demo.change_rows()
    demo.compact()
    demo.upgrade_to_v4()
    demo.verify_files()
    # The page stays, in a new folder to which only this user can write.
    demo.write_report((reports or Path(tempfile.mkdtemp(prefix="neve-demo-report-"))) / "neve-demo-report.html")
    console.print(f"\n{time.monotonic() - started:.0f} seconds after the start of Spark.", highlight=False)


@dataclass
class _Demo:
    """One table, and the rows it must have."""

    console: Console
    table: Table
    expected_rows: dict[int, Row] = field(default_factory=dict)

    def write_under_three_specs(self) -> None:
        """Append rows under one spec after the other."""
        self._title("A table by day, with a long history")
        self._append_batches(0, "amount")
        with self._show_step('t.evolve_partitions(add=["region"])'):
            self.table.evolve_partitions(add=["region"])
        self._append_batches(1, "amount")
        with self._show_step(
            't.evolve_partitions(add=["bucket(4, id)"], drop=["days(ts)", "region"]); amount is now price'
        ):
            with self.table.evolve_schema() as change:
                change.rename_column("amount", "price")
            self.table.evolve_partitions(add=["bucket(4, id)"], drop=["days(ts)", "region"])
        for row in self.expected_rows.values():
            row["price"] = row.pop("amount")
        self._append_batches(2, "price")
        specs = self.table.inspect.specs()
        terms = [
            [f["source"] if f["transform"] == "identity" else f"{f['transform']}({f['source']})" for f in fields]
            for fields in specs["fields"].to_pylist()
        ]
        self._grid(pa.table({"spec": specs["spec_id"], "by": [", ".join(t) for t in terms]}))

    def change_rows(self) -> None:
        """Update, delete and merge rows in files of every spec."""
        self._title("Rows change in files of every spec")
        update = self.table.update().set("price", "price * 2").where(_NEW_YEAR)
        self._text(update.explain())
        self._run_change(f"UPDATE SET price = price * 2 WHERE {_NEW_YEAR}", update.execute)
        delete = self.table.delete().where("price > 55").mode("merge-on-read")
        self._run_change("DELETE WHERE price > 55, merge-on-read", delete.execute)
        changes = [{**_row(0, 0, "price"), "price": 1.0}, _row(9, 0, "price")]
        merge = self.table.merge(changes, on="t.id = s.id").when_matched_update_all().when_not_matched_insert_all()
        self._run_change("MERGE two changes", merge.execute)
        for row in self.expected_rows.values():
            row["price"] *= 2 if row["region"] == "eu" and row["ts"] < _START + timedelta(days=2) else 1
        self.expected_rows = {i: row for i, row in self.expected_rows.items() if row["price"] <= 55}
        self.expected_rows |= {row["id"]: row for row in changes}
        self._check_rows()

    def compact(self) -> None:
        """Plan a compaction with a filter, then compact everything."""
        self._title("Compaction: a plan first, with a filter evaluated under every spec")
        planned = self.table.rewrite_data_files().where(_NEW_YEAR).option("min-input-files", 2).plan_with_stats()
        self._text(planned.plan.explain())
        self._text(f"{planned.filter_stats}")
        rewrite = self.table.rewrite_data_files().options({"rewrite-all": True, "remove-dangling-deletes": True})
        self._run_change("rewrite_data_files(), row checksums before and after", rewrite.verify_rows().execute)
        self._check_rows()

    def upgrade_to_v4(self) -> None:
        """Upgrade to format version 4: one tree, with deletion vectors beside their data files."""
        self._title("Upgrade to format version 4")
        with self._show_step("t.upgrade(format_version=4)"):
            self.table.upgrade(format_version=4)
        delete = self.table.delete().where("region = 'us' AND id < 1000").mode("merge-on-read")
        self._run_change("DELETE WHERE region = 'us' AND id < 1000, merge-on-read", delete.execute)
        self.expected_rows = {i: r for i, r in self.expected_rows.items() if r["region"] != "us" or i >= 1000}
        self._check_rows()
        tree = self.table.inspect.tree().select(["kind", "path", "spec_id", "bytes", "files", "rows"])
        self._grid(tree, "The metadata tree")

    def verify_files(self) -> None:
        """Check that every reachable file exists and agrees with the metadata."""
        self._title("Every file checked")
        audit = self.table.verify()
        self._text(str(audit))
        if not audit.is_sound:
            raise TableError("The demo table did not pass its audit.")

    def write_report(self, path: Path) -> None:
        """Write the HTML report of the table."""
        self.table.report(path)
        self._text(f"Report: {path}, {path.stat().st_size:,} bytes")

    # -- steps -------------------------------------------------------------------------------------------------------

    def _append_batches(self, generation: int, column: str) -> None:
        with self._show_step(f"t.append(…) three times, {plural(_ROWS, 'row')} each"):
            for batch in range(3):
                rows = [_row(generation, batch * _ROWS + i, column) for i in range(_ROWS)]
                self.table.append(rows)
                self.expected_rows |= {row["id"]: row for row in rows}

    def _run_change(self, what: str, execute: Callable[[], Any]) -> None:
        with self._show_step(what):
            with show_progress(Screen(), _NAME):
                result = execute()
            self._text(f"  {result.summary}")

    @contextmanager
    def _show_step(self, what: str) -> Iterator[None]:
        """Print a step before it runs, and the state of the table after it."""
        self.console.print(Text(f"> {replace_unprintable(what)}", "cyan"), soft_wrap=True)
        yield
        files, version = self.table.inspect.files(), self.table.context.metadata.format_version
        data = files.filter(pc.equal(files["content"], 0))
        specs, deletes = len(pc.unique(data["spec_id"])), files.num_rows - data.num_rows
        size = pc.sum(data["file_size_in_bytes"]).as_py() or 0
        data_text = f"{plural(data.num_rows, 'data file')} of {size:,} bytes in {plural(specs, 'spec')}"
        self._text(f"  version {version}: {data_text}{f', {deletes} of deletes' if deletes else ''}")

    def _check_rows(self) -> None:
        rows = {row["id"]: row for row in self.table.to_arrow().to_pylist()}
        if rows != self.expected_rows:
            raise TableError(f"The demo read {len(rows)} rows, not the {len(self.expected_rows)} that it expects.")
        self._text(f"  all {plural(len(rows), 'row')} equal those computed in plain Python")

    # -- the screen --------------------------------------------------------------------------------------------------

    def _title(self, text: str) -> None:
        self.console.print(Text(f"\n{text}", "bold"))

    def _text(self, text: str) -> None:
        lines = "\n".join(replace_unprintable(line) for line in text.splitlines())
        self.console.print(Text(lines), soft_wrap=not self.console.is_terminal)

    def _grid(self, table: pa.Table, title: str = "") -> None:
        self.console.print(render_arrow_table(table, title, width=self.console.width))


def _row(generation: int, number: int, column: str) -> Row:
    """Return one event; each batch covers all days, regions and buckets."""
    return {
        "id": generation * 1000 + number,
        "ts": _START + timedelta(days=generation + number % 3, seconds=number),
        "region": _REGIONS[number // 3 % 3],
        column: float(number % 60),
    }
