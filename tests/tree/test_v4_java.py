"""Trees of version 4 read by the Iceberg library itself.

Release 1.12.0 has a reader of tracked-file rows (`V4ManifestReader`) that none of its tables use yet: its snapshots
know manifest lists only. `TreeReader.java` follows a root to its leaves with it. What it finds is held against the
reader of the tests that goes row by row.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pyspark
import pytest

from neve.commit.actions import Append, DeleteFiles, RowDelta
from tests.peers.jars import ICEBERG, NotToBeHad, path_of
from tests.support import v4_trees as v4
from tests.support.metadata_tables import Kit, removed
from tests.tree.test_v4_golden import HISTORIES

SOURCE = Path(__file__).with_name("TreeReader.java")
EPOCH = date(1970, 1, 1)


def in_the_root(folder: Path) -> Kit:
    """Files in the root beside a leaf; one of them has a vector."""
    t = Kit.create(folder, 4, neve__root__inline_files="1")
    t.ok(Append(t.data("a", "b", ids=(1, 9))))
    file = t.data("c", ids=(3, 4))
    t.ok(Append(file))
    t.ok(RowDelta(added_deletes=t.vector("v", file, [2, 5])))
    return t


def hiding(folder: Path) -> Kit:
    """A leaf of which the root hides rows: one that was deleted, and one whose new state lies in the root."""
    t = Kit.create(folder, 4, neve__manifest_vectors__enabled="true")
    files = t.data(*(f"f{n}" for n in range(300)))
    t.ok(Append(files))
    t.ok(RowDelta(added_deletes=t.vector("v", files.take([270]), [2, 5])))
    t.ok(DeleteFiles(removed(files.take([*range(40), 299]))))
    return t


def java(folder: Path, trees: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The live files of trees as the library reads them."""
    if shutil.which("javac") is None:
        pytest.skip("The Iceberg library was not asked: there is no Java compiler (javac) here.")
    try:
        jar = path_of(ICEBERG)
    except NotToBeHad as e:
        pytest.skip(f"The Iceberg library was not asked: {e}.")
    path = f"{jar}{os.pathsep}{Path(pyspark.__file__).parent / 'jars' / '*'}"
    listed = folder / "trees.json"
    listed.write_text(json.dumps(trees))
    subprocess.run(["javac", "-d", folder, "-cp", path, SOURCE], check=True, timeout=120)
    command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}{os.pathsep}{path}"]
    done = subprocess.run(
        [*command, "org.apache.iceberg.TreeReader", listed], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def tree(name: str, t: Kit) -> dict[str, Any]:
    metadata = t.metadata
    return {
        "name": name,
        "root": t.head().root_manifest,
        "snapshot": t.head_id,
        "location": t.location,
        "schema": json.loads(metadata.schema().model_dump_json()),
        "specs": [json.loads(spec.model_dump_json()) for spec in metadata.partition_specs],
    }


def by_rows(t: Kit) -> list[tuple[Any, ...]]:
    """The live files of the tests' own reader."""
    return sorted(
        (
            f.location,
            f.content,
            f.spec_id,
            tuple((i, _text(value)) for i, value in f.partition),
            f.number,
            f.file_number,
            f.snapshot_id,
            f.first_row_id,
            f.vector,
        )
        for f in v4.live_files(t.head().root_manifest, t.location)
    )


def _text(value: Any) -> str:
    return str((value - EPOCH).days) if isinstance(value, date) else str(value)


def by_java(rows: list[dict[str, Any]], name: str) -> list[tuple[Any, ...]]:
    return sorted(
        (
            row["location"],
            row["content"],
            row["spec_id"],
            tuple(sorted(row["partition"].items())),
            row["number"],
            row["file_number"],
            row["snapshot_id"],
            row["first_row_id"],
            tuple(row["vector"]) if "vector" in row else None,
        )
        for row in rows
        if row["table"] == name
    )


def test_the_iceberg_library_reads_every_tree(tmp_path: Path):
    histories = {n: make for n, make in HISTORIES.items() if n != "upgrade"}  # which keeps manifests in Avro
    tables = {name: make(tmp_path / name) for name, make in {**histories, "in_the_root": in_the_root}.items()}
    hidden = hiding(tmp_path / "hiding")
    found = java(tmp_path, [tree(name, t) for name, t in {**tables, "hiding": hidden}.items()])
    rows = [row for row in found if "location" in row]
    assert {name: by_java(rows, name) for name in tables} == {name: by_rows(t) for name, t in tables.items()}
    told = {row["location"].rsplit("/")[-1]: row["bounds"] for row in rows if row["table"] == "append"}
    assert told == {"a.parquet": {"1": "1..9"}, "b.parquet": {"1": "1..9"}, "c.parquet": {}}
    (leaf,) = (row for row in found if "leaf" in row)
    assert leaf["hidden"] == [*range(40), 270, 299], "a leaf with hidden rows it refuses, but knows which they are"
