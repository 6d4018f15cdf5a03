"""Conditions on rows: parse SQL text and PyIceberg expressions into one normal form."""

from neve.predicate.normalize import normalize_expression
from neve.predicate.parse import Predicate, columns_of, parse

__all__ = ["Predicate", "columns_of", "normalize_expression", "parse"]
