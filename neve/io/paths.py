"""File paths: what a stored path means, when two paths are the same file, and which paths are rejected.

Iceberg stores paths as raw strings without percent-encoding; Spark shows them as percent-encoded URIs.

Reading: a data file may be anywhere, since imported files and `write.data.path` are legal. Paths that no honest writer
produces are rejected: empty ones, control characters, a local path in a table that is not local (it would expose files
of the reader's machine), and relative ones (they would depend on the reader's working directory). In format version 4
paths are relative to the table, and those with `.` or `..` segments are rejected, because they could leave the table.
`roots` limits reading to the given locations.

Writing and deleting: only below the given roots. This is decided by text: no `.` or `..` after the root, not even
percent-encoded. Symbolic links are checked when files are deleted.

Comparing: by `canonical_path`, never by the stored text; before files are deleted by `real_path`, because a folder may
have two names.

Functions that end in `_all` take and return Arrow columns of strings; nulls stay null.
"""

from __future__ import annotations

import os
import posixpath
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import TableError
from neve.model.values import combine_chunks

Column = Any  # pa.Array or pa.ChunkedArray

_SCHEME = r"^[A-Za-z][A-Za-z0-9+.\-]*:"
_ABSOLUTE = f"{_SCHEME}|^/"
_FILE_SCHEME = r"^(?i:file):"
_LOCAL_ROOT = r"^/+|^file:/{3,}|^file://(?i:localhost)/+"
_LOCAL = re.compile(r"(?i)(?:file:(?=/(?!/))|file://(?:localhost)?(?=/)|(?=/))(.*)", re.DOTALL)
_CONTROL = r"[\x00-\x1f\x7f]"
_DOT_SEGMENTS = r"(?:^|/)(?:\.|%2[eE]){1,2}(?:/|$)"
_NEEDS_QUOTING = r"[^A-Za-z0-9\-_.!~*'():@&=+$,;/]"  # characters that Java quotes in the path of a URI
_NEEDS_NORMALISING = r"//.*//|:/[^/].*//|/\.|/$"
_COLON, _PERCENT, _DOT, _SLASH = b":%./"
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "wasb"}


def scheme_of(path: str) -> str | None:
    """Return the URI scheme in lower case, or None. In format version 4 a path without a scheme is relative."""
    scheme = re.match(_SCHEME, path)
    return scheme[0][:-1].lower() if scheme else None


def local_path(path: str) -> str | None:
    """Return the operating system's path of a local file, or None for any other file."""
    local = _LOCAL.fullmatch(path)
    return local[1] if local else None


def canonical_path(path: str) -> str:
    """Return the canonical form of a path, for comparing.

    >>> canonical_path("/x") == canonical_path("file:///x") == "file:/x", canonical_path("s3a://b/k")
    (True, 's3://b/k')
    """
    return _first_path(canonical_path_all(_as_column(path)))


def canonical_path_all(paths: Column) -> pa.Array:
    """Apply `canonical_path` to a column."""
    column = _with_local_scheme(combine_chunks(paths))
    doubled = pc.and_(_is_short_file_uri(column), pc.match_substring(column, "//"))
    if _any_true(doubled):  # `a//b` is `a/b` in a local file system, but not in an object store
        column = pc.if_else(doubled, pc.replace_substring_regex(column, "/{2,}", "/"), column)
    return _with_schemes(column, _SAME_SCHEME)


def real_path(path: str) -> str:
    """Return the canonical form of a path; of a local one without symbolic links in its folders.

    >>> real_path("file:///a//b/c") == real_path("/a/b/c") == "file:/a/b/c"
    True
    """
    return _first_path(real_path_all(_as_column(path)))


def real_folder(folder: str) -> str:
    """Return the canonical form of a folder; of a local one without symbolic links."""
    return real_path(f"{folder}/").rstrip("/")


def real_path_all(paths: Column) -> pa.Array:
    """Apply `real_path` to a column; each folder is looked up once."""
    column = canonical_path_all(paths)
    is_local = pc.fill_null(_is_short_file_uri(column), False)
    if not _any_true(is_local):
        return column
    parts = pc.split_pattern(column.filter(is_local), "/", max_splits=1, reverse=True)
    folders, names = (pc.list_element(parts, i) for i in range(2))
    encoded = folders.dictionary_encode()
    real_folders = pa.array(map(_without_links, encoded.dictionary.to_pylist()), column.type)
    real = pc.binary_join_element_wise(real_folders.take(encoded.indices), names, "/")
    return pc.replace_with_mask(column, is_local, real)


