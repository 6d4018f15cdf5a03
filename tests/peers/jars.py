"""Jars of other engines, by their Maven coordinates: fetched once and kept."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyspark

from neve.run.spark.java import find_java, launcher_home

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "neve" / "jars"
MAVENS_OWN = Path.home() / ".m2" / "repository"


class NotToBeHad(Exception):
    """A jar is neither kept here nor to be had from Maven."""


@dataclass(frozen=True)
class Jar:
    """An artifact and the checksum it must have."""

    group: str
    artifact: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def place(self) -> str:
        """Where the jar lies below the root of a repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.name}"


ICEBERG = Jar(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
SQLITE = Jar(
    "org.xerial", "sqlite-jdbc", "3.53.4.0", "bcb1f51e36f940867e83342f9efbf5968ac44a6bef4d397bb4af7b17b45cd2fb"
)


def path_of(jar: Jar) -> Path:
    """The file of a jar: kept from an earlier run, in Maven's own folder, or fetched now."""
    kept = CACHE / jar.name
    for found in (kept, MAVENS_OWN / jar.place):
        if found.exists() and _is_whole(jar, found.read_bytes()):
            return found
    data = _fetched(jar)
    kept.parent.mkdir(parents=True, exist_ok=True)
    mine = kept.with_suffix(f".{os.getpid()}")  # two test processes may fetch it at once
    mine.write_bytes(data)
    mine.replace(kept)
    return kept


def _fetched(jar: Jar) -> bytes:
    """The jar as Ivy finds it, which Spark brings along for its own packages."""
    with tempfile.TemporaryDirectory() as folder:
        asked = ["-dependency", jar.group, jar.artifact, jar.version, "-notransitive", "-types", "jar"]
        places = ["-cache", f"{folder}/cache", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
        ivy = [
            str(launcher_home(find_java()) / "bin" / "java"),
            "-cp",
            f"{Path(pyspark.__file__).parent}/jars/*",
            "org.apache.ivy.Main",
            *asked,
            *places,
        ]
        done = subprocess.run(ivy, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        found = Path(folder, jar.name)
        if not found.exists():
            raise NotToBeHad(f"{jar} is neither cached nor to be had from Maven ({done.stdout.strip()[-300:]})")
        data = found.read_bytes()
    if not _is_whole(jar, data):
        raise NotToBeHad(f"{jar} did not arrive whole")
    return data


def _is_whole(jar: Jar, data: bytes) -> bool:
    return hashlib.sha256(data).hexdigest() == jar.sha256
