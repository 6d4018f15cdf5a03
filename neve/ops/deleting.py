"""What must be true of a table before maintenance may delete files of it."""

from __future__ import annotations

from neve.errors import UserError
from neve.ops.context import TableContext

__all__ = ["may_delete", "refuse_to_delete"]

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
