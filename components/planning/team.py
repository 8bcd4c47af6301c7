"""A team's objects as Kubernetes manifests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]
"""A Kubernetes object: apiVersion, kind, metadata, spec … with Kubernetes' own camelCase keys."""


@dataclass(frozen=True)
class TeamPlan:
    """One team, decided. Every manifest has its name and, where it has one, its namespace."""

    name: str
    namespace: str
    group: str
    namespace_manifest: Manifest
    resource_quota: Manifest
    limit_range: Manifest
    network_policies: tuple[Manifest, ...]
    role: Manifest
    role_binding: Manifest
    checkpoint_claim: Manifest
    claim_name: str
    disposable: bool
    """False: the claim and the namespace stay when the team is destroyed."""
