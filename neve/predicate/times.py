"""Dates and times as Spark writes them in text, and the clocks of time zones."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from neve.errors import UserError

__all__ = ["DAY", "instant", "is_steady", "local", "parse_date", "parse_timestamp", "zone_of"]

DAY = 86_400_000_000  # microseconds

EPOCH = datetime(1970, 1, 1)
DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?")
TIMESTAMP = re.compile(
    r"""([0-9]{4}-[0-9]{1,2}-[0-9]{1,2})                                          # day
        (?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,6}))?)?     # clock
        \s*(Z|[+-][0-9]{1,2}:[0-9]{2}|[A-Za-z][A-Za-z/_]*)?)?                     # zone""",
    re.VERBOSE,
)
OFFSET = re.compile(r"([+-])([0-9]{1,2}):([0-9]{2})")


def parse_date(text: str) -> int | None:
    """The days since 1970 of a date written as year, month and day; the last two may be left out."""
    if not (found := DATE.fullmatch(text.strip())):
        return None
    try:
        return (date(*(int(part or 1) for part in found.groups())) - date(1970, 1, 1)).days
    except ValueError:
        return None


def parse_timestamp(text: str) -> tuple[int, tzinfo | None] | None:
    """The microseconds of a clock since 1970, and the zone when one is written."""
    if not (found := TIMESTAMP.fullmatch(text.strip())):
        return None
    day, *clock, fraction, zone = found.groups()
    hour, minute, second = (int(part or 0) for part in clock)
    days = parse_date(day)
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    micros = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    try:
        return days * DAY + micros, None if zone is None else zone_of(zone)
    except UserError:
        return None


def zone_of(name: str) -> tzinfo:
    """A time zone by its name or offset."""
    if name.upper() in {"Z", "UTC", "GMT", "UT"}:
        return UTC
    if found := OFFSET.fullmatch(name):
        sign = -1 if found[1] == "-" else 1
        return timezone(sign * timedelta(hours=int(found[2]), minutes=int(found[3])))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UserError(
            f"Unknown time zone {name!r}. Give a name such as 'Europe/Berlin' or an offset such as '+02:00'."
        ) from None


def instant(clock: int, zone: tzinfo) -> int:
    """The microseconds since 1970 UTC at which a clock in a zone shows its microseconds since 1970."""
    moment = (EPOCH + timedelta(microseconds=clock)).replace(tzinfo=zone)
    return (moment - EPOCH.replace(tzinfo=UTC)) // timedelta(microseconds=1)


def local(moment: int, zone: tzinfo) -> int:
    """What a clock in a zone shows at a moment, both in microseconds since 1970."""
    shown = (EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=moment)).astimezone(zone).replace(tzinfo=None)
    return (shown - EPOCH) // timedelta(microseconds=1)


def is_steady(clock: int, zone: tzinfo) -> bool:
    """Whether the offset of a zone is the same a day before and after: clocks there neither skip nor repeat an hour."""
    moment = EPOCH + timedelta(microseconds=clock)
    try:
        around = [(moment + timedelta(days=d)).replace(tzinfo=zone).utcoffset() for d in (-2, 0, 2)]
    except OverflowError:
        return False
    return len(set(around)) == 1
