"""Years, months, days and hours since 1970 of any time, by Python's integers: its calendar ends with the year 9999."""

from __future__ import annotations

from datetime import date, timedelta

HOUR, DAY = 3_600_000_000, 86_400_000_000  # in microseconds
_DAYS_OF_400_YEARS = 146_097  # after which the calendar repeats itself


def since_1970(unit: str, micros: int) -> int:
    """Return the whole years, months, days or hours since 1970, negative before."""
    if unit in ("day", "hour"):
        return micros // (DAY if unit == "day" else HOUR)
    cycles, days = divmod(micros // DAY, _DAYS_OF_400_YEARS)
    same_day = date(1970, 1, 1) + timedelta(days=days)
    years = same_day.year - 1970 + 400 * cycles
    return years if unit == "year" else 12 * years + same_day.month - 1
