"""Jars of other engines by Maven coordinates: downloaded once and cached."""

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
MAVEN_REPOSITORY = Path.home() / ".m2" / "repository"


class NotToBeHad(Exception):
    """A jar is neither cached nor available from Maven."""


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
    def repository_path(self) -> str:
        """The path of the jar below the root of a repository."""
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
    """Return the file of a jar: from the cache, from the local Maven repository, or downloaded."""
    cached = CACHE / jar.name
    for found in (cached, MAVEN_REPOSITORY / jar.repository_path):
        if found.exists() and _has_checksum(jar, found.read_bytes()):
            return found
    data = _fetch(jar)
    cached.parent.mkdir(parents=True, exist_ok=True)
    temporary = cached.with_suffix(f".{os.getpid()}")  # two test processes may fetch it at once
    temporary.write_bytes(data)
    temporary.replace(cached)
    return cached


def _fetch(jar: Jar) -> bytes:
    """Download a jar with Ivy, which is part of Spark."""
    with tempfile.TemporaryDirectory() as folder:
        dependency = ["-dependency", jar.group, jar.artifact, jar.version, "-notransitive", "-types", "jar"]
        output = ["-cache", f"{folder}/cache", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
        ivy = [
            str(launcher_home(find_java()) / "bin" / "java"),
            "-cp",
            f"{Path(pyspark.__file__).parent}/jars/*",
            "org.apache.ivy.Main",
            *dependency,
            *output,
        ]
        done = subprocess.run(ivy, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        found = Path(folder, jar.name)
        if not found.exists():
            raise NotToBeHad(f"{jar} is neither cached nor available from Maven ({done.stdout.strip()[-300:]})")
        data = found.read_bytes()
    if not _has_checksum(jar, data):
        raise NotToBeHad(f"{jar} has a wrong checksum")
    return data


def _has_checksum(jar: Jar, data: bytes) -> bool:
    return hashlib.sha256(data).hexdigest() == jar.sha256
