"""DROP TABLE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.sql.options import Options
from neve.sql.reader import Reader
from neve.sql.target import Name, find_in, identifier

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["DropTable", "drop_table"]


@dataclass(frozen=True)
class DropTable:
    """`DROP TABLE t`; the files stay where they are, or are deleted with PURGE."""

    table: Name
    if_exists: bool = False
    purge: bool = False

    def run(self, lake: Lake, options: Options) -> None:
        """Forget the table."""
        options.only("DROP TABLE")
        if not self.if_exists or find_in(lake)(self.table) is not None:
            lake.drop_table(identifier(lake, self.table), purge=self.purge)


def drop_table(reader: Reader) -> DropTable:
    """Read a DROP TABLE."""
    reader.expect("DROP", "TABLE")
    if_exists = reader.took("IF", "EXISTS")
    table = reader.table_name()
    purge = reader.took("PURGE")
    reader.end()
    return DropTable(table, if_exists, purge)
