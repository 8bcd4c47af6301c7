"""The one cluster of the stack, as Pulumi's Kubernetes provider and as what the dynamic resources need."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s


@dataclass(frozen=True)
class ClusterAccess:
    """How to reach the cluster: always by an explicit file and context, never by what happens to be
    current.
    """

    kubeconfig: str
    """Path of the kubeconfig file. Its content would be a new provider input with every renewed
    certificate.
    """
    context: str
    identifier: str
    """The cluster's stable identity; a change means another cluster."""
    provider: k8s.Provider

    @property
    def options(self) -> pulumi.ResourceOptions:
        """For a component: its Kubernetes children use this cluster."""
        return pulumi.ResourceOptions(providers={"kubernetes": self.provider})


def cluster_access(kubeconfig: str, context: str, identifier: str) -> ClusterAccess:
    """The access to a cluster, with its explicit provider."""
    provider = k8s.Provider(
        "cluster",
        kubeconfig=kubeconfig,
        context=context,
        # With it, a new kubeconfig or context never replaces the provider and all that it made
        # (pulumi-kubernetes#4019; provider.go, DiffConfig): only another identifier does.
        cluster_identifier=identifier,
        enable_server_side_apply=True,
        # An unreachable cluster is an error. Dropping its resources from the state would orphan a running
        # training.
        delete_unreachable=False,
    )
    return ClusterAccess(kubeconfig, context, identifier, provider)
