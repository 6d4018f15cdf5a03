"""The audit behind `verify`: rules for each part of a table."""
