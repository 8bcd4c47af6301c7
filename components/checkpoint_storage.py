"""A team's checkpoint claim on an existing class that several nodes can mount."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.manifests import SKIP_AWAIT, STABLE_MANAGER, arguments


@dataclass(frozen=True)
class CheckpointStorageArgs:
    """One claim."""

    claim: Mapping[str, Any]
    """The PersistentVolumeClaim's manifest, name and namespace included."""
    namespace: pulumi.Resource
    """The namespace, which the manifest names as text only."""
    disposable: bool
    """True: the claim, and by its class maybe the data, goes when the team goes."""


class CheckpointStorage(pulumi.ComponentResource):
    """The claim. Unless it is disposable, it stays in the cluster when Pulumi deletes or replaces it."""

    claim_name: pulumi.Output[str]

    def __init__(
        self, name: str, args: CheckpointStorageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("holdfast:team:CheckpointStorage", name, None, opts)
        claim = k8s.core.v1.PersistentVolumeClaim(
            name,
            # Waiting for a bound claim never ends with WaitForFirstConsumer (pulumi-kubernetes#895, #4179).
            # It is not skipped on delete, where this kind waits in any case, for as long as a Pod uses the
            # claim.
            **arguments(args.claim, {**SKIP_AWAIT, **STABLE_MANAGER}),
            # retain_on_delete and not protect: a protected claim makes every destroy of the stack fail, a
            # retained one is left alone, also by a replacement, and the next `up` takes it over again
            # (manifests.STABLE_MANAGER says how).
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[args.namespace], retain_on_delete=not args.disposable
            ),
        )
        self.claim_name = claim.metadata.apply(lambda metadata: str(metadata.name))
        self.register_outputs({"claimName": self.claim_name})
