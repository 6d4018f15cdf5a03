"""Complete, well-formed manifests and lists with extreme values about files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fastavro

from tests.hostile.case import Case
from tests.hostile.containers import drop_stated_lengths, edit_rows
from tests.hostile.honest_tables import DamagedLake
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
    """Set the n-th field of a row to the m-th extreme value of its type; metadata defines the rows of a table."""
    for version, roles in ROLES.items():
        for role in roles:
            for field in range(32):
                for seed in range(TRIES):
                    yield _case(f"{role}: field {field}, {seed}", version, partial(_avro, role, field, seed))
    for role in ("list", "manifest"):
        for field in range(30):
            for seed in range(TRIES):
                yield _case(f"{role}: field {field}, {seed}", 4, partial(_parquet, role, field, seed))
    yield from _cycles_and_repetitions()


def _case(name: str, version: int, change: Any) -> Case:
    names = ("127.0.0.1", "Rejected path", "x" * 100, "spec ", "file format")
    return Case("value", name, version, change, detected_by="nobody", names=names, lies=True)


def _avro(role: str, field: int, seed: int, lake: DamagedLake) -> None:
    path = lake.path(role)
    drop_stated_lengths(lake)
    with path.open("rb") as stream:
        schema = fastavro.reader(stream).writer_schema
    field_paths = list(_field_paths(schema, ()))
    where, kind = field_paths[field % len(field_paths)]
    value = _extreme_value(kind, seed)

    def change(row: dict[str, Any]) -> None:
        at: Any = row
        for name in where[:-1]:
            at = at[name]
        at[where[-1]] = value

    edit_avro(str(path), change)


def _field_paths(kind: Any, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and type of the fields of a record and of its nested records."""
    for f in kind["fields"]:
        inner = f["type"]
        if isinstance(inner, dict) and inner.get("type") == "record":
            yield from _field_paths(inner, (*where, f["name"]))
        else:
            yield (*where, f["name"]), inner


def _extreme_value(kind: Any, seed: int) -> Any:
    """Return an extreme value that the type allows."""
    if isinstance(kind, list):
        return None if seed == 0 and "null" in kind else _extreme_value(next(k for k in kind if k != "null"), seed)
    if isinstance(kind, dict):
        return _extreme_nested_value(kind, seed)
    others = {"boolean": (False, True), "float": (float("nan"),), "double": (float("-inf"),), "null": (None,)}
    some = {"long": LONGS, "int": INTS, "string": TEXTS, "bytes": BYTES, **others}[kind]
    return some[seed % len(some)]


def _extreme_nested_value(kind: dict[str, Any], seed: int) -> Any:
    match kind["type"]:
        case "array":
            count = (0, 1, 2, 3, 50, 2000)[seed % 6]
            return [_extreme_value(kind["items"], (seed + i) % 6) for i in range(count)]
        case "record":
            return {f["name"]: _extreme_value(f["type"], seed + i) for i, f in enumerate(kind["fields"])}
        case "map":
            return {}
        case "fixed":
            return b"\xff" * kind["size"]
        case inner:
            return _extreme_value(inner, seed)


def _parquet(role: str, field: int, seed: int, lake: DamagedLake) -> None:
    drop_stated_lengths(lake)
    path = lake.path(role)

    def change(rows: list[dict[str, Any]]) -> None:
        field_paths = list(_leaves(rows[0], ()))
        where = field_paths[field % len(field_paths)]
        for row in rows:
            at: Any = row
            for name in where[:-1]:
                at = at[name] or {}
            if where[-1] in at:
                at[where[-1]] = _extreme_value_like(at[where[-1]], seed)

    edit_rows(path, change)


def _leaves(row: dict[str, Any], where: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*where, name))
        yield (*where, name)


def _extreme_value_like(value: Any, seed: int) -> Any:
    """Return an extreme value of the same type; None if the type is unknown."""
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


def _cycles_and_repetitions() -> Iterator[Case]:
    """Cycles and repetition: a list that references itself, a leaf that references itself, the same file many times."""
    for version in (1, 2, 3):
        for what, target in (
            ("itself", "list"),
            ("an older list", "old list"),
            ("the metadata", "metadata"),
            ("data", "data"),
        ):
            yield _case(f"a list that names {what} as a manifest", version, partial(_set_manifest_path, target))
        for times in (2, 100, 2_000):
            yield _case(f"a manifest listed {times} times", version, partial(_repeat_manifests, times))
        for times in (2, 200):
            yield _case(f"entries {times} times", version, partial(_repeat_entries, times))
    for what, target in (
        ("itself", "list"),
        ("an older root", "old list"),
        ("the metadata", "metadata"),
        ("data", "data"),
    ):
        yield _case(f"a root that names {what} as a leaf", 4, partial(_set_leaf_path, target))
    yield _case("a leaf that names itself", 4, _reference_leaf_in_itself)
    for times in (2, 1000, 50_000):
        yield _case(f"a leaf listed {times} times", 4, partial(_repeat_leaves, times))


def _set_manifest_path(target: str, lake: DamagedLake) -> None:
    path = f"file://{lake.path(target)}"
    edit_avro(str(lake.path("list")), lambda row: row.update(manifest_path=path, manifest_length=1))


def _repeat_manifests(times: int, lake: DamagedLake) -> None:
    edit_avro(str(lake.path("list")), lambda row: [row] * times)


def _repeat_entries(times: int, lake: DamagedLake) -> None:
    drop_stated_lengths(lake)
    edit_avro(str(lake.path("manifest")), lambda row: [row] * times)


def _relative(lake: DamagedLake, path: Path) -> str:
    return str(path.relative_to(lake.folder / "db/t"))


def _set_leaf_path(target: str, lake: DamagedLake) -> None:
    stated = {"location": _relative(lake, lake.path(target)), "file_size_in_bytes": 1}
    edit_rows(lake.path("list"), lambda rows: [row.update(stated) for row in rows])


def _reference_leaf_in_itself(lake: DamagedLake) -> None:
    drop_stated_lengths(lake)
    own = _relative(lake, lake.path("manifest"))
    edit_rows(lake.path("manifest"), lambda rows: [row.update(location=own, content_type=3) for row in rows])


def _repeat_leaves(times: int, lake: DamagedLake) -> None:
    edit_rows(lake.path("list"), lambda rows: rows.extend(rows * (times - 1)))
