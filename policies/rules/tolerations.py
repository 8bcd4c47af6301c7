"""GPU nodes are for Pods that use GPUs: their taint is tolerated only together with a GPU request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulumi_policy import Severity

from rules.engine import Config, Resource, Violation, resource_policy
from rules.pods import Workload, asks_for_gpu, may_have_pods, note_if_gpu_is_hidden, workloads
from rules.views import View

# Keys that taint GPU nodes, with the value that says so; None: any value. `sku=gpu` is what AKS documents,
# `nvidia.com/gpu` what GKE and NVIDIA use, `dedicated=gpu` this project's default.
GPU_TAINTS: dict[str, str | None] = {
    "dedicated": "gpu",
    "sku": "gpu",
    "nvidia.com/gpu": None,
    "amd.com/gpu": None,
}

# The operators of the node itself must reach every node.
SYSTEM_NAMESPACES = frozenset(
    {
        "kube-system", "kube-node-lease", "gpu-operator", "gpu-operator-resources", "nvidia-gpu-operator",
        "nvidia-network-operator",
        "nvidia-dra-driver-gpu", "gpu-resources", "node-feature-discovery", "gke-managed-system",
        "gmp-system", "tigera-operator", "calico-system",
    }
)  # fmt: skip
# OpenShift keeps names that begin so for its own services.
_RESERVED = "openshift-"
EXEMPT_SETTING = "exemptNamespaces"
# Kubernetes keeps these two for what a cluster can not run without: autoscalers, CNI and CSI controllers.
_SYSTEM_PRIORITIES = frozenset({"system-cluster-critical", "system-node-critical"})
# A Pod that goes to control plane nodes alone takes no GPU node.
_CONTROL_PLANE = frozenset({"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"})
_OPERATOR_OWNERS = frozenset({"ClusterPolicy", "NVIDIADriver", "GPUCluster", "DaemonSet", "Node"})


def tolerated_gpu_taint(toleration: View) -> str | None:
    """The GPU taint that a toleration matches, as text, or None. Unknown parts are noted."""
    key = toleration["key"].text()
    operator = toleration["operator"].text() or "Equal"
    if toleration["key"].unknown or toleration["operator"].unknown:
        return None
    if not key:
        # Exists without a key matches every taint; with NoExecute it is the usual "stay on a dying node".
        effect = toleration["effect"].text() or ""
        if operator == "Exists" and not toleration["effect"].unknown and effect in ("", "NoSchedule"):
            return "every taint (operator Exists without a key)"
        return None
    if key not in GPU_TAINTS:
        return None
    wanted = GPU_TAINTS[key]
    if operator == "Exists" or wanted is None:
        return key if wanted is None else f"{key}={wanted}"
    return f"{key}={wanted}" if toleration["value"].text() == wanted else None


def check_tolerations(resource: Resource, config: Config) -> Iterator[Violation]:
    """Every Pod but those of DaemonSets, of the cluster's own services and of operators."""
    for workload in workloads(resource):
        if workload.kind == "DaemonSet":
            continue
        tolerations = workload.spec["tolerations"]
        if not tolerations.exists or asks_for_gpu(workload):
            continue
        taints = [taint for t in tolerations.elements() if (taint := _taint(t))]
        if not taints or belongs_to_the_system(workload, config.get(EXEMPT_SETTING) or ()):
            continue
        if asks_for_gpu(workload) is None:
            note_if_gpu_is_hidden(workload)
            continue
        namespace = workload.namespace
        if namespace.unknown:
            namespace.note()
            continue
        yield Violation(
            f"{workload.title} tolerates {', '.join(taints)} but none of its containers asks for a GPU: it"
            " can fill a GPU node that GPU work waits for. Remove the toleration, or set limits"
            " nvidia.com/gpu on the container that uses the GPU."
        )


def _taint(toleration: View) -> str | None:
    if toleration.unknown:
        toleration.note()
        return None
    return tolerated_gpu_taint(toleration)


def belongs_to_the_system(workload: Workload, exempt: Sequence[str] = ()) -> bool:
    """Whether a Pod is one of the cluster's own: by namespace, system priority, control plane or owner."""
    namespace = workload.namespace.peek_text() or ""
    if namespace in {*SYSTEM_NAMESPACES, *exempt} or namespace.startswith(_RESERVED):
        return True
    spec = workload.spec
    if spec["priorityClassName"].peek_text() in _SYSTEM_PRIORITIES:
        return True
    if _CONTROL_PLANE.intersection(spec["nodeSelector"].peek_keys()):
        return True
    owners = [owner for references in workload.owners for owner in references.peek_elements()]
    return any(owner["kind"].peek_text() in _OPERATOR_OWNERS for owner in owners)


TOLERATION_NEEDS_GPU = resource_policy(
    name="gpu-toleration-needs-gpu",
    description="A Pod tolerates the taint of GPU nodes only if it asks for a GPU.",
    severity=Severity.MEDIUM,
    remediation=(
        "Remove the toleration from Pods without a GPU, or add resources.limits with nvidia.com/gpu to the"
        " container that uses it. DaemonSets, Pods of a system priority class and the namespaces of node"
        f" operators are exempt; {EXEMPT_SETTING} in the pack's configuration names further namespaces."
    ),
    check=check_tolerations,
    wants=may_have_pods,
    settings={
        EXEMPT_SETTING: {
            "type": "array",
            "items": {"type": "string"},
            "description": "Namespaces whose Pods may tolerate the taint of GPU nodes without a GPU.",
        }
    },
)
