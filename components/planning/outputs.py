"""The stack's outputs: what a person needs next."""

from __future__ import annotations

from typing import Any

from components.planning.job_set import child_job_name
from components.planning.node_pools import NodePoolPlan
from components.planning.run import RunPlan
from components.planning.stack import StackPlan
from components.planning.team import TeamPlan
from components.settings.override import OwnershipOverride


def stack_outputs(plan: StackPlan) -> dict[str, Any]:
    """environment, nodePools, teams, runs, next and warnings, as plain data.

    Nothing in it differs between machines (no path of a kubeconfig), so that a second preview is empty.
    """
    active = [run for run in plan.runs if not run.cancelled]
    return {
        "environment": plan.environment,
        "nodePools": {pool.name: _pool(pool) for pool in plan.pools},
        "teams": {team.name: _team(team) for team in plan.teams},
        "runs": {run.id: _run(plan, run) for run in plan.runs},
        "next": ["./holdfast status", *(_follow(plan, run) for run in active)],
        "warnings": list(plan.warnings),
    }


def _pool(pool: NodePoolPlan) -> dict[str, Any]:
    return {
        "labels": dict(pool.labels),
        "taint": str(pool.taint),
        "gpusPerNode": pool.gpus_per_node,
        "spot": pool.spot,
        "profile": pool.ownership.profile,
        **({"override": _override(pool.ownership.override)} if pool.ownership.override else {}),
        "runtimeClass": pool.runtime_class,
        "owners": {
            item.layer: {"owner": item.owner, "reason": item.reason} for item in pool.ownership.layers
        },
    }


def _override(override: OwnershipOverride) -> dict[str, Any]:
    return {"reason": override.reason, "layers": dict(override.layers)}


def _team(team: TeamPlan) -> dict[str, Any]:
    return {
        "namespace": team.namespace,
        "group": team.group,
        "quota": dict(team.resource_quota["spec"]["hard"]),
        "claim": team.claim_name,
        "checkpointsKeptOnDestroy": not team.disposable,
    }


def _run(plan: StackPlan, run: RunPlan) -> dict[str, Any]:
    return {
        "namespace": run.namespace,
        "controller": run.controller,
        "job": run.job_name,
        "image": run.image,
        "checkpointDir": run.checkpoint_dir,
        "claim": run.claim,
        "attempt": run.attempt,
        "cancelled": run.cancelled,
        "follow": None if run.cancelled else _follow(plan, run),
    }


def _follow(plan: StackPlan, run: RunPlan) -> str:
    job = child_job_name(run.job_name) if run.controller == "jobset" else run.job_name
    return f"kubectl --context {plan.context} --namespace {run.namespace} logs --follow job/{job}"
