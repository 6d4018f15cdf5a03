"""Conditions on rows: SQL text and PyIceberg expressions in one normal form."""

from neve.predicate.normal import normal
from neve.predicate.parse import Predicate, columns_of, parse
from neve.predicate.render import sql_of

__all__ = ["Predicate", "columns_of", "normal", "parse", "sql_of"]
