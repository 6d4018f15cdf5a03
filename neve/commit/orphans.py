"""Which stored files nothing leads to, told by their paths.

Two paths name one file when their place below scheme and authority is the same and those count as equal. When only the
place is the same, nobody can tell: `hdfs://a/x` and `hdfs://b/x` may be two names of one cluster, or two clusters. That
is a mismatch, and the caller says what becomes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import UserError
from neve.io.files import PART
from neve.io.paths import canonical_all

__all__ = ["Prefixes", "Sorted", "hidden", "sort_out"]

_URI = r"(?s)^(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*):)?(?://(?P<authority>[^/]*))?(?P<place>.*)$"


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Schemes and authorities that count as the same; s3, s3a and s3n do anyway."""

    schemes: Mapping[str, str] = field(default_factory=dict)
    authorities: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, schemes: Mapping[str, str], authorities: Mapping[str, str]) -> Prefixes:
        """From mappings whose keys may be lists with commas: `{"s3a,s3n": "s3"}`."""
        return cls(_flat(schemes), _flat(authorities))

    def split(self, paths: Any) -> pa.Table:
        """Scheme, authority and place of each path, in the one spelling of those that count as the same."""
        parts = pc.extract_regex(canonical_all(paths), _URI)
        scheme, authority, place = (parts.field(i) for i in range(3))
        columns = (_mapped(pc.utf8_lower(scheme), self.schemes), _mapped(authority, self.authorities), place)
        return pa.table(dict(zip(("scheme", "authority", "place"), columns, strict=True)))


@dataclass(frozen=True)
class Sorted:
    """Stored files by what is known of them, as masks."""

    orphans: pa.Array  # no known file lies in the same place
    mismatches: pa.Array  # one does, below another scheme or authority


def sort_out(stored: Any, known: Any, prefixes: Prefixes) -> Sorted:
    """Tell stored files that nothing leads to from those that are known; both are columns of paths."""
    there, here = prefixes.split(known), prefixes.split(stored)
    in_place = pc.is_in(here["place"], value_set=there["place"]).combine_chunks()
    same = pa.nulls(len(here), pa.bool_()).fill_null(False)
    for scheme, authority in ((True, True), (True, False), (False, True), (False, False)):
        # A known path that does not say its scheme or authority is the same file under any.
        fits = there.filter(pc.and_(_says(there["scheme"], scheme), _says(there["authority"], authority)))
        same = pc.or_(same, pc.is_in(_keys(here, scheme, authority), value_set=_keys(fits, scheme, authority)))
    return Sorted(pc.invert(in_place), pc.and_not(in_place, same))


def hidden(stored: Any, location: str, field_names: Iterable[str]) -> pa.Array:
    """Which stored files engines take no notice of: below a name that starts with a dot or an underscore.

    Not so a folder of a partition field with such a name, nor what a killed writer of this engine left.
    """
    below = pc.utf8_slice_codeunits(stored, len(location.rstrip("/")))
    for name in (n for n in field_names if n.startswith(("_", "."))):
        below = pc.replace_substring(below, f"/{name}=", "/=")
    return pc.and_not(pc.match_substring_regex(below, r"/[._]"), pc.match_substring_regex(stored, PART))


def _says(column: Any, does: bool) -> Any:
    stated = pc.not_equal(column, "")
    return stated if does else pc.invert(stated)


def _keys(parts: pa.Table, scheme: bool, authority: bool) -> pa.Array:
    names = [n for n, wanted in (("scheme", scheme), ("authority", authority), ("place", True)) if wanted]
    return pc.binary_join_element_wise(*(parts[n] for n in names), "\0").combine_chunks()


def _mapped(column: Any, same: Mapping[str, str]) -> Any:
    for name, other in same.items():
        column = pc.if_else(pc.equal(column, name), other, column)
    return column


def _flat(same: Mapping[str, str]) -> dict[str, str]:
    found = {name.strip(): other.strip() for names, other in same.items() for name in names.split(",")}
    if chained := sorted(other for name, other in found.items() if found.get(other, other) != other):
        raise UserError(f"Cannot tell what counts as {chained[0]!r}: it is said to be the same as another. Name one.")
    return found
