"""Compaction, expiry and the other maintenance operations."""