def _without_links(folder: str) -> str:
    """Return the canonical form of a local folder without symbolic links."""
    local = folder.removeprefix("file:") or "/"
    real = local if "\0" in local else os.path.realpath(local)  # no file has such a name, and Python rejects it
    return f"file:{real.rstrip('/')}"


def resolve_path(location: str, path: str) -> str:
    """Return the absolute form of a path stored in a format version 4 table."""
    return _first_path(resolve_path_all(location, _as_column(path)))


def resolve_path_all(location: str, paths: Column) -> pa.Array:
    """Apply `resolve_path` to a column. Nothing is normalized: the result is the location, a slash, the path."""
    column = combine_chunks(paths)
    if _all_clearly_relative(column):
        return pc.utf8_replace_slice(column, 0, 0, f"{location.rstrip('/')}/")
    is_relative = pc.invert(pc.match_substring_regex(column, _SCHEME))
    if not _any_true(is_relative):
        return column
    escapes = pc.and_(is_relative, pc.match_substring_regex(column, _DOT_SEGMENTS))
    _refuse(column, escapes, f"a relative path with `.` or `..` leads outside the table at {location}")
    return pc.if_else(is_relative, pc.binary_join_element_wise(location.rstrip("/"), column, "/"), column)


def _all_clearly_relative(column: pa.Array) -> bool:
    """Check all bytes at once: return True if no path can have a scheme or a `.` or `..` segment."""
    if not len(column) or not pa.types.is_string(column.type) or column.null_count:
        return False
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    text = memoryview(column.buffers()[2] or b"")[offsets[0] : offsets[-1]]
    data = np.frombuffer(text, np.uint8)
    if (data == _COLON).any() or (data == _PERCENT).any():
        return False
    dots = np.flatnonzero(data == _DOT)
    bordered = np.concatenate([[_SLASH], data, [_SLASH]])
    beside_slash = (bordered[dots] == _SLASH) | (bordered[dots + 2] == _SLASH)
    edges = offsets[np.r_[True, offsets[1:] > offsets[:-1]]] - offsets[0]  # where paths start and end
    at_edge = (data[edges[:-1]] == _DOT) | (data[edges[1:] - 1] == _DOT)
    return not beside_slash.any() and not at_edge.any()


def relativise_path_all(location: str, paths: Column) -> pa.Array:
    """Return the form in which format version 4 stores paths: relative if a path is below the table location.

    A path stays absolute if its relative form would be misread.
    """
    column, prefix = combine_chunks(paths), location.rstrip("/") + "/"
    relative = pc.utf8_slice_codeunits(column, len(prefix))
    misread = pc.match_substring_regex(relative, f"^$|{_SCHEME}|{_DOT_SEGMENTS}")
    return pc.if_else(pc.and_not(pc.starts_with(column, prefix), misread), relative, column)


def location_from_property(location: str, value: str) -> str:
    """Return the location that a table property names: below the table's location unless it is absolute.

    An absolute path without a scheme gets the scheme of the table's location: version 4 would treat it as relative.

    >>> [location_from_property("s3://b/t", value) for value in ("files", "s3://other/files/", "/files")]
    ['s3://b/t/files', 's3://other/files', 's3://b/files']
    """
    value = value.rstrip("/")
    if value.startswith("/") and scheme_of(location) is not None:
        return _first_path(with_scheme_all(location, _as_column(value)))
    return value if _is_absolute(value) else f"{location.rstrip('/')}/{value}"


def with_scheme_all(location: str, paths: Column) -> pa.Array:
    """Add the location's scheme to absolute paths without one, as manifests before format version 4 contain them."""
    column = combine_chunks(paths)
    host = re.match(r"[^/]*(?://[^/]*)?", location)[0] if scheme_of(location) else "file:"  # type: ignore[index]
    return pc.if_else(pc.starts_with(column, "/"), pc.binary_join_element_wise(host, column, ""), column)


def is_inside(path: str, *roots: str) -> bool:
    """Return whether a path is below one of the roots."""
    return is_inside_all(_as_column(path), roots)[0].as_py() is True


