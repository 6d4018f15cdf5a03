"""Paths that lead out of the table, in every place a path stands: read or refused, and never deleted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.hostile.case import Case
from tests.hostile.containers import any_length, edit_rows
from tests.hostile.honest_tables import Place
from tests.support.evolved_tables import edit_avro

PRECIOUS = "precious.parquet"

SPELLINGS: dict[str, Callable[[Place], str]] = {
    "elsewhere": lambda p: f"file://{p.outside}/{PRECIOUS}",
    "elsewhere without a scheme": lambda p: f"{p.outside}/{PRECIOUS}",
    "elsewhere in capitals": lambda p: f"FILE://{p.outside}/{PRECIOUS}",
    "elsewhere with one slash": lambda p: f"file:{p.outside}/{PRECIOUS}",
    "elsewhere on this host": lambda p: f"file://localhost{p.outside}/{PRECIOUS}",
    "elsewhere with many slashes": lambda p: f"file:////{p.outside}//{PRECIOUS}",
    "above": lambda p: f"{p.location}/../../../outside/{PRECIOUS}",
    "above by way of data": lambda p: f"{p.location}/data/../../../../outside/{PRECIOUS}",
    "above in percent signs": lambda p: f"{p.location}/data/%2e%2e/%2e%2e/%2e%2e/%2e%2e/outside/{PRECIOUS}",
    "above in mixed signs": lambda p: f"{p.location}/data/.%2E/..%2f../../outside/{PRECIOUS}",
    "above with back slashes": lambda p: f"{p.location}/data\\..\\..\\..\\..\\outside\\{PRECIOUS}",
    "above, relative": lambda p: f"../../../outside/{PRECIOUS}",
    "relative": lambda p: f"data/../../../../outside/{PRECIOUS}",
    "through a linked folder": lambda p: f"{p.location}/linked/{PRECIOUS}",
    "a linked file": lambda p: f"{p.location}/data/linked.parquet",
    "through a link and back": lambda p: f"{p.location}/linked/../outside/{PRECIOUS}",
    "with a null byte": lambda p: f"file://{p.outside}/{PRECIOUS}\0.avro",
    "with a line in it": lambda p: f"file://{p.outside}/{PRECIOUS}\n",
    "on another host": lambda p: f"file://elsewhere{p.outside}/{PRECIOUS}",
    "by http": lambda p: f"http://127.0.0.1:9/{PRECIOUS}",
    "by ftp": lambda p: f"ftp://127.0.0.1/{PRECIOUS}",
    "by a scheme nobody knows": lambda p: f"gopher://x/{PRECIOUS}",
    "by jar": lambda p: f"jar:file://{p.outside}/{PRECIOUS}!/x",
    "a device": lambda p: "file:///dev/stdin",
    "the process itself": lambda p: "file:///proc/self/mem",
    "the folder": lambda p: f"file://{p.outside}",
    "the folder with a slash": lambda p: f"file://{p.outside}/",
    "the table itself": lambda p: p.location,
    "a star": lambda p: f"file://{p.outside}/*",
    "nothing": lambda p: "",
}
NAMES = (
    "db.t",
    "precious",
    "outside",
    "Rejected path",
    "elsewhere",
    "127.0.0.1",
    "gopher",
    "/dev/stdin",
    "/proc/self/mem",
    "db/t",
)


def cases() -> Iterator[Case]:
    for version in (1, 2, 3):
        for how in SPELLINGS:
            yield _case(f"{how} as a data file", version, partial(_entry, how, "file_path"))
            yield _case(f"{how} as a manifest", version, partial(_list, how))
    for how in SPELLINGS:
        yield _case(f"{how} as a file in version 4", 4, partial(_leaf, how))
        yield _case(f"{how} as a leaf in version 4", 4, partial(_root, how))
        yield _case(f"{how} as a vector", 3, partial(_vector, how, "file_path"))
        yield _case(f"{how} as the file of a vector", 3, partial(_vector, how, "referenced_data_file"))
        for version in (2, 4):
            yield _case(f"{how} as a list", version, partial(_snapshot, how))
            yield _case(f"{how} as statistics", version, partial(_statistics, how))
            yield _case(f"{how} as an older metadata file", version, partial(_log, how))
    for version in (2, 4):
        for how, place in LOCATIONS.items():
            deletes = how in CONTAINED  # nobody's disk is put at risk to see whether it would be
            yield _case(f"the table lies {how}", version, partial(_located, place), deletes=deletes)
            yield _case(f"the data lies {how}", version, partial(_data_path, place), deletes=deletes)
    yield from _linked()


def _case(name: str, version: int, change: Callable[[Place], Any], deletes: bool = True, **said: Any) -> Case:
    def apply(place: Place) -> None:
        _links(place)
        change(place)

    return Case("path", name, version, apply, told_by="nobody", names=NAMES, lies=True, deletes=deletes, **said)


def _links(place: Place) -> None:
    (place.folder / "db/t/linked").symlink_to(place.outside)
    (place.folder / "db/t/data/linked.parquet").symlink_to(place.outside / PRECIOUS)


def _entry(how: str, field: str, place: Place) -> None:
    path = SPELLINGS[how](place)
    any_length(place)
    edit_avro(str(place.path("manifest")), lambda row: row["data_file"].update({field: path}))


def _vector(how: str, field: str, place: Place) -> None:
    path = SPELLINGS[how](place)
    any_length(place)
    edit_avro(str(place.path("delete manifest")), lambda row: row["data_file"].update({field: path}))


def _list(how: str, place: Place) -> None:
    path = SPELLINGS[how](place)
    for role in ("list", "old list"):
        edit_avro(str(place.path(role)), lambda row: row.update(manifest_path=path, manifest_length=1))


def _leaf(how: str, place: Place) -> None:
    path = SPELLINGS[how](place)
    any_length(place)
    edit_rows(place.path("manifest"), lambda rows: rows[0].update(location=path))


def _root(how: str, place: Place) -> None:
    path = SPELLINGS[how](place)
    edit_rows(place.path("list"), lambda rows: rows[0].update(location=path, file_size_in_bytes=1))


def _snapshot(how: str, place: Place) -> None:
    path = SPELLINGS[how](place)

    def change(parsed: dict) -> None:
        key = "root-manifest" if "root-manifest" in parsed["snapshots"][0] else "manifest-list"
        parsed["snapshots"][0][key] = path

    place.edit_metadata(change)


def _statistics(how: str, place: Place) -> None:
    path = SPELLINGS[how](place)

    def change(parsed: dict) -> None:
        first = parsed["snapshots"][0]["snapshot-id"]
        sizes = {"file-size-in-bytes": 1, "file-footer-size-in-bytes": 1}
        parsed["statistics"] = [{"snapshot-id": first, "statistics-path": path, "blob-metadata": [], **sizes}]
        parsed["partition-statistics"] = [{"snapshot-id": first, "statistics-path": path, "file-size-in-bytes": 1}]

    place.edit_metadata(change)


def _log(how: str, place: Place) -> None:
    path = SPELLINGS[how](place)
    retired = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}

    def change(parsed: dict) -> None:
        parsed["metadata-log"] = [{"timestamp-ms": 1 + i, "metadata-file": path} for i in range(3)]
        parsed["properties"] = {**parsed.get("properties", {}), **retired}

    place.edit_metadata(change)


LOCATIONS: dict[str, Callable[[Place], str]] = {
    "at the root of the disk": lambda p: "file:///",
    "nowhere": lambda p: "",
    "above the lake": lambda p: f"file://{p.folder.parent}",
    "above, by dots": lambda p: f"{p.location}/../../..",
    "on another host": lambda p: f"file://elsewhere{p.folder.parent}",
    "at a relative place": lambda p: "db/t",
}


CONTAINED = ("above the lake", "above, by dots")


def _located(where: Callable[[Place], str], place: Place) -> None:
    """The location says where the table lies; older snapshots have a file outside that no later one has."""
    _outside_is_expired(place)
    place.edit_metadata(lambda parsed: parsed.update(location=where(place)))


def _data_path(where: Callable[[Place], str], place: Place) -> None:
    _outside_is_expired(place)
    place.edit_metadata(lambda parsed: parsed.setdefault("properties", {}).update({"write.data.path": where(place)}))


def _outside_is_expired(place: Place) -> None:
    if place.version < 4:
        _entry("elsewhere", "file_path", place)
    else:
        _leaf("elsewhere", place)


def _linked() -> Iterator[Case]:
    """Folders of the table that are links: what lies behind them is not the table's."""
    for version in (2, 4):
        for folder in ("data", "metadata"):
            yield Case(
                "path",
                f"the {folder} folder is a link",
                version,
                partial(_moved, folder),
                told_by="nobody",
                deletes=True,
            )


def _moved(folder: str, place: Place) -> None:
    """The folder moves away, files and all; they must stay there."""
    own = place.folder / "db/t" / folder
    place.behind.mkdir()
    shutil.move(own, place.behind / folder)
    os.symlink(place.behind / folder, own)
