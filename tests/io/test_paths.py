"""Paths: one file has one canonical spelling, nothing leaves the table unseen, and Spark's spelling is met exactly."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import TableError
from neve.io.paths import (
    canonical_path,
    canonical_path_all,
    is_inside,
    is_inside_all,
    local_path,
    real_folder,
    real_path,
    real_path_all,
    refuse_outside,
    refuse_unreadable,
    relativise_path_all,
    resolve_path,
    resolve_path_all,
    scheme_of,
    spark_path_all,
    spark_uri_all,
    with_scheme_all,
)

HERE = "s3://lake/db/t"
NAMES = st.text(st.characters(codec="utf-8"), max_size=20)


def column(*paths: str | None) -> pa.Array:
    return pa.array(paths, pa.string())


def relativise_path(location: str, path: str) -> str:
    return relativise_path_all(location, column(path))[0].as_py()


def spark_path(path: str, schemes: Mapping[str, str] | None = None) -> str:
    return spark_path_all(column(path), schemes)[0].as_py()


@pytest.mark.parametrize(
    ("path", "scheme"),
    [("s3://b/k", "s3"), ("FILE:/x", "file"), ("a+b-c.1:x", "a+b-c.1"), ("/x", None), ("x/y:z", None), ("1s:x", None)],
)
def test_a_scheme_starts_with_a_letter_and_ends_with_a_colon(path: str, scheme: str | None) -> None:
    assert scheme_of(path) == scheme


@pytest.mark.parametrize("path", ["/t/x", "//t/x", "file:/t/x", "file:///t/x", "file://localhost/t/x", "FILE:/t//x"])
def test_spellings_of_one_local_file_are_equal(path: str) -> None:
    assert canonical_path(path) == "file:/t/x"
    assert posixpath.normpath(local_path(path) or "").replace("//", "/") == "/t/x"


@pytest.mark.parametrize("path", ["s3://b/a//k", "s3a://b/a//k", "s3n://b/a//k"])
def test_spellings_of_one_object_are_equal_and_keep_their_slashes(path: str) -> None:
    assert canonical_path(path) == "s3://b/a//k"
    assert local_path(path) is None


def test_a_real_path_has_no_links_in_its_folders(tmp_path: Path) -> None:
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "loop").symlink_to("loop")
    real = f"file:{tmp_path}/real/inner"
    for folder in (f"{tmp_path}/link/inner", f"file://{tmp_path}/link//inner", f"file:{tmp_path}/real/inner/"):
        assert real_folder(folder) == real and real_path(f"{folder}/x") == f"{real}/x"
    paths = [f"{tmp_path}/link/x", None, "s3a://b/link/x", f"{tmp_path}/loop/x", "a/b", "/x", "/a\0b/x", "file://h/x"]
    unchanged = ["s3://b/link/x", f"file:{tmp_path}/loop/x", "a/b", "file:/x", "file:/a\0b/x", "file://h/x"]
    assert real_path_all(column(*paths)).to_pylist() == [f"file:{tmp_path}/real/x", None, *unchanged]
    assert [real_folder(folder) for folder in ("/", "s3://b/k/")] == ["file:", "s3://b/k"]


@pytest.mark.parametrize("path", ["file://host/t/x", "hdfs://host/t/x", "t/x", "file:t/x", "s3x://t/x"])
def test_what_is_elsewhere_is_not_local(path: str) -> None:
    assert canonical_path(path) == path
    assert local_path(path) is None


def test_columns_keep_nulls_and_accept_chunks() -> None:
    chunked = pa.chunked_array([column("/x", None), column("s3a://b/k")])
    assert canonical_path_all(chunked).to_pylist() == ["file:/x", None, "s3://b/k"]
    assert resolve_path_all(HERE, column(None, "a")).to_pylist() == [None, f"{HERE}/a"]
    assert relativise_path_all(HERE, column(None, f"{HERE}/a")).to_pylist() == [None, "a"]
    assert spark_uri_all(column(None, "/a b")).to_pylist() == [None, "file:/a%20b"]
    refuse_unreadable(column(None, f"{HERE}/a"), HERE, roots=())
    refuse_outside(column(None, f"{HERE}/a"), [HERE], "delete")


def test_a_relative_path_is_joined_without_normalising() -> None:
    assert resolve_path(HERE, "data/a b%20.parquet") == f"{HERE}/data/a b%20.parquet"
    assert resolve_path(HERE + "//", "data/x") == f"{HERE}/data/x"
    assert resolve_path(HERE, "/data/x") == f"{HERE}//data/x"  # a leading slash does not make it absolute
    assert resolve_path(HERE, "hdfs://h/x") == "hdfs://h/x"


@pytest.mark.parametrize("path", ["..", "../x", "a/../../x", "a/..", "./a", "a/./b", "%2e%2e/x", "a/.%2E/x"])
def test_a_relative_path_that_climbs_is_refused(path: str) -> None:
    with pytest.raises(TableError, match=r"Rejected path .* outside the table at s3://lake/db/t"):
        resolve_path_all(HERE, column("good", path))


def test_dots_inside_names_are_harmless() -> None:
    assert resolve_path(HERE, "a..b/...c/.d") == f"{HERE}/a..b/...c/.d"


@given(st.sampled_from([HERE, HERE + "/", "file:/t", "/t"]), NAMES)
def test_a_stored_path_resolves_to_itself(location: str, name: str) -> None:
    path = f"{location.rstrip('/')}/{name}"
    stored = relativise_path(location, path)
    if scheme_of(stored) or stored != path:
        assert resolve_path(location, stored) == path


@pytest.mark.parametrize("rest", ["s3:x/y", "..", "a/../b", ""])
def test_a_path_whose_relative_form_would_mean_another_file_stays_absolute(rest: str) -> None:
    assert relativise_path(HERE, f"{HERE}/{rest}") == f"{HERE}/{rest}"


def test_only_paths_below_the_location_become_relative() -> None:
    paths = column(f"{HERE}/data/x", f"{HERE}2/data/x", "s3a://lake/db/t/data/x", HERE)
    assert relativise_path_all(HERE, paths).to_pylist() == ["data/x", *paths.to_pylist()[1:]]


@pytest.mark.parametrize(
    ("location", "prefix"),
    [("/t", "file:"), ("file:/t", "file:"), ("file:///t", "file://"), ("hdfs://h:1/t", "hdfs://h:1")],
)
def test_an_old_path_without_a_scheme_gets_that_of_the_location(location: str, prefix: str) -> None:
    assert with_scheme_all(location, column("/t/x", "s3://b/k")).to_pylist() == [f"{prefix}/t/x", "s3://b/k"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("file:///t/data/x", True),
        ("/t/x", True),
        ("/t//x", True),
        ("/t", False),
        ("/t/", False),
        ("/t/data/", False),
        ("/tt/x", False),
        ("/t/../t/x", False),
        ("/t/data/../../x", False),
        ("/t/%2e%2e/x", False),
        ("/t/./x", False),
        ("/t/a\nb", False),
        ("/t/a\0b", False),
        ("s3://t/x", False),
        ("t/x", False),
        ("file://host/t/x", False),
    ],
)
def test_inside_means_below_the_root_whatever_the_spelling(path: str, expected: bool) -> None:
    assert is_inside(path, "file:/t") is expected
    assert is_inside(path, "/t/") is expected


def test_a_root_may_itself_be_spelled_with_dots() -> None:
    assert is_inside("/a/../t/x", "/a/../t")


def test_several_roots_are_alternatives() -> None:
    found = is_inside_all(column("s3://a/x", "s3a://b/x", "s3://c/x"), ["s3://a", "s3://b"])
    assert found.to_pylist() == [True, True, False]
    assert is_inside_all(column("s3://a/x"), []).to_pylist() == [False]


@given(NAMES)
def test_nothing_inside_ends_up_elsewhere_on_disk(name: str) -> None:
    path = f"/lake/t/{name}"
    if is_inside(path, "/lake/t"):
        assert posixpath.normpath(path).startswith("/lake/t/")


def test_writing_or_deleting_outside_is_refused_with_the_path_and_the_roots() -> None:
    with pytest.raises(
        TableError, match=r"Rejected path '/etc/passwd' \(and 1 more\): cannot delete a path outside the table \(/t\)"
    ):
        refuse_outside(column("/t/x", "/etc/passwd", "/t/../u"), ["/t"], "delete")


@pytest.mark.parametrize("path", ["", "s3://lake/a\0b", "s3://lake/a\nb", "s3://lake/\x7f", "\x1b[31m"])
def test_paths_nobody_writes_honestly_are_refused_on_reading(path: str) -> None:
    with pytest.raises(TableError, match="Rejected path") as refused:
        refuse_unreadable(column(f"{HERE}/x", path), HERE)
    assert str(refused.value).isprintable()


def test_files_outside_the_table_may_be_read_unless_roots_say_otherwise() -> None:
    paths = column(f"{HERE}/data/x", "s3://elsewhere/imported/x")
    refuse_unreadable(paths, HERE)
    refuse_unreadable(paths, HERE, roots=["s3a://elsewhere"])
    with pytest.raises(TableError, match="'s3://elsewhere/imported/x': a path outside the table"):
        refuse_unreadable(paths, HERE, roots=[])


@pytest.mark.parametrize("path", ["/etc/passwd", "file:///etc/passwd", "FILE:/etc/passwd", "file://host/x"])
def test_a_remote_table_cannot_name_local_files(path: str) -> None:
    with pytest.raises(TableError, match="a local path outside the table"):
        refuse_unreadable(column(path), HERE)
    refuse_unreadable(column(path), "/t")
    if not path.startswith("file://host"):
        refuse_unreadable(column(path), HERE, roots=["/etc"])


ODD_NAMES = [
    "plain.parquet",
    "a b.parquet",
    "a%2Fb#c?d.parquet",
    "p=1,q='x' (1)~!*;@&=+$.parquet",
    'q"<>[]\\^`{|}.parquet',
    "é ñ 日本.parquet",
    "emoji🤯.parquet",
    "wide\u3000space\u00a0.parquet",
    "cafe\u0301.parquet",
    "100%.parquet",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_the_raw_path_comes_back_from_its_uri(name: str) -> None:
    [uri] = spark_uri_all(column(f"/t/{name}")).to_pylist()
    assert unquote(uri) == f"file:/t/{name}"


def test_spark_is_given_its_own_schemes() -> None:
    schemes = {"s3": "s3a", "s3a": "other"}
    assert spark_path("s3://b/s3/k", schemes) == "s3a://b/s3/k"
    assert spark_path("s3a://b/k", schemes) == "other://b/k"  # each path is mapped once
    assert spark_uri_all(column("s3://b/a b"), schemes).to_pylist() == ["s3a://b/a%20b"]
    assert spark_path("/x") == spark_path("file:///x") == "file:/x"


def test_spark_shows_a_path_as_its_uri(spark: Any, tmp_path: Path) -> None:
    places = [tmp_path / "x y%20#" / name for name in ODD_NAMES]
    for place in places:
        place.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [1]}), place)
    asked = [str(places[0].parent) + "//" + places[0].name, *map(str, places[1:])]
    read = spark.read.option("__globPaths__", "false").schema("id long").parquet(*map(spark_path, asked))
    shown = {row[0] for row in read.select("_metadata.file_path").collect()}
    assert shown == set(spark_uri_all(column(*asked)).to_pylist())


@given(st.lists(st.lists(st.sampled_from(["a", ".", "..", "/", "b.c", ":", "%2e", "x/", "/y", "é"]), max_size=5)))
def test_resolving_many_paths_at_once_is_resolving_each(parts):
    column = pa.array(["".join(p) for p in parts], pa.string())

    def attempt(values):
        try:
            return resolve_path_all("file:/t", values).to_pylist()
        except TableError:
            return TableError

    alone = [attempt(column.slice(i, 1)) for i in range(len(column))]
    expected = TableError if TableError in alone else [found[0] for found in alone]
    assert attempt(column) == expected
