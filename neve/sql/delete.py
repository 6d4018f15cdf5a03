"""DELETE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neve.ops.results import DeleteResult
from neve.sql.options import Options
from neve.sql.reader import Reader
from neve.sql.target import Name, called_short, table_and_branch

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["Delete", "delete"]


@dataclass(frozen=True)
class Delete:
    """`DELETE FROM t WHERE …`."""

    table: Name
    where: str | None = None
    alias: str | None = None

    def run(self, lake: Lake, options: Options) -> DeleteResult:
        """Delete the rows."""
        return self.builder(lake, options).execute()

    def builder(self, lake: Lake, options: Options) -> Any:
        """The statement as the API builds it; nothing has happened yet."""
        table, branch = table_and_branch(lake, self.table)
        statement = options.on_branch(branch).applied(table.delete())
        if self.alias is not None:
            statement = statement.alias(self.alias)
        return statement if self.where is None else statement.where(self.where)


def delete(reader: Reader) -> Delete:
    """Read a DELETE."""
    reader.expect("DELETE", "FROM")
    table, alias = reader.table_name(), reader.alias()
    where = reader.expression(what="a condition") if reader.took("WHERE") else None
    reader.end()
    return Delete(table, where if alias is not None else called_short(where, table), alias)
