"""GKE admits Pods of system priority only where a quota allows them: the operator's are of that priority.

Source: NVIDIA, "NVIDIA GPU Operator with Google GKE"; gpu-operator#660.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulumi_policy import EnforcementLevel, Severity

from rules import charts
from rules.engine import Config, Resource, Violation, stack_policy
from rules.installs import Install, operator_charts
from rules.node_pools import is_pool_type, node_pools
from rules.quota_keys import QUOTA

_CRITICAL = "system-node-critical"


def check_critical_pods(resources: Sequence[Resource], _config: Config) -> Iterator[Violation]:
    """GPU Operators on clusters with a GPU pool of GKE, in another namespace than kube-system."""
    on_gke = {pool.cluster for pool in node_pools(resources) if pool.platform == "gke"}
    charts.note_unnamed_charts(resources, on_gke)
    for install in operator_charts(resources):
        cluster, namespace = install.resource.cluster, install.namespace
        if cluster not in on_gke or namespace.value() == "kube-system" or not _is_critical(install):
            continue
        where = namespace.peek_text() or "default"
        if namespace.unknown or any(_admits(r, where) for r in resources if r.cluster == cluster):
            continue
        yield Violation(
            f"{install.title}: GKE admits Pods of the priority {_CRITICAL} only where a quota allows them,"
            f" and the stack has none in namespace '{where}', so the operator and its operands get no Pods."
            " Add a ResourceQuota there with hard.pods and the scopeSelector {operator: In, scopeName:"
            f" PriorityClass, values: [{_CRITICAL}, system-cluster-critical]}}.",
            install.resource.urn,
        )


def _is_critical(install: Install) -> bool:
    priority = install.setting("daemonsets.priorityClassName")
    return not priority.exists or priority.unknown or (priority.peek_text() or "").startswith("system-")


def _admits(r: Resource, namespace: str) -> bool:
    if r.type != QUOTA or (r.props["metadata"]["namespace"].peek_text() or "default") != namespace:
        return False
    for expression in r.props["spec"]["scopeSelector"]["matchExpressions"].peek_elements():
        values = [value.peek_text() for value in expression["values"].peek_elements()]
        if expression["scopeName"].peek_text() == "PriorityClass" and (
            _CRITICAL in values or expression["operator"].peek_text() == "Exists"
        ):
            return True
    return False


CRITICAL_PODS = stack_policy(
    name="critical-pods-admitted",
    description="On GKE a quota admits the operator's Pods, which are of system priority.",
    severity=Severity.MEDIUM,
    remediation=(
        "Add a ResourceQuota with hard.pods to the operator's namespace, with a scopeSelector for the"
        f" PriorityClasses {_CRITICAL} and system-cluster-critical."
    ),
    check=check_critical_pods,
    level=EnforcementLevel.ADVISORY,
    wants=lambda type_: type_ == QUOTA or is_pool_type(type_) or charts.may_be_chart(type_),
)