def is_inside_all(paths: Column, roots: Sequence[str]) -> pa.Array:
    """Apply `is_inside` to a column. A path that could leave the root by `.` or `..` segments is not inside."""
    column = canonical_path_all(paths)
    inside = pc.and_(pc.is_null(column), False)
    for root in roots:
        prefix = canonical_path(root).rstrip("/") + "/"
        relative = pc.utf8_slice_codeunits(column, len(prefix))
        unsafe = pc.match_substring_regex(relative, f"^$|/$|{_CONTROL}|{_DOT_SEGMENTS}")
        inside = pc.or_(inside, pc.and_not(pc.starts_with(column, prefix), unsafe))
    return inside


def may_be_table_location(location: str, metadata_location: str) -> bool:
    """Check the table location in a metadata file against the location of that file, which the catalog names.

    The file must be in a folder directly below the table location, or outside of it. So a location further up is
    rejected. A whole disk is always rejected, a bucket unless the file is in a folder directly below it.
    """
    own, folder = canonical_path(location).rstrip("/"), canonical_path(metadata_location).rsplit("/", 1)[0]
    if folder.rsplit("/", 1)[0] == own:
        return own != "file:"
    return has_folders(own) and _is_absolute(location) and not is_inside(folder, location)


def has_folders(location: str) -> bool:
    """Return whether a location is more than a disk or a bucket, and has no `.` or `..` segments."""
    path = re.sub(r"^[^/:]*:(//[^/]*)?", "", location)
    return bool(path.strip("/")) and not {".", ".."} & set(path.split("/"))


def why_not_a_place(location: str) -> str:
    """Return why a table cannot be meant to be at a location; empty if it can.

    >>> why_not_a_place("/"), why_not_a_place("file:///data/t")
    ('it is a whole disk', '')
    """
    rest = re.sub(r"^[^/:]*:(//[^/]*)?", "", location)
    is_local, authority = scheme_of(location) in (None, "file"), re.match(r"[^/:]*://([^/]*)", location)
    if {".", ".."} & set(rest.split("/")):
        return "it has the segments `.` or `..`"
    if is_local and not rest.strip("/"):
        return "it is a whole disk"
    if is_local and local_path(location) is None:
        return "local files have no host and an absolute path, as in file:///folder/table"
    return "" if is_local or authority is None or authority[1] else "it names no bucket"


def refuse_outside(paths: Column, roots: Sequence[str], action: str) -> None:
    """Raise an error if a path to be written or deleted is not below one of the roots."""
    why = f"cannot {action} a path outside the table ({', '.join(roots) or 'no locations'})"
    _refuse(combine_chunks(paths), pc.invert(is_inside_all(paths, roots)), why)


def refuse_unreadable(paths: Column, location: str, roots: Sequence[str] | None = None) -> None:
    """Raise an error if a path must not even be read, or if roots are given and the path is not below any."""
    column = combine_chunks(paths)
    _refuse(column, pc.equal(pc.binary_length(column), 0), f"a file of the table at {location} has no path")
    has_control = pc.match_substring_regex(column, _CONTROL)
    _refuse(column, has_control, f"control characters in a path of the table at {location}")
    if _is_absolute(location):
        _refuse(column, pc.invert(pc.match_substring_regex(column, _ABSOLUTE)), f"a relative path in {location}")
    if roots is not None:
        outside = pc.invert(is_inside_all(column, (location, *roots)))
        _refuse(column, outside, f"a path outside the table at {location} and the allowed locations")
    elif scheme_of(location) not in (None, "file"):
        _refuse(column, _looks_local(column), f"a local path outside the table at {location}")


def _is_absolute(path: str) -> bool:
    return re.match(_ABSOLUTE, path) is not None


@dataclass(frozen=True, slots=True)
class PrefixChange:
    """A folder, and the folder that takes its place at the beginning of paths.

    Paths are compared in canonical form, so every spelling of the old folder is found: `/x`, `file:/x`, `file:///x`.

    >>> change = PrefixChange("file:///lake/t", "s3://b/t")
    >>> change.apply("/lake/t/data/f.parquet"), change.apply("/lake/t/"), change.apply("/lake/t2/f")
    ('s3://b/t/data/f.parquet', 's3://b/t', '/lake/t2/f')
    """

    source: str
    target: str

    def includes_all(self, paths: Column) -> pa.Array:
        """Return which paths are below the old folder."""
        return pc.fill_null(pc.starts_with(canonical_path_all(paths), f"{self._folder}/"), False)

    def apply_all(self, paths: Column) -> pa.Array:
        """Return the paths in the new folder; a path that is not below the old one stays as it is."""
        column, canonical = combine_chunks(paths), canonical_path_all(paths)
        # The folder itself becomes the other folder; everything below it keeps the rest of its path.
        rest = pc.utf8_slice_codeunits(canonical, len(self._folder))
        moved = pc.binary_join_element_wise(self.target.rstrip("/"), pc.if_else(pc.equal(rest, "/"), "", rest), "")
        is_moved = pc.or_(pc.equal(canonical, self._folder), pc.starts_with(canonical, f"{self._folder}/"))
        return pc.if_else(pc.fill_null(is_moved, False), moved, column)

    def apply(self, path: str) -> str:
        """Return one path in the new folder."""
        return _first_path(self.apply_all(_as_column(path)))

    @property
    def _folder(self) -> str:
        return canonical_path(self.source).rstrip("/")


