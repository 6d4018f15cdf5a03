"""Which epochs of a streaming query a table has, told by the summaries of its snapshots.

The names are those of Iceberg's own sink on Spark, so a query may go from one to the other. Spark repeats an epoch
when it stopped between the commit and its own checkpoint; the commit of an epoch the table has is refused at every
attempt, so two drivers that take themselves for the same query cannot both land it.
"""

from __future__ import annotations

from dataclasses import dataclass

from neve.commit.outcome import Check, Conflict, Outcome, Rejected
from neve.commit.window import Base

__all__ = ["EPOCH_ID", "QUERY_ID", "Epoch", "is_repeated"]

QUERY_ID = "spark.sql.streaming.queryId"
EPOCH_ID = "spark.sql.streaming.epochId"


@dataclass(frozen=True, slots=True)
class Epoch:
    """One micro-batch of a streaming query; the query keeps its id as long as it keeps its checkpoint."""

    query_id: str
    number: int

    @property
    def properties(self) -> dict[str, str]:
        """What the summary of its snapshot says."""
        return {QUERY_ID: self.query_id, EPOCH_ID: str(self.number)}

    def refused(self, base: Base) -> Conflict | None:
        """The conflict with the snapshot that has this epoch, or a later one of the query."""
        for snapshot in base.ancestors():
            said = snapshot.summary.additional_properties if snapshot.summary else {}
            if said.get(QUERY_ID) == self.query_id and EPOCH_ID in said:
                if int(said[EPOCH_ID]) < self.number:
                    return None
                message = f"Epoch {self.number} of streaming query {self.query_id} is in the table."
                return Conflict(Check.REPEATED, message, snapshot.snapshot_id)
        return None


def is_repeated(outcome: Outcome) -> bool:
    """Whether a commit was refused because the table has its epoch."""
    return isinstance(outcome, Rejected) and any(c.rule is Check.REPEATED for c in outcome.conflicts)
