"""Functions and classes of modules that are loaded when they are called for.

Spark and PyIceberg take seconds to load. Help, completion and wrong usage need neither, so the modules of the command
line import light things only; the `neve` package loads its names late by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["is_a", "late"]


def late(module: str, name: str) -> Callable[..., Any]:
    """A function that loads its module on the first call."""

    def call(*given: Any, **named: Any) -> Any:
        return getattr(import_module(module), name)(*given, **named)

    return call


def is_a(value: object, *classes: tuple[str, str]) -> bool:
    """Whether a value is of one of some classes, told by module and name; a class that is not there is an error."""
    return isinstance(value, tuple(getattr(import_module(module), name) for module, name in classes))
