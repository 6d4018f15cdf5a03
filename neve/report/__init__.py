"""The HTML report of a table: gathered as values, rendered by pure functions."""

from neve.report.gather import gather_report
from neve.report.page import render_page
from neve.report.values import Report

__all__ = ["Report", "gather_report", "render_page"]
