"""`neve manifests`: manifests become fewer, with neighbouring partitions together."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neve.cli.carrying import Deed, carry_out
from neve.cli.options import Branch, TableName, names
from neve.cli.work import Work, writing_verb

__all__ = ["manifests"]


@writing_verb
def manifests(
    work: Work,
    table: TableName,
    cluster_by: Annotated[
        str | None, typer.Option("--cluster-by", help="Partition fields that count, separated by commas.")
    ] = None,
    spec: Annotated[int | None, typer.Option("--spec", help="Only manifests of this spec.")] = None,
    branch: Branch = "main",
) -> None:
    """Rewrite manifests that are too small, too large or overlap; files stay as they are."""
    rewrite = work.table_to_change(table).rewrite_manifests().branch(branch)
    rewrite = rewrite if spec is None else rewrite.spec(spec)
    rewrite = rewrite if cluster_by is None else rewrite.cluster_by(*(names(cluster_by) or ()))
    deed = Deed.of(
        f"Rewriting manifests of {table}",
        rewrite,
        facts=_facts,
        is_empty=lambda plan: not plan.groups,
        did_nothing=lambda result: result.snapshot_id is None,
    )
    carry_out(work, deed)


def _facts(plan: Any) -> dict[str, Any]:
    return {
        "snapshot_id": plan.snapshot_id,
        "manifests": plan.manifests,
        "manifests_kept": plan.manifests_kept,
        "files": plan.files,
        "groups": [
            {
                "spec_id": group.spec_id,
                "is_deletes": group.is_deletes,
                "manifests": len(group.manifests),
                "output_manifests": group.pieces,
                "reason": group.reason,
            }
            for group in plan.groups
        ],
    }
