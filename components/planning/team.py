"""A team's objects as Kubernetes manifests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from components.planning.labels import team_labels
from components.settings.team import EgressSettings, NetworkSettings, TeamSettings

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


QUOTA_NAME = "gpu-budget"
_POD_SECURITY = "pod-security.kubernetes.io"
_READ = ["get", "list", "watch"]
# AWS answers on both; GCP and Azure on the first (instance metadata: the node's credentials).
_METADATA_V4, _METADATA_V6 = "169.254.169.254/32", "fd00:ec2::254/128"


def plan_team(team: TeamSettings, environment: str) -> TeamPlan:
    """The plan of one team."""
    labels = team_labels(environment, team.name)
    namespace = team.namespace_name

    def named(kind: str, api_version: str, name: str, **rest: Any) -> Manifest:
        metadata = {"name": name, "namespace": namespace, "labels": dict(labels)}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}

    role = named("Role", "rbac.authorization.k8s.io/v1", "training", rules=_rules())
    binding = named(
        "RoleBinding",
        "rbac.authorization.k8s.io/v1",
        "training",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "training"},
        subjects=[{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": team.group}],
    )
    return TeamPlan(
        name=team.name,
        namespace=namespace,
        group=team.group,
        namespace_manifest=_namespace(namespace, labels),
        resource_quota=named("ResourceQuota", "v1", QUOTA_NAME, spec={"hard": team.hard_quota}),
        limit_range=named(
            "LimitRange", "v1", "container-defaults", spec={"limits": [_container_limits(team)]}
        ),
        network_policies=tuple(
            named("NetworkPolicy", "networking.k8s.io/v1", name, spec=spec)
            for name, spec in _network(team.network)
        ),
        role=role,
        role_binding=binding,
        checkpoint_claim=_claim(team, named),
        claim_name=team.checkpoint_storage.claim_name,
        disposable=team.checkpoint_storage.disposable,
    )


def _namespace(name: str, labels: dict[str, str]) -> Manifest:
    security = {}
    for mode in ("enforce", "audit", "warn"):
        security[f"{_POD_SECURITY}/{mode}"] = "restricted"
        security[f"{_POD_SECURITY}/{mode}-version"] = "latest"
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {**labels, **security}},
    }


def _container_limits(team: TeamSettings) -> dict[str, Any]:
    settings = team.limit_range
    limits: dict[str, Any] = {
        "type": "Container",
        "defaultRequest": settings.default_request.model_dump(),
        "default": settings.default_limit.model_dump(),
    }
    if settings.max:
        limits["max"] = settings.max.model_dump()
    return limits


def _network(settings: NetworkSettings) -> list[tuple[str, dict[str, Any]]]:
    """Name and spec of each policy: everything is closed, then what training needs is opened."""

    def egress(rules: list[dict[str, Any]]) -> dict[str, Any]:
        return {"podSelector": {}, "policyTypes": ["Egress"], "egress": rules}

    dns = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": settings.dns.namespace}},
        "podSelector": {"matchLabels": dict(settings.dns.pod_labels)},
    }
    dns_ports = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    policies = [
        ("default-deny", {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}),
        ("allow-dns", egress([{"to": [dns], "ports": dns_ports}])),
    ]
    if settings.https:
        anywhere = [_block("0.0.0.0/0", [_METADATA_V4]), _block("::/0", [_METADATA_V6])]
        policies.append(
            ("allow-https", egress([{"to": anywhere, "ports": [{"protocol": "TCP", "port": 443}]}]))
        )
    if settings.egress:
        policies.append(("allow-egress", egress([_egress_rule(item) for item in settings.egress])))
    if settings.within_team:
        both = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        peers: list[dict[str, Any]] = [{"podSelector": {}}]
        policies.append(
            ("allow-within-team", {**both, "ingress": [{"from": peers}], "egress": [{"to": peers}]})
        )
    return policies


def _egress_rule(item: EgressSettings) -> dict[str, Any]:
    rule: dict[str, Any] = {"to": [_block(item.cidr, list(item.exclude))]}
    if item.ports:
        rule["ports"] = [{"protocol": port.protocol, "port": port.port} for port in item.ports]
    return rule


def _block(cidr: str, exclude: list[str]) -> dict[str, Any]:
    return {"ipBlock": {"cidr": cidr, **({"except": exclude} if exclude else {})}}


def _rules() -> list[dict[str, Any]]:
    """Submit and read. Nothing that changes budget, network or rights, no Secrets, no exec into Pods."""
    return [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": [*_READ, "create", "delete"]},
        {"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["get"]},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": [*_READ, "create", "delete"]},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets/status"], "verbs": ["get"]},
        {
            "apiGroups": [""],
            "resources": [
                "pods",
                "pods/status",
                "events",
                "persistentvolumeclaims",
                "resourcequotas",
                "limitranges",
            ],
            "verbs": list(_READ),
        },
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": list(_READ)},
    ]


def _claim(team: TeamSettings, named: Callable[..., Manifest]) -> Manifest:
    storage = team.checkpoint_storage
    claim = named(
        "PersistentVolumeClaim",
        "v1",
        storage.claim_name,
        spec={
            "accessModes": [storage.access_mode],
            "storageClassName": storage.storage_class,
            "resources": {"requests": {"storage": storage.size}},
        },
    )
    # A class that binds with the first consumer would keep `up` waiting for a Pod that comes later
    # (pulumi-kubernetes#895, #4179); whether the claim is bound is seen at the run.
    claim["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}
    return claim
