"""Commit changes to a table: actions, conflict checks, attempts, outcomes and cleanup."""
