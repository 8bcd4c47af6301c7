"""Whether the GPU stack is ready, by the very judgement that the deployment waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ops.kube import Kube

if TYPE_CHECKING:
    from components.cluster_resources.gpu_judgement import Expectation, PoolExpectation
    from components.planning.operator_plan import ExpectedPool, OperatorExpectation
    from components.planning.stack import StackPlan


def operator_problems(kube: Kube, plan: StackPlan, nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences about what keeps the GPUs from being usable; empty where nothing does.

    `nodes` are the API's own objects. There is no operator to judge where the pools' profiles bring all.
    """
    if plan.operator is None:
        return []
    from components.cluster_resources.gpu_judgement import judge
    from components.cluster_resources.gpu_snapshot import observe

    verdict = judge(observe(kube, plan.operator.namespace), expectation(plan.operator.expectation, nodes))
    return [*verdict.faults, *verdict.waiting]


def job_set_problems(kube: Kube, plan: StackPlan) -> list[str]:
    """Sentences about what keeps JobSets from being made; empty where nothing does, or no run needs it.

    Nothing is tried: only a deployment sends the webhook a JobSet.
    """
    if plan.job_set is None:
        return []
    from components.cluster_resources.job_set_judgement import judge, look

    namespace, installed = plan.job_set.namespace, plan.job_set.install
    verdict = judge(look(kube, namespace, installed), namespace, installed)
    return [*verdict.faults, *verdict.waiting]


def expectation(planned: OperatorExpectation, nodes: Sequence[Mapping[str, Any]]) -> Expectation:
    """The planner's expectation with the pools' nodes as they are now: a newcomer is judged too."""
    from components.cluster_resources.gpu_judgement import Expectation

    return Expectation(
        pools=tuple(_pool(pool, nodes) for pool in planned.pools),
        runtime_classes=planned.runtime_classes,
        daemonsets=planned.daemonsets,
        nfd_daemonsets=planned.nfd_daemonsets,
        absent_daemonsets=planned.absent_daemonsets,
    )


def _pool(pool: ExpectedPool, nodes: Sequence[Mapping[str, Any]]) -> PoolExpectation:
    from components.cluster_resources.gpu_judgement import PoolExpectation

    names = pool.node_names or tuple(sorted(
        node["metadata"]["name"]
        for node in nodes
        if pool.match_labels.items() <= (node["metadata"].get("labels") or {}).items()
    ))  # fmt: skip
    taint = {"key": pool.taint.key, "value": pool.taint.value, "effect": pool.taint.effect}
    return PoolExpectation(pool.name, tuple(names), pool.gpus_per_node, taint, min_nodes=pool.min_nodes)
