"""What a statement is told beside its text: `lake.sql("UPDATE …", mode="merge-on-read")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from neve.errors import UnknownName, UserError

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """The words of the builders, for statements that change rows; None leaves it to the table's properties."""

    mode: str | None = None  # copy-on-write or merge-on-read
    isolation: str | None = None  # serializable or snapshot
    branch: str | None = None  # the branch to write to
    reruns: int | None = None  # how often to run again after a conflict
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """The options of a call; an unknown one is refused."""
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                raise UnknownName("option", name, known, "a call of sql")
        return cls(**given)

    def only(self, statement: str, *names: str) -> Options:
        """The same options, if the statement takes all that are set."""
        for f in fields(self):
            is_set = getattr(self, f.name) != getattr(Options(), f.name)
            if is_set and f.name not in names:
                takes = f"It takes {', '.join(names)}." if names else "It takes none."
                raise UserError(f"{statement} takes no option {f.name!r}. {takes}")
        return self

    def on_branch(self, branch: str | None) -> Options:
        """The same options for a table whose name says a branch."""
        if branch is None:
            return self
        if self.branch not in {None, branch}:
            raise UserError(f"The name of the table says branch {branch!r}, the option {self.branch!r}. Say one.")
        return replace(self, branch=branch)

    def applied(self, statement: Any) -> Any:
        """A statement that changes rows, with these options."""
        for name in ("mode", "isolation", "branch", "reruns"):
            value = getattr(self, name)
            statement = statement if value is None else getattr(statement, name)(value)
        for name, value in self.snapshot_properties.items():
            statement = statement.snapshot_property(name, value)
        return statement
