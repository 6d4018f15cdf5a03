"""`neve compact`: many small files become few of a good size.

`neve deletes`: delete files become fewer, or vectors.

`neve manifests`: manifests become fewer, with neighbouring partitions together.

`neve dangling`: delete files that delete nothing go.

`neve maintain`: what the table needs, what pays most first.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neve.cli.command import Command, writing_verb
from neve.cli.console import facts_of
from neve.cli.execute import CommandPlan, exit_if_groups_failed, run_command
from neve.cli.options import (
    Branch,
    OptionPairs,
    SnapshotProperties,
    TableName,
    Where,
    parse_pairs,
    parse_size,
    split_names,
)
from neve.errors import UserError


@writing_verb
def compact(
    work: Command,
    table: TableName,
    where: Where = None,
    options: OptionPairs = None,
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
    properties: SnapshotProperties = None,
) -> None:
    """Compact data files; rows stay as they are."""
    if sort is not None and zorder is not None:
        raise UserError("Choose one of --sort and --zorder.")
    rewrite = work.table_to_change(table).rewrite_data_files().branch(branch).options(parse_pairs(options, "--option"))
    rewrite = rewrite if where is None else rewrite.where(where)
    rewrite = rewrite if sort is None else rewrite.sort(*(split_names(sort) or ()))
    rewrite = rewrite if zorder is None else rewrite.zorder(*(split_names(zorder) or ()))
    rewrite = rewrite.keep_spec() if keep_spec else rewrite
    rewrite = rewrite.upgrade_spec() if upgrade_spec else rewrite
    rewrite = rewrite.strict() if strict else rewrite
    for name, value in parse_pairs(properties, "--snapshot-property").items():
        rewrite = rewrite.snapshot_property(name, value)
    deed = CommandPlan(
        f"Compacting {table}",
        rewrite.plan_with_stats,
        rewrite.verify_rows(verify_rows).execute,
        facts=lambda found: compaction_facts(found.plan, found.filter_stats),
        is_empty=lambda found: found.plan.is_empty,
        did_nothing=lambda result: not result.groups and not result.failed_groups,
    )
    exit_if_groups_failed(work, run_command(work, deed))


def compaction_facts(plan: Any, filter_stats: Any) -> dict[str, Any]:
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


@writing_verb
def deletes(
    work: Command,
    table: TableName,
    where: Where = None,
    equality: Annotated[bool, typer.Option("--equality", help="Replace equality deletes too.")] = False,
    options: OptionPairs = None,
    branch: Branch = "main",
) -> None:
    """Rewrite delete files to fewer, or to deletion vectors; rows stay as they are."""
    rewrite = (
        work.table_to_change(table).rewrite_position_deletes().branch(branch).options(parse_pairs(options, "--option"))
    )
    rewrite = rewrite if where is None else rewrite.where(where)
    rewrite = rewrite.equality_deletes() if equality else rewrite
    deed = CommandPlan.of(
        f"Rewriting delete files of {table}",
        rewrite,
        facts=_delete_facts,
        is_empty=lambda plan: plan.is_empty,
        did_nothing=lambda result: result.snapshot_id is None,
    )
    run_command(work, deed)


def _delete_facts(plan: Any) -> dict[str, Any]:
    return {
        "snapshot_id": plan.snapshot_id,
        "delete_files": plan.considered,
        "delete_files_replaced": len(plan.replaced),
        "equality_delete_files_replaced": len(plan.equality_deletes),
        "data_files": len(plan.scan.files),
        "bytes": plan.bytes,
        "groups": len(plan.groups),
    }


@writing_verb
def manifests(
    work: Command,
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
    rewrite = rewrite if cluster_by is None else rewrite.cluster_by(*(split_names(cluster_by) or ()))
    deed = CommandPlan.of(
        f"Rewriting manifests of {table}",
        rewrite,
        facts=_manifest_facts,
        is_empty=lambda plan: not plan.groups,
        did_nothing=lambda result: result.snapshot_id is None,
    )
    run_command(work, deed)


def _manifest_facts(plan: Any) -> dict[str, Any]:
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


@writing_verb
def dangling(work: Command, table: TableName, branch: Branch = "main") -> None:
    """Remove delete files that apply to no live data file."""
    deed = CommandPlan.of(
        f"Removing dangling deletes of {table}",
        work.table_to_change(table).remove_dangling_deletes().branch(branch),
        facts=lambda plan: {
            "snapshot_id": plan.snapshot_id,
            "delete_files": plan.delete_files,
            "dangling": len(plan.deletes),
            "files": plan.files,
        },
        is_empty=lambda plan: not len(plan.deletes),
        did_nothing=lambda result: result.snapshot_id is None,
    )
    run_command(work, deed)


@writing_verb
def maintain(
    work: Command,
    table: TableName,
    most_bytes: Annotated[
        str | None, typer.Option("--budget-bytes", help="Read no more than this: 10GB.", show_default=False)
    ] = None,
    most_seconds: Annotated[
        float | None, typer.Option("--budget-seconds", help="Begin nothing new after this time.", show_default=False)
    ] = None,
) -> None:
    """See what a table needs, and do it: compaction, delete files, manifests, old snapshots."""
    verb = work.table_to_change(table).maintain()
    if most_bytes is not None or most_seconds is not None:
        verb = verb.budget(bytes=parse_size(most_bytes, "--budget-bytes"), seconds=most_seconds)
    deed = CommandPlan(
        f"Maintaining {table}",
        verb.plan,
        lambda: _told(verb.execute()),
        facts=lambda plan: {
            "steps": [_proposal_facts(s) for s in plan.steps],
            "left_out": [_proposal_facts(s) for s in plan.left_out],
        },
        is_empty=lambda plan: plan.is_empty,
        did_nothing=lambda told: not told["results"],
        question=f"Do this to {table}?",
    )
    exit_if_groups_failed(work, *run_command(work, deed)["results"])


def _proposal_facts(proposal: Any) -> dict[str, Any]:
    return facts_of(proposal)


def _told(result: Any) -> dict[str, Any]:
    """What was done, each verb with its name."""
    done = [{"verb": verb, **facts_of(each)} for verb, each in result.results]
    return {**facts_of(result), "results": done, "not_done": [_proposal_facts(s) for s in result.not_done]}
