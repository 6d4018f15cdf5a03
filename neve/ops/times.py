"""Points in time as callers give them."""

from __future__ import annotations

from datetime import datetime

from neve.errors import UserError

__all__ = ["milliseconds"]


def milliseconds(time: datetime | int, name: str) -> int:
    """Milliseconds since 1970; `name` is what the caller calls the time."""
    if isinstance(time, datetime):
        return round(time.timestamp() * 1000)
    if isinstance(time, int) and not isinstance(time, bool):
        return time
    raise UserError(f"Give {name} as a datetime or as milliseconds since 1970, not as {type(time).__name__}.")
