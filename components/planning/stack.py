"""The whole stack, decided: the one call from the settings to plain values that the components take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from components.planning import eks_checks, extra_values, gke_checks
from components.planning.job_set_controller import JobSetPlan, plan_job_set
from components.planning.node_pool_plans import CloudPoolPlan, plan_cloud_pool, plan_node_pool
from components.planning.node_pools import NodePoolPlan
from components.planning.operator_plan import OperatorPlan
from components.planning.operator_values import plan_operator
from components.planning.ownership import operator_profile, override_warnings, owners_of, profile_of
from components.planning.quota import quota_fit, run_demand, together
from components.planning.run import RunPlan, plan_run
from components.planning.team import TeamPlan, plan_team
from components.settings.stack import StackSettings

STARTUP_TAINT_PREFIX = "startup-taint.cluster-autoscaler.kubernetes.io/"
"""Keys that every autoscaler takes for a startup taint (kubernetes/autoscaler, utils/taints, StartupTaintPrefix)."""


@dataclass(frozen=True)
class StackPlan:
    """Everything that the stack creates, and what a person should know about it."""

    environment: str
    kubeconfig: str
    context: str
    cluster_identifier: str
    pools: tuple[NodePoolPlan, ...]
    cloud_pools: Mapping[str, CloudPoolPlan]
    """Pool -> what the stack creates for it in a cloud; without the pools whose nodes exist already."""
    operator: OperatorPlan | None
    """None where the pools' profiles bring everything themselves."""
    job_set: JobSetPlan | None
    """None where no run needs the JobSet controller."""
    teams: tuple[TeamPlan, ...]
    runs: tuple[RunPlan, ...]
    """In the order of the configuration, cancelled ones included."""
    warnings: tuple[str, ...]


def plan_stack(settings: StackSettings) -> StackPlan:
    """The plan of a stack whose settings came from `load_settings`."""
    environment, operator = settings.environment, settings.gpu_operator
    pools = {pool.name: plan_node_pool(pool, owners_of(pool, operator.nfd)) for pool in settings.node_pools}
    teams = {team.name: team for team in settings.teams}
    profile = operator_profile(settings.node_pools)
    return StackPlan(
        environment=environment,
        kubeconfig=settings.cluster.kubeconfig,
        context=settings.cluster.context,
        cluster_identifier=settings.cluster.cluster_identifier,
        pools=tuple(pools.values()),
        cloud_pools={
            pool.name: planned
            for pool in settings.node_pools
            if (planned := plan_cloud_pool(pool, pools[pool.name], environment))
        },
        operator=plan_operator(environment, operator, tuple(pools.values()), profile) if profile else None,
        job_set=plan_job_set(environment, settings.job_set, settings.runs),
        teams=tuple(plan_team(team, environment) for team in settings.teams),
        runs=tuple(plan_run(run, teams[run.team], pools[run.pool], environment) for run in settings.runs),
        warnings=tuple(_warnings(settings)),
    )


def _warnings(settings: StackSettings) -> Iterator[str]:
    for pool in settings.node_pools:
        profile = profile_of(pool)
        if profile.status == "experimental":
            yield f'nodePools "{pool.name}": profile {profile.name} is experimental. {profile.reason}'
        if profile.platform != "self-managed" and pool.kind == "self-managed":
            yield (
                f'nodePools "{pool.name}": on {profile.platform.upper()} labels and taints belong to the'
                " cloud's node pool. A node that the cloud replaces has them again only after the next"
                " `pulumi up`."
            )
    yield from override_warnings(settings.node_pools)
    yield from _startup_taint_warnings(settings)
    yield from eks_checks.warnings(settings)
    yield from gke_checks.warnings(settings)
    served = operator_profile(settings.node_pools)
    if served:
        yield from extra_values.warnings(settings.gpu_operator, served, settings.node_pools)
    yield from _spot_warnings(settings)
    for team in settings.teams:
        demands = [run_demand(run) for run in settings.runs if run.team == team.name and not run.cancelled]
        for short in quota_fit(together(demands), team.hard_quota):
            yield (
                f'teams "{team.name}": its {len(demands)} runs together need {short.needed} of {short.key},'
                f" and the quota has {short.allowed}. They will run one after another, and Kubernetes retries"
                " the waiting ones only every few minutes."
            )


def _startup_taint_warnings(settings: StackSettings) -> Iterator[str]:
    for pool in settings.node_pools:
        for taint in pool.startup_taints if pool.kind in ("eks", "gke") else ():
            if not taint.key.startswith(STARTUP_TAINT_PREFIX):
                yield (
                    f'nodePools "{pool.name}": an autoscaler takes the startup taint {taint} for one that stays, and'
                    " brings no node for Pods that do not tolerate it. Start the cluster's with"
                    f" --startup-taint={taint.key}, or write a key that begins with {STARTUP_TAINT_PREFIX}."
                )


def _spot_warnings(settings: StackSettings) -> Iterator[str]:
    spot = {pool.name for pool in settings.node_pools if pool.spot}
    for run in settings.runs:
        if run.pool in spot and run.controller == "job" and not run.cancelled:
            yield (
                f'runs "{run.id}": pool "{run.pool}" has nodes that may be taken away at any time, and a'
                " plain Job's controller waits longer after each preemption: 10, 20, 40 … 600 s, for the"
                " whole run, until a new Job. Write controller: jobset, which makes the next Pod at once."
            )
