"""A change of metadata alone, as something that can be shown before it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from neve.cli.carrying import Deed

__all__ = ["MetadataChange"]


@dataclass(frozen=True)
class MetadataChange:
    """What a table is before and after: the same keys in both."""

    title: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def changed(self) -> list[str]:
        """What is not the same."""
        return [key for key in self.after if self.before[key] != self.after[key]]

    def explain(self) -> str:
        """The change in words."""
        lines = [
            f"  {key.replace('_', ' '):<15} {_said(self.before[key])} → {_said(self.after[key])}"
            for key in self.changed
        ]
        return "\n".join([self.title, *(lines or ["  nothing changes"])])

    def deed(self, doing: str, land: Callable[[], object], question: str = "") -> Deed:
        """The change as a verb; it is landed by the function given."""

        def execute() -> dict[str, Any]:
            if self.changed:
                land()
            facts = {"before": self.before, "after": self.after, "changed": self.changed}
            return {**facts, "summary": "only metadata changed" if self.changed else "the table is so already"}

        return Deed(
            doing,
            lambda: self,
            execute,
            facts=lambda plan: {"before": plan.before, "after": plan.after, "changed": plan.changed},
            is_empty=lambda plan: not plan.changed,
            did_nothing=lambda told: not told["changed"],
            question=question,
        )


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)
