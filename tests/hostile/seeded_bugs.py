"""Bugs that are planted in the product to check that the harness finds them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

import neve.commit.cleanup
import neve.commit.reachable_files
import neve.io.deletion_vectors
import neve.io.files
import neve.model.metadata
from neve.io.avro import container
from neve.io.avro.schema import Limits


def no_path_check() -> None:
    """Treat every path as inside the table."""
    for module in (neve.commit.reachable_files, neve.commit.cleanup):
        module.is_inside_all = lambda paths, roots: pa.array([True] * len(paths), pa.bool_())
    neve.io.files.refuse_outside = lambda paths, roots, doing: None
    neve.io.files._is_really_inside = lambda target, roots: True


def no_checksum() -> None:
    """Accept vectors with any checksum."""
    neve.io.deletion_vectors.zlib = type("Same", (), {"crc32": staticmethod(lambda body: _Any())})


class _Any(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def no_limit() -> None:
    """Inflate blocks without a limit."""
    Limits.inflated_budget = lambda self, stored: 1 << 40  # type: ignore[method-assign]
    # In one piece: a growing buffer would hit the limit of the process before that of the case.
    container.DECOMPRESSORS["deflate"] = lambda data, budget: __import__("zlib").decompress(data, -15, (1 << 30) + 1)


def no_naming() -> None:
    """Let errors of libraries through unchanged."""
    neve.model.metadata.ValidationError = type("Never", (Exception,), {})
    neve.model.metadata.CorruptFile = lambda path, expected, found: KeyError(found)


PLANTS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "no path check": no_path_check,
    "no checksum": no_checksum,
    "no limit": no_limit,
    "no naming": no_naming,
}


def plant(name: str) -> None:
    PLANTS[name]()
