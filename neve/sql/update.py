"""UPDATE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neve.ops.results import UpdateResult
from neve.sql.assignments import Assignment, assignments
from neve.sql.options import Options
from neve.sql.reader import Reader
from neve.sql.target import Name, called_short, table_and_branch

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["Update", "update"]


@dataclass(frozen=True)
class Update:
    """`UPDATE t SET a = …, b = … WHERE …`."""

    table: Name
    assignments: tuple[Assignment, ...]
    where: str | None = None
    alias: str | None = None

    def run(self, lake: Lake, options: Options) -> UpdateResult:
        """Change the rows."""
        return self.builder(lake, options).execute()

    def builder(self, lake: Lake, options: Options) -> Any:
        """The statement as the API builds it; nothing has happened yet."""
        table, branch = table_and_branch(lake, self.table)
        statement = options.on_branch(branch).applied(table.update())
        if self.alias is not None:
            statement = statement.alias(self.alias)
        for each in self.assignments:
            statement = statement.set(each.column, each.value)
        return statement if self.where is None else statement.where(self.where)


def update(reader: Reader) -> Update:
    """Read an UPDATE."""
    reader.expect("UPDATE")
    table, alias = reader.table_name(), reader.alias()
    reader.expect("SET")
    assigned = assignments(reader, "WHERE")
    where = reader.expression(what="a condition") if reader.took("WHERE") else None
    if alias is None:
        assigned, where = tuple(each.calling_short(table) for each in assigned), called_short(where, table)
    return Update(table, assigned, where, alias)
