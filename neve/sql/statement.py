"""What every statement is: a value that can be run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from neve.sql.options import Options

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["Statement"]


class Statement(Protocol):
    """A statement that was read from text; nothing has happened yet."""

    def run(self, lake: Lake, options: Options) -> Any:
        """Do what it says."""
