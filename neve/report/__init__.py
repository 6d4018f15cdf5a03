"""A page about a table, for people who would rather look: gathered as values, rendered by pure functions."""

from neve.report.gather import gather
from neve.report.page import page
from neve.report.values import Report

__all__ = ["Report", "gather", "page"]