def spark_path_all(paths: Column, schemes: Mapping[str, str] | None = None) -> pa.Array:
    """Return the paths to pass to Spark.

    Local paths get the scheme `file`, since Spark's default file system may be another. `schemes` maps schemes to those
    of Spark's connectors, such as {"s3": "s3a"}.
    """
    return _with_schemes(_with_local_scheme(combine_chunks(paths)), schemes or {})


def spark_uri_all(paths: Column, schemes: Mapping[str, str] | None = None) -> pa.Array:
    """Return what Spark shows as `_metadata.file_path` for files read from `spark_path_all`."""
    column = spark_path_all(paths, schemes)
    is_odd = pc.fill_null(pc.match_substring_regex(column, f"{_NEEDS_QUOTING}|{_NEEDS_NORMALISING}"), False)
    if not _any_true(is_odd):
        return column
    uris = pa.array([_java_uri(path) for path in column.filter(is_odd).to_pylist()], column.type)
    return pc.replace_with_mask(column, is_odd, uris)


def _java_uri(path: str) -> str:
    """Format a path as `java.net.URI` does: normalized and quoted, except for letters of other alphabets."""

    def quote_letter(match: re.Match[str]) -> str:
        letter = match[0]
        is_plain = ord(letter) > 127 and unicodedata.category(letter) not in ("Cc", "Zs", "Zl", "Zp")
        return letter if is_plain else quote(letter, safe="")

    scheme, authority, rest = re.fullmatch(r"([^:/]+:)?(//[^/]*)?(.*)", path, re.DOTALL).groups("")  # type: ignore[union-attr]
    rest = posixpath.normpath(re.sub("/{2,}", "/", rest)) if rest else ""
    return scheme + authority + re.sub(_NEEDS_QUOTING, quote_letter, rest)


def _with_local_scheme(column: pa.Array) -> pa.Array:
    """Write local paths as `file:/x`. Common forms skip the regular expressions, which take a microsecond per path."""
    if not _any_true(_looks_local(column)):
        return column
    shortened = pc.replace_substring(column, "file:///", "file:/", max_replacements=1)
    column = pc.if_else(pc.starts_with(column, "file:///"), shortened, column)
    if not _any_true(pc.and_not(_looks_local(column), _is_short_file_uri(column))):
        return column
    column = pc.replace_substring_regex(column, _FILE_SCHEME, "file:")
    return pc.replace_substring_regex(column, _LOCAL_ROOT, "file:/")


def _is_short_file_uri(column: pa.Array) -> pa.Array:
    return pc.and_not(pc.starts_with(column, "file:/"), pc.starts_with(column, "file://"))


def _looks_local(column: pa.Array) -> pa.Array:
    return pc.or_(pc.starts_with(column, "/"), pc.starts_with(column, "file:", ignore_case=True))


def _with_schemes(column: pa.Array, schemes: Mapping[str, str]) -> pa.Array:
    result = column
    for old, new in schemes.items():
        has_old = pc.starts_with(column, f"{old}:")
        if _any_true(has_old):
            result = pc.if_else(has_old, pc.replace_substring(column, old, new, max_replacements=1), result)
    return result


def _refuse(column: pa.Array, bad: pa.Array, why: str) -> None:
    if _any_true(bad):
        paths = column.filter(bad)
        more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
        raise TableError(f"Rejected path {paths[0].as_py()!r}{more}: {why}.")


def _any_true(flags: pa.Array) -> bool:
    return pc.any(flags).as_py() is True


def _as_column(path: str) -> pa.Array:
    return pa.array([path], pa.string())


def _first_path(column: pa.Array) -> str:
    return str(column[0].as_py())
