"""How much is tried: a spread of everything in `make test`, all of it in `make soak` and `make proof`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from zlib import crc32

import pytest

T = TypeVar("T")

IS_SEARCH = os.environ.get("HYPOTHESIS_PROFILE") == "search"
IS_FULL = os.environ.get("NEVE_PROOF") == "all"
WANTS_ALL_CASES = os.environ.get("NEVE_CASES") == "all"
IS_LONG = IS_SEARCH or IS_FULL or WANTS_ALL_CASES


def spread(choices: Iterable[T], every: int) -> list[T]:
    """All of some choices in the long tests, else every n-th; take an n that divides no factor of a product."""
    return list(choices)[:: 1 if IS_LONG else every]


def own(name: str, choices: Sequence[T]) -> list[T]:
    """All of some choices in the long tests, else the one that falls to a name; many names meet all of them."""
    return list(choices) if IS_LONG else [choices[crc32(name.encode()) % len(choices)]]


def on_versions(*versions: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Play a test on some versions of the format; in `make test` on the one of them that falls to its name."""
    return lambda test: pytest.mark.parametrize("version", own(test.__name__, versions))(test)
