"""Functions of modules that are loaded when they are called.

Spark and PyIceberg take seconds to load. Help, completion and wrong usage need neither, so the modules of the command
line import light things only; the `neve` package loads its names late by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["late"]


def late(module: str, name: str) -> Callable[..., Any]:
    """A function that loads its module on the first call."""

    def call(*given: Any, **named: Any) -> Any:
        return getattr(import_module(module), name)(*given, **named)

    return call
