"""Publishing changes: actions, conflict checks, attempts, outcomes, and cleaning up after them."""
