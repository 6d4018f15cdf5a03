"""Manifests and lists that are whole and well formed, and say wild things about files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fastavro

from tests.hostile.case import Case
from tests.hostile.containers import any_length, edit_rows
from tests.hostile.honest_tables import Place
from tests.support.evolved_tables import edit_avro

LONGS = (-1, 0, 7, 1 << 31, (1 << 63) - 1, -(1 << 63))
INTS = (-1, 0, 3, 77, (1 << 31) - 1, -(1 << 31))
TEXTS = (
    "",
    ".",
    "x" * 100_000,
    "\x1b]0;owned\x07\x1b[2J",
    "a\0b",
    "a\nb",
    "PARQUET",
    "http://127.0.0.1:9/x",
    "é\u202e",
)
BYTES = (b"", b"\0", b"\xff" * 9, bytes(100_000))
ROLES = {
    1: ("list", "manifest"),
    2: ("list", "manifest", "delete manifest"),
    3: ("list", "manifest", "delete manifest"),
}
TRIES = 6


def cases() -> Iterator[Case]:
    """The n-th field of a row with the m-th wild value of its type: metadata says which rows there are."""
    for version, roles in ROLES.items():
        for role in roles:
            for field in range(32):
                for seed in range(TRIES):
                    yield _case(f"{role}: field {field}, {seed}", version, partial(_avro, role, field, seed))
    for role in ("list", "manifest"):
        for field in range(30):
            for seed in range(TRIES):
                yield _case(f"{role}: field {field}, {seed}", 4, partial(_parquet, role, field, seed))
    yield from _tricks()


def _case(name: str, version: int, change: Any) -> Case:
    names = ("127.0.0.1", "Rejected path", "x" * 100, "spec ", "file format")
    return Case("value", name, version, change, told_by="nobody", names=names, lies=True)


def _avro(role: str, field: int, seed: int, place: Place) -> None:
    path = place.path(role)
    any_length(place)
    with path.open("rb") as stream:
        schema = fastavro.reader(stream).writer_schema
    spots = list(_spots(schema, ()))
    where, kind = spots[field % len(spots)]
    value = _wild(kind, seed)

    def change(row: dict[str, Any]) -> None:
        at: Any = row
        for name in where[:-1]:
            at = at[name]
        at[where[-1]] = value

    edit_avro(str(path), change)


def _spots(kind: Any, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The fields of a record and of the records in it."""
    for f in kind["fields"]:
        inner = f["type"]
        if isinstance(inner, dict) and inner.get("type") == "record":
            yield from _spots(inner, (*where, f["name"]))
        else:
            yield (*where, f["name"]), inner


def _wild(kind: Any, seed: int) -> Any:
    """Something the type allows."""
    if isinstance(kind, list):
        return None if seed == 0 and "null" in kind else _wild(next(k for k in kind if k != "null"), seed)
    if isinstance(kind, dict):
        return _wild_nested(kind, seed)
    others = {"boolean": (False, True), "float": (float("nan"),), "double": (float("-inf"),), "null": (None,)}
    some = {"long": LONGS, "int": INTS, "string": TEXTS, "bytes": BYTES, **others}[kind]
    return some[seed % len(some)]


def _wild_nested(kind: dict[str, Any], seed: int) -> Any:
    match kind["type"]:
        case "array":
            count = (0, 1, 2, 3, 50, 2000)[seed % 6]
            return [_wild(kind["items"], (seed + i) % 6) for i in range(count)]
        case "record":
            return {f["name"]: _wild(f["type"], seed + i) for i, f in enumerate(kind["fields"])}
        case "map":
            return {}
        case "fixed":
            return b"\xff" * kind["size"]
        case inner:
            return _wild(inner, seed)


def _parquet(role: str, field: int, seed: int, place: Place) -> None:
    any_length(place)
    path = place.path(role)

    def change(rows: list[dict[str, Any]]) -> None:
        spots = list(_leaves(rows[0], ()))
        where = spots[field % len(spots)]
        for row in rows:
            at: Any = row
            for name in where[:-1]:
                at = at[name] or {}
            if where[-1] in at:
                at[where[-1]] = _like(at[where[-1]], seed)

    edit_rows(path, change)


def _leaves(row: dict[str, Any], where: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*where, name))
        yield (*where, name)


def _like(value: Any, seed: int) -> Any:
    """A wild value of the same kind; nothing, where there is nothing to go by."""
    if seed == 0 or isinstance(value, dict):
        return None
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        small = (-1, 0, 3, 77, (1 << 31) - 1, -(1 << 31))
        return small[seed % len(small)]
    if isinstance(value, str):
        return TEXTS[seed % len(TEXTS)]
    if isinstance(value, bytes):
        return BYTES[seed % len(BYTES)]
    return [] if isinstance(value, list) else None


def _tricks() -> Iterator[Case]:
    """Rings and repetition: a list that names itself, a manifest in its own place, the same file many times."""
    for version in (1, 2, 3):
        for what, target in (
            ("itself", "list"),
            ("an older list", "old list"),
            ("the metadata", "metadata"),
            ("data", "data"),
        ):
            yield _case(f"a list that names {what} as a manifest", version, partial(_named, target))
        for times in (2, 100, 2_000):
            yield _case(f"a manifest listed {times} times", version, partial(_listed, times))
        for times in (2, 200):
            yield _case(f"entries {times} times", version, partial(_repeated, times))
    for what, target in (
        ("itself", "list"),
        ("an older root", "old list"),
        ("the metadata", "metadata"),
        ("data", "data"),
    ):
        yield _case(f"a root that names {what} as a leaf", 4, partial(_rooted, target))
    yield _case("a leaf that names itself", 4, _leaf_in_leaf)
    for times in (2, 1000, 50_000):
        yield _case(f"a leaf listed {times} times", 4, partial(_leaves_listed, times))


def _named(target: str, place: Place) -> None:
    path = f"file://{place.path(target)}"
    edit_avro(str(place.path("list")), lambda row: row.update(manifest_path=path, manifest_length=1))


def _listed(times: int, place: Place) -> None:
    edit_avro(str(place.path("list")), lambda row: [row] * times)


def _repeated(times: int, place: Place) -> None:
    any_length(place)
    edit_avro(str(place.path("manifest")), lambda row: [row] * times)


def _relative(place: Place, path: Path) -> str:
    return str(path.relative_to(place.folder / "db/t"))


def _rooted(target: str, place: Place) -> None:
    stated = {"location": _relative(place, place.path(target)), "file_size_in_bytes": 1}
    edit_rows(place.path("list"), lambda rows: [row.update(stated) for row in rows])


def _leaf_in_leaf(place: Place) -> None:
    any_length(place)
    own = _relative(place, place.path("manifest"))
    edit_rows(place.path("manifest"), lambda rows: [row.update(location=own, content_type=3) for row in rows])


def _leaves_listed(times: int, place: Place) -> None:
    edit_rows(place.path("list"), lambda rows: rows.extend(rows * (times - 1)))
