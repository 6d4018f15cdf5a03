"""ALTER TABLE … RENAME TO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.sql.options import Options
from neve.sql.reader import Reader
from neve.sql.target import Name, identifier
from neve.table import Table

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["RenameTable", "rename_table"]


@dataclass(frozen=True)
class RenameTable:
    """`ALTER TABLE t RENAME TO u`; a name without a namespace stays in that of the table."""

    table: Name
    new_name: Name

    def run(self, lake: Lake, options: Options) -> Table:
        """Give the table another name."""
        options.only("ALTER TABLE")
        old = identifier(lake, self.table)
        new = identifier(lake, self.new_name)
        return lake.rename_table(old, new if len(new) > 1 else (*old[:-1], *new))


def rename_table(reader: Reader, table: Name) -> RenameTable:
    """Read what follows RENAME TO."""
    return RenameTable(table, reader.table_name())
