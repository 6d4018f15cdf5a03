"""Where files are: what a path string means, when two of them are the same file, and which ones are refused.

Iceberg stores paths as raw strings, in which nothing is percent-encoded; Spark shows them as URIs, in which much is.

Reading: a data file may lie anywhere, since imported files and `write.data.path` are legal. Refused are the paths that
nobody writes honestly: empty ones, control characters, a local path named by a table that is not local, which would
show readers their own machine, and relative ones, which would be looked for wherever the reader was started. In format
version 4 paths are relative to the table, and refused are those with `.` or `..` segments, which would leave it.
`roots` narrows reading to given places.

Writing and deleting: only below the given roots, judged by text: no `.` or `..` after the root, not even
percent-encoded. Symbolic links are looked at where files are deleted.

Comparing: by `canonical`, never by the stored text.

Functions that end in `_all` take and return Arrow columns of strings; nulls stay null.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

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
_NEEDS_QUOTING = r"[^A-Za-z0-9\-_.!~*'():@&=+$,;/]"  # what Java does not leave alone in the path of a URI
_NEEDS_NORMALISING = r"//.*//|:/[^/].*//|/\.|/$"
_COLON, _PERCENT, _DOT, _SLASH = b":%./"
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "wasb"}


def scheme_of(path: str) -> str | None:
    """The URI scheme in lower case, or None. Format version 4 calls a path relative when it has none."""
    found = re.match(_SCHEME, path)
    return found[0][:-1].lower() if found else None


def local_path(path: str) -> str | None:
    """The operating system's name of a local file, or None for a file that is elsewhere."""
    found = _LOCAL.fullmatch(path)
    return found[1] if found else None


def canonical_path(path: str) -> str:
    """The one spelling of a path, for comparing.

    >>> canonical("/x") == canonical("file:///x") == "file:/x", canonical("s3a://b/k")
    (True, 's3://b/k')
    """
    return _first_path(canonical_path_all(_as_column(path)))


def canonical_path_all(paths: Column) -> pa.Array:
    """`canonical` of a column."""
    column = _with_local_scheme(combine_chunks(paths))
    doubled = pc.and_(_is_short_file_uri(column), pc.match_substring(column, "//"))
    if _any_true(doubled):  # an object store tells `a//b` from `a/b`, a local file system does not
        column = pc.if_else(doubled, pc.replace_substring_regex(column, "/{2,}", "/"), column)
    return _with_schemes(column, _SAME_SCHEME)


def resolve_path(location: str, path: str) -> str:
    """The absolute form of a path stored in a format version 4 table."""
    return _first_path(resolve_path_all(location, _as_column(path)))


def resolve_path_all(location: str, paths: Column) -> pa.Array:
    """`resolve` of a column. Nothing is normalised: the location, a slash, the path."""
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
    """Whether no path can have a scheme or a segment of dots, by one look at the bytes of all of them together."""
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
    edges = offsets[np.r_[True, offsets[1:] > offsets[:-1]]] - offsets[0]  # where paths begin, and those before end
    at_edge = (data[edges[:-1]] == _DOT) | (data[edges[1:] - 1] == _DOT)
    return not beside_slash.any() and not at_edge.any()


def relativise_path(location: str, path: str) -> str:
    """The form in which format version 4 stores a path: relative when it lies below the table location."""
    return _first_path(relativise_path_all(location, _as_column(path)))


def relativise_path_all(location: str, paths: Column) -> pa.Array:
    """`relativise` of a column. A path stays absolute when its relative form would be read as something else."""
    column, prefix = combine_chunks(paths), location.rstrip("/") + "/"
    rest = pc.utf8_slice_codeunits(column, len(prefix))
    misread = pc.match_substring_regex(rest, f"^$|{_SCHEME}|{_DOT_SEGMENTS}")
    return pc.if_else(pc.and_not(pc.starts_with(column, prefix), misread), rest, column)


def location_from_property(location: str, value: str) -> str:
    """The place that a property of a table names: below the table's location unless it is absolute.

    Without a scheme it gets that of the location: version 4 would take it for a place below the table.

    >>> [named_place("s3://b/t", asked) for asked in ("files", "s3://other/files/", "/files")]
    ['s3://b/t/files', 's3://other/files', 's3://b/files']
    """
    value = value.rstrip("/")
    if value.startswith("/") and scheme_of(location) is not None:
        return _first_path(with_scheme_all(location, _as_column(value)))
    return value if _is_absolute(value) else f"{location.rstrip('/')}/{value}"


def with_scheme_all(location: str, paths: Column) -> pa.Array:
    """Paths of manifests older than format version 4, absolute even without a scheme: they get that of the location."""
    column = combine_chunks(paths)
    host = re.match(r"[^/]*(?://[^/]*)?", location)[0] if scheme_of(location) else "file:"  # type: ignore[index]
    return pc.if_else(pc.starts_with(column, "/"), pc.binary_join_element_wise(host, column, ""), column)


def is_inside(path: str, *roots: str) -> bool:
    """Whether a path lies below one of the roots."""
    return is_inside_all(_as_column(path), roots)[0].as_py() is True


def is_inside_all(paths: Column, roots: Sequence[str]) -> pa.Array:
    """`inside` of a column: by text, and only where no segment could climb out again."""
    column = canonical_path_all(paths)
    found = pc.and_(pc.is_null(column), False)
    for root in roots:
        prefix = canonical_path(root).rstrip("/") + "/"
        rest = pc.utf8_slice_codeunits(column, len(prefix))
        climbs = pc.match_substring_regex(rest, f"^$|/$|{_CONTROL}|{_DOT_SEGMENTS}")
        found = pc.or_(found, pc.and_not(pc.starts_with(column, prefix), climbs))
    return found


