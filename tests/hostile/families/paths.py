"""Paths that lead out of the table, in every field that holds a path: read or rejected, never deleted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.hostile.case import Case
from tests.hostile.containers import drop_stated_lengths, edit_rows
from tests.hostile.honest_tables import DamagedLake
from tests.support.evolved_tables import edit_avro

PRECIOUS = "precious.parquet"

PATHS: dict[str, Callable[[DamagedLake], str]] = {
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
        for name in PATHS:
            yield _case(f"{name} as a data file", version, partial(_set_entry_path, name, "file_path"))
            yield _case(f"{name} as a manifest", version, partial(_set_manifest_path, name))
    for name in PATHS:
        yield _case(f"{name} as a file in version 4", 4, partial(_set_leaf_entry_path, name))
        yield _case(f"{name} as a leaf in version 4", 4, partial(_set_leaf_path, name))
        yield _case(f"{name} as a vector", 3, partial(_set_vector_path, name, "file_path"))
        yield _case(f"{name} as the file of a vector", 3, partial(_set_vector_path, name, "referenced_data_file"))
        for version in (2, 4):
            yield _case(f"{name} as a list", version, partial(_set_list_path, name))
            yield _case(f"{name} as statistics", version, partial(_set_statistics_path, name))
            yield _case(f"{name} as an older metadata file", version, partial(_set_metadata_log_path, name))
    for version in (2, 4):
        for name, location in LOCATIONS.items():
            deletes = name in CONTAINED  # deletion is only tried where it cannot reach other files of the disk
            yield _case(f"the table lies {name}", version, partial(_set_table_location, location), deletes=deletes)
            yield _case(f"the data lies {name}", version, partial(_set_data_path, location), deletes=deletes)
    yield from _linked_folders()


def _case(name: str, version: int, change: Callable[[DamagedLake], Any], deletes: bool = True, **fields: Any) -> Case:
    def apply(lake: DamagedLake) -> None:
        _add_links(lake)
        change(lake)

    return Case("path", name, version, apply, detected_by="nobody", names=NAMES, lies=True, deletes=deletes, **fields)


def _add_links(lake: DamagedLake) -> None:
    (lake.folder / "db/t/linked").symlink_to(lake.outside)
    (lake.folder / "db/t/data/linked.parquet").symlink_to(lake.outside / PRECIOUS)


def _set_entry_path(name: str, field: str, lake: DamagedLake) -> None:
    path = PATHS[name](lake)
    drop_stated_lengths(lake)
    edit_avro(str(lake.path("manifest")), lambda row: row["data_file"].update({field: path}))


def _set_vector_path(name: str, field: str, lake: DamagedLake) -> None:
    path = PATHS[name](lake)
    drop_stated_lengths(lake)
    edit_avro(str(lake.path("delete manifest")), lambda row: row["data_file"].update({field: path}))


def _set_manifest_path(name: str, lake: DamagedLake) -> None:
    path = PATHS[name](lake)
    for role in ("list", "old list"):
        edit_avro(str(lake.path(role)), lambda row: row.update(manifest_path=path, manifest_length=1))


def _set_leaf_entry_path(name: str, lake: DamagedLake) -> None:
    path = PATHS[name](lake)
    drop_stated_lengths(lake)
    edit_rows(lake.path("manifest"), lambda rows: rows[0].update(location=path))


def _set_leaf_path(name: str, lake: DamagedLake) -> None:
    path = PATHS[name](lake)
    edit_rows(lake.path("list"), lambda rows: rows[0].update(location=path, file_size_in_bytes=1))


def _set_list_path(name: str, lake: DamagedLake) -> None:
    path = PATHS[name](lake)

    def change(parsed: dict) -> None:
        key = "root-manifest" if "root-manifest" in parsed["snapshots"][0] else "manifest-list"
        parsed["snapshots"][0][key] = path

    lake.edit_metadata(change)


def _set_statistics_path(name: str, lake: DamagedLake) -> None:
    path = PATHS[name](lake)

    def change(parsed: dict) -> None:
        first = parsed["snapshots"][0]["snapshot-id"]
        sizes = {"file-size-in-bytes": 1, "file-footer-size-in-bytes": 1}
        parsed["statistics"] = [{"snapshot-id": first, "statistics-path": path, "blob-metadata": [], **sizes}]
        parsed["partition-statistics"] = [{"snapshot-id": first, "statistics-path": path, "file-size-in-bytes": 1}]

    lake.edit_metadata(change)


def _set_metadata_log_path(name: str, lake: DamagedLake) -> None:
    path = PATHS[name](lake)
    retired = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}

    def change(parsed: dict) -> None:
        parsed["metadata-log"] = [{"timestamp-ms": 1 + i, "metadata-file": path} for i in range(3)]
        parsed["properties"] = {**parsed.get("properties", {}), **retired}

    lake.edit_metadata(change)


LOCATIONS: dict[str, Callable[[DamagedLake], str]] = {
    "at the root of the disk": lambda p: "file:///",
    "nowhere": lambda p: "",
    "above the lake": lambda p: f"file://{p.folder.parent}",
    "above, by dots": lambda p: f"{p.location}/../../..",
    "on another host": lambda p: f"file://elsewhere{p.folder.parent}",
    "at a relative place": lambda p: "db/t",
}


CONTAINED = ("above the lake", "above, by dots")


def _set_table_location(where: Callable[[DamagedLake], str], lake: DamagedLake) -> None:
    """Set the table location; older snapshots reference a file outside that no later snapshot has."""
    _reference_outside_file(lake)
    lake.edit_metadata(lambda parsed: parsed.update(location=where(lake)))


def _set_data_path(where: Callable[[DamagedLake], str], lake: DamagedLake) -> None:
    _reference_outside_file(lake)
    lake.edit_metadata(lambda parsed: parsed.setdefault("properties", {}).update({"write.data.path": where(lake)}))


def _reference_outside_file(lake: DamagedLake) -> None:
    if lake.version < 4:
        _set_entry_path("elsewhere", "file_path", lake)
    else:
        _set_leaf_entry_path("elsewhere", lake)


def _linked_folders() -> Iterator[Case]:
    """Folders of the table that are links: files behind them do not belong to the table."""
    for version in (2, 4):
        for folder in ("data", "metadata"):
            yield Case(
                "path",
                f"the {folder} folder is a link",
                version,
                partial(_replace_folder_by_link, folder),
                detected_by="nobody",
                deletes=True,
            )


def _replace_folder_by_link(folder: str, lake: DamagedLake) -> None:
    """Move the folder with its files and replace it by a link; the files must stay."""
    own = lake.folder / "db/t" / folder
    lake.link_target.mkdir()
    shutil.move(own, lake.link_target / folder)
    os.symlink(lake.link_target / folder, own)
