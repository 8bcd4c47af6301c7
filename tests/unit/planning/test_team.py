"""A team's objects: budget, defaults, network, rights and checkpoint claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from components.planning.stack import StackPlan
from components.planning.team import TeamPlan

Plan = Callable[..., StackPlan]


def _team(plan: Plan, **team: Any) -> TeamPlan:
    return plan(team=team).teams[0]


def test_the_namespace_enforces_the_restricted_standard_and_carries_the_cost_labels(plan: Plan) -> None:
    assert _team(plan).namespace_manifest == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": "ml-batch",
            "labels": {
                "app.kubernetes.io/managed-by": "pulumi",
                "app.kubernetes.io/part-of": "holdfast",
                "holdfast.dev/environment": "dev",
                "holdfast.dev/team": "ml-batch",
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/enforce-version": "latest",
                "pod-security.kubernetes.io/audit": "restricted",
                "pod-security.kubernetes.io/audit-version": "latest",
                "pod-security.kubernetes.io/warn": "restricted",
                "pod-security.kubernetes.io/warn-version": "latest",
            },
        },
    }


def test_a_namespace_of_another_name_is_used_everywhere(plan: Plan) -> None:
    team = _team(plan, namespace="batch")
    manifests = [
        team.resource_quota,
        team.limit_range,
        *team.network_policies,
        team.role,
        team.role_binding,
        team.checkpoint_claim,
    ]
    assert {manifest["metadata"]["namespace"] for manifest in manifests} == {"batch"}
    assert team.namespace == team.namespace_manifest["metadata"]["name"] == "batch"


def test_the_quota_is_gpu_budget_with_the_contracts_numbers(plan: Plan) -> None:
    quota = _team(plan).resource_quota
    assert quota["metadata"]["name"] == "gpu-budget"
    assert quota["spec"] == {
        "hard": {
            "requests.nvidia.com/gpu": "2",
            "requests.cpu": "16",
            "requests.memory": "64Gi",
            "limits.cpu": "32",
            "limits.memory": "128Gi",
            "pods": "10",
        }
    }


def test_a_container_without_its_own_numbers_gets_defaults_that_the_quota_can_count(plan: Plan) -> None:
    assert _team(plan).limit_range["spec"]["limits"] == [
        {
            "type": "Container",
            "defaultRequest": {"cpu": "500m", "memory": "1Gi"},
            "default": {"cpu": "1", "memory": "2Gi"},
        }
    ]


def test_a_team_may_cap_its_containers(plan: Plan) -> None:
    limits = _team(plan, limitRange={"max": {"cpu": 16, "memory": "64Gi"}}).limit_range["spec"]["limits"]
    assert limits[0]["max"] == {"cpu": "16", "memory": "64Gi"}


def test_everything_is_closed_but_the_clusters_dns(plan: Plan) -> None:
    deny, dns = _team(plan).network_policies
    assert deny["metadata"]["name"] == "default-deny"
    assert deny["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert dns["spec"] == {
        "podSelector": {},
        "policyTypes": ["Egress"],
        "egress": [
            {
                "to": [
                    {
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
                    }
                ],
                "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
            }
        ],
    }


def test_https_opens_443_everywhere_but_at_the_clouds_metadata(plan: Plan) -> None:
    policies = {
        item["metadata"]["name"]: item["spec"]
        for item in _team(plan, network={"https": True}).network_policies
    }
    assert policies["allow-https"]["egress"] == [
        {
            "to": [
                {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}},
                {"ipBlock": {"cidr": "::/0", "except": ["fd00:ec2::254/128"]}},
            ],
            "ports": [{"protocol": "TCP", "port": 443}],
        }
    ]


def test_egress_to_a_range_is_opened_as_configured(plan: Plan) -> None:
    egress = [
        {"cidr": "10.0.0.0/8", "exclude": ["10.9.0.0/16"], "ports": [{"port": 2049}]},
        {"cidr": "203.0.113.7/32"},
    ]
    policy = _team(plan, network={"egress": egress}).network_policies[-1]
    assert policy["metadata"]["name"] == "allow-egress"
    assert policy["spec"]["egress"] == [
        {
            "to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.9.0.0/16"]}}],
            "ports": [{"protocol": "TCP", "port": 2049}],
        },
        {"to": [{"ipBlock": {"cidr": "203.0.113.7/32"}}]},
    ]


def test_pods_of_one_team_talk_to_each_other_only_when_it_is_said(plan: Plan) -> None:
    policy = _team(plan, network={"withinTeam": True}).network_policies[-1]
    assert policy["metadata"]["name"] == "allow-within-team"
    assert policy["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"podSelector": {}}]}],
        "egress": [{"to": [{"podSelector": {}}]}],
    }


def _verbs(team: TeamPlan, group: str, resource: str) -> set[str]:
    rules = [
        rule for rule in team.role["rules"] if group in rule["apiGroups"] and resource in rule["resources"]
    ]
    return {verb for rule in rules for verb in rule["verbs"]}


def test_the_teams_group_may_submit_and_remove_jobs_and_read_what_becomes_of_them(plan: Plan) -> None:
    team = _team(plan)
    assert _verbs(team, "batch", "jobs") == {"get", "list", "watch", "create", "delete"}
    assert _verbs(team, "", "pods/log") == {"get"}
    for resource in ("pods", "events", "persistentvolumeclaims", "resourcequotas", "limitranges"):
        assert _verbs(team, "", resource) == {"get", "list", "watch"}, resource


def test_the_teams_group_changes_no_budget_no_network_no_rights_and_reads_no_secret(plan: Plan) -> None:
    team = _team(plan)
    writes = {"create", "update", "patch", "delete", "deletecollection", "*"}
    for rule in team.role["rules"]:
        if set(rule["verbs"]) & writes:
            assert (rule["apiGroups"], rule["resources"]) in (
                (["batch"], ["jobs"]),
                (["jobset.x-k8s.io"], ["jobsets"]),
            )
    resources = {resource for rule in team.role["rules"] for resource in rule["resources"]}
    assert not resources & {
        "secrets",
        "pods/exec",
        "pods/attach",
        "networkpolicies",
        "roles",
        "rolebindings",
        "*",
    }


def test_the_role_is_bound_to_the_teams_group(plan: Plan) -> None:
    binding = _team(plan, group="ml-batch-engineers").role_binding
    assert binding["subjects"] == [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "ml-batch-engineers"}
    ]
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "training"}


def test_the_claim_is_shared_by_nodes_and_not_waited_for(plan: Plan) -> None:
    team = _team(plan)
    assert team.checkpoint_claim["metadata"]["name"] == team.claim_name == "training-checkpoints"
    assert team.checkpoint_claim["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}
    assert team.checkpoint_claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "shared",
        "resources": {"requests": {"storage": "100Gi"}},
    }


def test_checkpoints_are_kept_unless_they_are_called_disposable(plan: Plan) -> None:
    assert _team(plan).disposable is False
    assert _team(plan, checkpointStorage={"storageClass": "shared", "disposable": True}).disposable is True