def may_be_table_location(location: str, metadata_location: str) -> bool:
    """Whether a place that metadata claims may be the table's, judged by the metadata file that the catalog names.

    That file lies in a folder just below the table, or somewhere else altogether. What lies further above it is not the
    table's, and neither is a whole disk, nor a bucket that has the file elsewhere.
    """
    own, folder = canonical_path(location).rstrip("/"), canonical_path(metadata_location).rsplit("/", 1)[0]
    if folder.rsplit("/", 1)[0] == own:
        return own != "file:"
    return has_folders(own) and _is_absolute(location) and not is_inside(folder, location)


def has_folders(location: str) -> bool:
    """Whether a place is more than a disk or a bucket, and does not climb."""
    path = re.sub(r"^[^/:]*:(//[^/]*)?", "", location)
    return bool(path.strip("/")) and not {".", ".."} & set(path.split("/"))


def refuse_outside(paths: Column, roots: Sequence[str], action: str) -> None:
    """Raise when a path to be written or deleted is not below one of the roots."""
    places = ", ".join(roots) or "no place"
    _refuse(
        combine_chunks(paths),
        pc.invert(is_inside_all(paths, roots)),
        f"cannot {action} a path outside the table ({places})",
    )


def refuse_unreadable(paths: Column, location: str, roots: Sequence[str] | None = None) -> None:
    """Raise when a path must not be followed even for reading, or when roots are given and it is not below any."""
    column = combine_chunks(paths)
    _refuse(column, pc.equal(pc.binary_length(column), 0), f"a file of the table at {location} has no path")
    _refuse(
        column, pc.match_substring_regex(column, _CONTROL), f"control characters in a path of the table at {location}"
    )
    if _is_absolute(location):
        _refuse(column, pc.invert(pc.match_substring_regex(column, _ABSOLUTE)), f"a relative path in {location}")
    if roots is not None:
        outside = pc.invert(is_inside_all(column, (location, *roots)))
        _refuse(column, outside, f"a path outside the table at {location} and the allowed places")
    elif scheme_of(location) not in (None, "file"):
        _refuse(column, _looks_local(column), f"a local path outside the table at {location}")


def _is_absolute(path: str) -> bool:
    return re.match(_ABSOLUTE, path) is not None


def spark_path(path: str, schemes: Mapping[str, str] | None = None) -> str:
    """The path to hand to Spark.

    Local paths say so, since Spark's default file system may be another; `schemes` names its connectors: {"s3": "s3a"}.
    """
    return _first_path(spark_path_all(_as_column(path), schemes))


def spark_path_all(paths: Column, schemes: Mapping[str, str] | None = None) -> pa.Array:
    """`spark_path` of a column."""
    return _with_schemes(_with_local_scheme(combine_chunks(paths)), schemes or {})


def spark_uri(path: str, schemes: Mapping[str, str] | None = None) -> str:
    """What Spark shows as `_read_metadata_table.file_path` for a file read from `spark_path`."""
    return _first_path(spark_uri_all(_as_column(path), schemes))


def spark_uri_all(paths: Column, schemes: Mapping[str, str] | None = None) -> pa.Array:
    """`spark_uri` of a column."""
    column = spark_path_all(paths, schemes)
    return _apply_where(column, pc.match_substring_regex(column, f"{_NEEDS_QUOTING}|{_NEEDS_NORMALISING}"), _java_uri)


def from_spark_uri_all(uris: Column) -> pa.Array:
    """The raw paths behind a column of `_read_metadata_table.file_path`, with Spark's schemes."""
    column = combine_chunks(uris)
    return _apply_where(column, pc.match_substring(column, "%"), unquote)


def _java_uri(path: str) -> str:
    """A path as `java.net.URI` prints it: normalised, quoted, letters of other alphabets left alone."""
    scheme, authority, rest = re.fullmatch(r"([^:/]+:)?(//[^/]*)?(.*)", path, re.DOTALL).groups("")  # type: ignore[union-attr]
    rest = posixpath.normpath(re.sub("/{2,}", "/", rest)) if rest else ""
    return scheme + authority + re.sub(_NEEDS_QUOTING, _quoted, rest)


def _quoted(found: re.Match[str]) -> str:
    letter = found[0]
    is_plain = ord(letter) > 127 and unicodedata.category(letter) not in ("Cc", "Zs", "Zl", "Zp")
    return letter if is_plain else quote(letter, safe="")


def _with_local_scheme(column: pa.Array) -> pa.Array:
    """Local paths as `file:/x`. The usual spellings take no regular expression, which costs a microsecond a path."""
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


def _apply_where(column: pa.Array, mask: pa.Array, change: Callable[[str], str]) -> pa.Array:
    """A column whose chosen rows, few as a rule, go through a Python function."""
    mask = pc.fill_null(mask, False)
    if not _any_true(mask):
        return column
    changed = pa.array([change(path) for path in column.filter(mask).to_pylist()], column.type)
    return pc.replace_with_mask(column, mask, changed)


def _refuse(column: pa.Array, bad: pa.Array, why: str) -> None:
    if _any_true(bad):
        found = column.filter(bad)
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise TableError(f"Refused path {found[0].as_py()!r}{more}: {why}.")


def _any_true(flags: pa.Array) -> bool:
    return pc.any(flags).as_py() is True


def _as_column(path: str) -> pa.Array:
    return pa.array([path], pa.string())


def _first_path(column: pa.Array) -> str:
    return str(column[0].as_py())
