"""Points in time as callers give them."""

from __future__ import annotations

from datetime import datetime

from neve.errors import UserError

__all__ = ["milliseconds"]


def milliseconds(time: datetime | int, name: str) -> int:
    """Milliseconds since 1970; `name` is what the caller calls the time."""
    try:
        found = round(time.timestamp() * 1000) if isinstance(time, datetime) else time
    except (OverflowError, ValueError):
        raise UserError(f"Cannot use {name} {time}: its clock has no such time.") from None
    if isinstance(found, int) and not isinstance(found, bool) and abs(found) < 2**63:
        return found
    if isinstance(found, int):
        raise UserError(f"Cannot use {name} {found}: give milliseconds since 1970.")
    raise UserError(f"Give {name} as a datetime or as milliseconds since 1970, not as {type(time).__name__}.")
