"""What the verbs share that replace manifests or delete files: a plan, a branch, a commit that says `replace`.

What must be true of a table before maintenance may delete files of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, Self, TypeVar

from neve.commit.actions import Action
from neve.commit.outcome import Outcome
from neve.commit.protocol import commit
from neve.commit.summary import refuse_own_names
from neve.errors import UserError
from neve.ops.context import TableContext


class Explained(Protocol):
    """A plan that can be put in words."""

    def explain(self) -> str:
        """The plan in words."""


P = TypeVar("P", bound=Explained)


@dataclass(frozen=True, kw_only=True)
class _Where:
    """Where the commit goes, after whatever the verb is told."""

    target_branch: str = "main"
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Tidying(_Where, ABC, Generic[P]):
    """A verb on its way that leaves every row as it is."""

    context: TableContext

    def branch(self, name: str) -> Self:
        """Look at a branch instead of main."""
        return replace(self, target_branch=name)

    def snapshot_property(self, name: str, value: str) -> Self:
        """Add a property to the summary of the snapshot."""
        refuse_own_names([name])
        return replace(self, properties={**self.properties, name: value})

    def plan(self) -> P:
        """What would be done, and why; nothing is touched."""
        return self._planned(self.context.refreshed())

    def explain(self) -> str:
        """The plan in words."""
        return self.plan().explain()

    @abstractmethod
    def _planned(self, context: TableContext) -> P:
        """The plan on a state of the table."""

    def _commit(self, context: TableContext, action: Action, owned: Sequence[str] = ()) -> Outcome:
        return commit(
            context.catalog,
            context.iceberg,
            action,
            branch=self.target_branch,
            properties=self.properties,
            environment=context.environment,
            owned=owned,
        )


_LOADED = "snapshot-loading-mode"


def may_delete(context: TableContext) -> bool:
    """Whether maintenance may delete files of a table."""
    return context.properties.gc_enabled and _sees_everything(context)


def refuse_to_delete(context: TableContext, doing: str) -> None:
    """Refuse to delete files of a table that may share them with another, or that is seen in part only."""
    if not context.properties.gc_enabled:
        raise UserError(
            f"Cannot {doing} table {context.name}: its property gc.enabled is false, so its files may belong to "
            "another table. Set it to true if they do not."
        )
    if not _sees_everything(context):
        raise UserError(
            f"Cannot {doing} table {context.name}: the catalog is asked for some of its snapshots only, and files of "
            f"the others would be lost. Connect without {_LOADED!r}."
        )


def _sees_everything(context: TableContext) -> bool:
    return str(context.catalog.properties.get(_LOADED, "all")) == "all"
