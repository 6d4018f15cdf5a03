"""Conditions on rows: SQL text and PyIceberg expressions in one normal form."""

from neve.predicate.normalize import normal
from neve.predicate.parse import Predicate, columns_of, parse

__all__ = ["Predicate", "columns_of", "normal", "parse"]
