"""A team: its namespace with budget, defaults, network rules, rights and checkpoint storage."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components.checkpoint_storage import CheckpointStorage, CheckpointStorageArgs
from components.manifests import STABLE_MANAGER, arguments
from components.planning.team import TeamPlan
from components.provider import ClusterAccess


@dataclass(frozen=True)
class TeamArgs:
    """One team, decided."""

    plan: TeamPlan
    cluster: ClusterAccess


class Team(pulumi.ComponentResource):
    """A team's place in the cluster.

    A namespace's deletion deletes its claims. So with checkpoints that are not disposable the namespace stays
    too: a destroy takes budget, rights and network rules, leaves namespace and claim, and the next `up` takes
    both over again.
    """

    name: str
    namespace: pulumi.Output[str]
    claim_name: pulumi.Output[str]

    def __init__(self, name: str, args: TeamArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(
            "holdfast:team:Team", name, None, pulumi.ResourceOptions.merge(args.cluster.options, opts)
        )
        plan = args.plan
        namespace = k8s.core.v1.Namespace(
            name,
            **arguments(plan.namespace_manifest, STABLE_MANAGER),
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=not plan.disposable),
        )
        # The manifests name the namespace as text, which tells Pulumi nothing of the order.
        inside = pulumi.ResourceOptions(parent=self, depends_on=[namespace])
        k8s.core.v1.ResourceQuota(f"{name}-quota", **arguments(plan.resource_quota), opts=inside)
        k8s.core.v1.LimitRange(f"{name}-limits", **arguments(plan.limit_range), opts=inside)
        for policy in plan.network_policies:
            policy_name = f"{name}-{policy['metadata']['name']}"
            k8s.networking.v1.NetworkPolicy(policy_name, **arguments(policy), opts=inside)
        role = k8s.rbac.v1.Role(f"{name}-role", **arguments(plan.role), opts=inside)
        k8s.rbac.v1.RoleBinding(
            f"{name}-role",
            **arguments(plan.role_binding),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[role]),
        )
        storage = CheckpointStorage(
            f"{name}-checkpoints",
            CheckpointStorageArgs(plan.checkpoint_claim, namespace, plan.disposable),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.name = plan.name
        self.namespace = namespace.metadata.apply(lambda metadata: str(metadata.name))
        self.claim_name = storage.claim_name
        self.register_outputs({"name": self.name, "namespace": self.namespace, "claimName": self.claim_name})
