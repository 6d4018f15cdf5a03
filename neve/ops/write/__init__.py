"""Append and overwrite."""
