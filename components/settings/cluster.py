"""Which cluster the stack is deployed to. Never the one that happens to be current."""

from __future__ import annotations

from components.settings.base import Settings
from components.settings.formats import ContextName, KubeconfigPath


class ClusterSettings(Settings):
    """A cluster by kubeconfig *and* context."""

    kubeconfig: KubeconfigPath
    """Absolute path of the kubeconfig. Never its content, which changes with every certificate."""
    context: ContextName
    """Context of that file."""
    identifier: ContextName | None = None
    """Stable identity of the cluster for Pulumi; a change replaces everything on it. Default: the context."""

    @property
    def cluster_identifier(self) -> str:
        """The identity given to the provider (`clusterIdentifier`), see pulumi-kubernetes#4019."""
        return self.identifier or self.context
