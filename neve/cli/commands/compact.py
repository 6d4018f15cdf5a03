"""The commands that rewrite files: `compact`, `deletes`, `manifests`, `dangling`, and `maintain`, which runs what is
worth doing, the most useful first.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from neve.cli.command import Command, writing_verb
from neve.cli.console import facts_of
from neve.cli.execute import CommandPlan, exit_if_groups_failed, run_command, with_options
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
    command: Command,
    table: TableName,
    where: Where = None,
    options: OptionPairs = None,
    sort: Annotated[str | None, typer.Option(metavar="COLUMNS", help="Sort the rows of each group: ts,id.")] = None,
    zorder: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="Order the rows of each group by Z-order: x,y.")
    ] = None,
    keep_spec: Annotated[bool, typer.Option("--keep-spec", help="Write with the spec of the old files.")] = False,
    upgrade_spec: Annotated[
        bool, typer.Option("--upgrade-spec", help="Rewrite the files of old specs to the current spec.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail if the filter cannot be evaluated.")] = False,
    verify_rows: Annotated[
        bool, typer.Option("--verify-rows", help="Sum the rows up before and after; commit if the sums agree.")
    ] = False,
    branch: Branch = "main",
    properties: SnapshotProperties = None,
) -> None:
    """Compact data files; rows stay as they are."""
    if sort is not None and zorder is not None:
        raise UserError("Choose one of --sort and --zorder.")
    rewrite = with_options(
        command.table_to_change(table).rewrite_data_files().branch(branch).options(parse_pairs(options, "--option")),
        where=where,
        sort=split_names(sort),
        zorder=split_names(zorder),
        keep_spec=keep_spec,
        upgrade_spec=upgrade_spec,
        strict=strict,
        snapshot_property=parse_pairs(properties, "--snapshot-property"),
    )
    plan = CommandPlan(
        f"Compacting {table}",
        rewrite.plan_with_stats,
        rewrite.verify_rows(verify_rows).execute,
        facts=lambda planned: {
            "snapshot_id": planned.plan.snapshot_id,
            "files": planned.plan.files,
            "bytes": planned.plan.bytes,
            "groups": len(planned.plan.groups),
            "partitions": len({g.partition for g in planned.plan.groups}),
            "output_files": sum(g.output_files for g in planned.plan.groups),
            "output_spec_ids": sorted({g.output_spec_id for g in planned.plan.groups}),
            "target_file_size": planned.plan.options.target_file_size,
            "filter_stats": planned.filter_stats,
        },
        is_empty=lambda planned: planned.plan.is_empty,
        did_nothing=lambda result: not result.groups and not result.failed_groups,
    )
    exit_if_groups_failed(command, run_command(command, plan))


@writing_verb
def deletes(
    command: Command,
    table: TableName,
    where: Where = None,
    equality: Annotated[bool, typer.Option("--equality", help="Replace equality deletes too.")] = False,
    options: OptionPairs = None,
    branch: Branch = "main",
) -> None:
    """Rewrite delete files into fewer files, or into deletion vectors; rows stay as they are."""
    rewrite = command.table_to_change(table).rewrite_position_deletes().branch(branch)
    rewrite = rewrite.options(parse_pairs(options, "--option"))
    rewrite = with_options(rewrite, where=where, equality_deletes=equality)
    plan = CommandPlan.of(
        f"Rewriting delete files of {table}",
        rewrite,
        facts=lambda plan: {
            "snapshot_id": plan.snapshot_id,
            "delete_files": plan.considered,
            "delete_files_replaced": len(plan.replaced),
            "equality_delete_files_replaced": len(plan.equality_deletes),
            "data_files": len(plan.scan.files),
            "bytes": plan.bytes,
            "groups": len(plan.groups),
        },
    )
    run_command(command, plan)


@writing_verb
def manifests(
    command: Command,
    table: TableName,
    cluster_by: Annotated[str | None, typer.Option(help="Partition fields to group by, separated by commas.")] = None,
    spec: Annotated[int | None, typer.Option(help="Only manifests of this spec.")] = None,
    branch: Branch = "main",
) -> None:
    """Rewrite manifests that are too small, too large or overlap; files stay as they are."""
    rewrite = command.table_to_change(table).rewrite_manifests().branch(branch)
    rewrite = with_options(rewrite, spec=spec, cluster_by=split_names(cluster_by))
    plan = CommandPlan.of(
        f"Rewriting manifests of {table}",
        rewrite,
        facts=lambda plan: {
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
        },
        is_empty=lambda plan: not plan.groups,
    )
    run_command(command, plan)


@writing_verb
def dangling(command: Command, table: TableName, branch: Branch = "main") -> None:
    """Remove delete files that apply to no live data file."""
    plan = CommandPlan.of(
        f"Removing dangling deletes of {table}",
        command.table_to_change(table).remove_dangling_deletes().branch(branch),
        facts=lambda plan: {
            "snapshot_id": plan.snapshot_id,
            "delete_files": plan.delete_files,
            "dangling": len(plan.deletes),
            "files": plan.files,
        },
        is_empty=lambda plan: not len(plan.deletes),
    )
    run_command(command, plan)


@writing_verb
def maintain(
    command: Command,
    table: TableName,
    most_bytes: Annotated[str | None, typer.Option("--budget-bytes", help="Read no more than this: 10GB.")] = None,
    most_seconds: Annotated[
        float | None, typer.Option("--budget-seconds", help="Start no new step after this time.")
    ] = None,
) -> None:
    """Run the maintenance that a table needs: compaction, delete files, manifests, old snapshots."""
    verb = command.table_to_change(table).maintain()
    if most_bytes is not None or most_seconds is not None:
        verb = verb.budget(bytes=parse_size(most_bytes, "--budget-bytes"), seconds=most_seconds)

    def execute() -> dict[str, Any]:
        result = verb.execute()
        results = [{"verb": step, **facts_of(each)} for step, each in result.results]
        return {**facts_of(result), "results": results, "not_done": [facts_of(step) for step in result.not_done]}

    plan = CommandPlan(
        f"Maintaining {table}",
        verb.plan,
        execute,
        facts=lambda plan: {
            "steps": [facts_of(step) for step in plan.steps],
            "left_out": [facts_of(step) for step in plan.left_out],
        },
        did_nothing=lambda facts: not facts["results"],
        question=f"Run this on {table}?",
    )
    exit_if_groups_failed(command, *run_command(command, plan)["results"])
