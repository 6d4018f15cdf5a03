"""`%sql` of JupySQL in a notebook whose Spark session has a lake attached.

`make tools` runs this file in an environment of its own, because JupySQL needs other versions of what the tests use.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import neve

connection = pytest.importorskip("sql.connection", reason="JupySQL is not installed: run `make tools`")
interactive_shell = pytest.importorskip("IPython.core.interactiveshell")

Row = tuple[Any, ...]


class Notebook:
    """The cells of a notebook."""

    def __init__(self, **names: Any) -> None:
        self.shell = interactive_shell.InteractiveShell.instance()
        self.shell.user_ns.update(names)
        self.shell.run_line_magic("load_ext", "sql")
        self.shell.run_line_magic("config", "SqlMagic.displaycon = False")

    def line(self, text: str) -> list[Row]:
        """Run `%sql` with a text; return the rows that it shows."""
        return self._rows(self.shell.run_line_magic("sql", text))

    def cell(self, text: str) -> list[Row]:
        """Run `%%sql` with a text; return the rows that it shows."""
        return self._rows(self.shell.run_cell_magic("sql", "", text))

    def _rows(self, shown: Any) -> list[Row]:
        return [tuple(row) for row in shown or ()]


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    """A notebook with a table that was partitioned by region first, and by buckets of ids then."""
    lake = neve.connect(tmp_path)
    spark = lake.spark()
    neve.attach(spark, lake, name="lake")
    table = lake.create_table("db.sales", "id bigint, region string, v int", ["region"], format_version=2)
    table.append([{"id": 1, "region": "eu", "v": 10}, {"id": 2, "region": "us", "v": 20}])
    table.refresh().evolve_partitions(add=["bucket(4, id)"], drop=["region"])
    table.refresh().append([{"id": 3, "region": "eu", "v": 30}])
    notebook = Notebook(spark=spark)
    notebook.line("spark")
    yield notebook
    connection.ConnectionManager.close_all()  # at the end of the process, it would print on a closed screen
    neve.detach(spark)


def test_lines_and_cells_read_and_change_tables(notebook: Notebook):
    assert notebook.line("SELECT id, v FROM lake.db.sales ORDER BY id") == [(1, 10), (2, 20), (3, 30)]
    notebook.cell("UPDATE lake.db.sales\nSET v = v + 1\nWHERE region = 'eu'")
    notebook.line("INSERT INTO lake.db.sales VALUES (4, 'as', 40)")
    assert notebook.cell("SELECT region, sum(v) AS v\nFROM lake.db.sales\nGROUP BY region\nORDER BY region") == [
        ("as", 40),
        ("eu", 42),
        ("us", 20),
    ]
    assert notebook.line("SELECT count(*) FROM lake.db.sales.files")[0][0] >= 3
    assert notebook.line("DESCRIBE lake.db.sales")[0][:2] == ("id", "bigint")


def test_definitions_and_procedures(notebook: Notebook):
    notebook.cell("CREATE TABLE lake.db.copy USING iceberg PARTITIONED BY (region) AS SELECT * FROM lake.db.sales")
    notebook.line("ALTER TABLE lake.db.copy RENAME COLUMN v TO amount")
    notebook.line("CALL lake.system.rewrite_data_files(table => 'db.copy', options => map('rewrite-all', 'true'))")
    assert notebook.line("SELECT max(amount) FROM lake.db.copy") == [(30,)]
