"""How much is tried: a spread of everything in `make test`, all of it in `make soak` and `make proof`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

IS_SEARCH = os.environ.get("HYPOTHESIS_PROFILE") == "search"
IS_FULL = os.environ.get("NEVE_PROOF") == "all"
WANTS_ALL_CASES = os.environ.get("NEVE_CASES") == "all"
IS_LONG = IS_SEARCH or IS_FULL or WANTS_ALL_CASES


def spread(choices: Iterable[T], every: int) -> list[T]:
    """All of some choices in the long tests, else every n-th; take an n that divides no factor of a product."""
    return list(choices)[:: 1 if IS_LONG else every]
