"""The stack: configuration -> settings -> plan -> components -> outputs."""

from __future__ import annotations

import os

import pulumi

from components.gpu_operator import GpuOperator, GpuOperatorArgs
from components.job_set import JobSetController, JobSetControllerArgs
from components.node_pools import GpuNodePoolArgs, create_node_pool
from components.planning.outputs import stack_outputs
from components.planning.stack import plan_stack
from components.provider import cluster_access
from components.settings.loader import load_settings
from components.settings.problems import SettingsError
from components.stack_config import read_stack_config
from components.team import Team, TeamArgs
from components.training_run import TrainingRun, TrainingRunArgs

values, secret_keys = read_stack_config()
try:
    settings = load_settings(values, os.environ, secret_keys)
except SettingsError as error:
    # A RunError is shown without a traceback: all problems at once, each with its fix.
    raise pulumi.RunError(str(error)) from None

plan = plan_stack(settings)
for warning in plan.warnings:
    pulumi.log.warn(warning)

cluster = cluster_access(plan.kubeconfig, plan.context, plan.cluster_identifier)
clouds = plan.cloud_pools
pools = {
    pool.name: create_node_pool(GpuNodePoolArgs(pool, cluster, clouds.get(pool.name))) for pool in plan.pools
}
operator = None
if plan.operator:
    operator = GpuOperator("gpu-operator", GpuOperatorArgs(plan.operator, cluster, tuple(pools.values())))
job_set = JobSetController("jobset", JobSetControllerArgs(plan.job_set, cluster)) if plan.job_set else None
teams = {team.name: Team(team.name, TeamArgs(team, cluster)) for team in plan.teams}
for run in plan.runs:
    needs = [teams[run.team], pools[run.pool], *([operator] if operator else [])]
    needs += [job_set] if job_set and run.controller == "jobset" else []
    TrainingRun(f"{run.team}-{run.id}", TrainingRunArgs(run, cluster, needs))

for name, value in stack_outputs(plan).items():
    pulumi.export(name, value)
