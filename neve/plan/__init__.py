"""Pure planning: entry tables in, plans and statistics out."""
