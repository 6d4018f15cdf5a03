"""`neve compact`: many small files become few of a good size."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neve.cli.carrying import Deed, carry_out, tell_failures
from neve.cli.options import Branch, Options, Properties, TableName, Where, names, pairs
from neve.cli.work import Work, writing_verb
from neve.errors import UserError

__all__ = ["compact", "plan_facts"]


@writing_verb
def compact(
    work: Work,
    table: TableName,
    where: Where = None,
    options: Options = None,
    sort: Annotated[
        str | None, typer.Option("--sort", metavar="COLUMNS", help="Sort the rows of each group: ts,id.")
    ] = None,
    zorder: Annotated[
        str | None, typer.Option("--zorder", metavar="COLUMNS", help="Bring near rows together: x,y.")
    ] = None,
    keep_spec: Annotated[bool, typer.Option("--keep-spec", help="Write under the spec of the old files.")] = False,
    upgrade_spec: Annotated[
        bool, typer.Option("--upgrade-spec", help="Take the files under old specs, and rewrite them to the current.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail where the filter cannot be judged.")] = False,
    verify_rows: Annotated[
        bool, typer.Option("--verify-rows", help="Sum the rows up before and after; commit when they are the same.")
    ] = False,
    branch: Branch = "main",
    properties: Properties = None,
) -> None:
    """Compact data files; rows stay as they are."""
    if sort is not None and zorder is not None:
        raise UserError("Choose one of --sort and --zorder.")
    rewrite = work.table_to_change(table).rewrite_data_files().branch(branch).options(pairs(options, "--option"))
    rewrite = rewrite if where is None else rewrite.where(where)
    rewrite = rewrite if sort is None else rewrite.sort(*(names(sort) or ()))
    rewrite = rewrite if zorder is None else rewrite.zorder(*(names(zorder) or ()))
    rewrite = rewrite.keep_spec() if keep_spec else rewrite
    rewrite = rewrite.upgrade_spec() if upgrade_spec else rewrite
    rewrite = rewrite.strict() if strict else rewrite
    for name, value in pairs(properties, "--snapshot-property").items():
        rewrite = rewrite.snapshot_property(name, value)
    deed = Deed(
        f"Compacting {table}",
        rewrite.plan_with_stats,
        rewrite.verify_rows(verify_rows).execute,
        facts=lambda found: plan_facts(found.plan, found.filter_stats),
        is_empty=lambda found: found.plan.is_empty,
        did_nothing=lambda result: not result.groups and not result.failed_groups,
    )
    tell_failures(work, carry_out(work, deed))


def plan_facts(plan: Any, filter_stats: Any) -> dict[str, Any]:
    """The plan of a compaction for programs."""
    return {
        "snapshot_id": plan.snapshot_id,
        "files": plan.files,
        "bytes": plan.bytes,
        "groups": len(plan.groups),
        "partitions": len({g.partition for g in plan.groups}),
        "output_files": sum(g.output_files for g in plan.groups),
        "output_spec_ids": sorted({g.output_spec_id for g in plan.groups}),
        "target_file_size": plan.options.target_file_size,
        "filter_stats": filter_stats,
    }
