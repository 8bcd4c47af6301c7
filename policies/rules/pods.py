"""Finding the Pods that a resource will make, in whatever kind of object they are described."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

from rules.engine import Resource
from rules.quantity import parse
from rules.views import UNKNOWN, View

PART_OF_LABEL = "app.kubernetes.io/part-of"
PART_OF_VALUE = "holdfast"

# Where the Pod template of the built-in kinds is; all others are searched for lists of containers.
_TEMPLATES: dict[str, tuple[str, ...]] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
# The API groups of Kubernetes itself, and of the provider's components; all others are custom resources.
_BUILT_IN_GROUPS = frozenset(
    {
        "core", "apps", "batch", "extensions", "autoscaling", "policy", "meta",
        "helm.sh", "yaml", "kustomize",
        "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io",
        "auditregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
        "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
        "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io",
        "node.k8s.io", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io",
        "settings.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
    }
)  # fmt: skip
# The groups of policy engines: what looks like a Pod there is a pattern or a patch of other people's Pods.
_POLICY_ENGINES = re.compile(
    r"kubernetes:((policies\.)?kyverno\.io|[\w.]*\.gatekeeper\.sh|policies\.kubewarden\.io)/"
)
# Where custom resources say what a container asks for without a list of containers.
_IN_SHORT = ("resources", "resourcesPerNode", "computeResources")
# Below these keys an unknown value may hide a Pod; elsewhere it is a detail of some other object.
_MAY_HIDE_PODS = frozenset(
    {"spec", "template", "templates", "jobTemplate", "replicatedJobs", "steps", "container", "containers"}
    | {*_IN_SHORT}
)

# Extended resources that are GPUs or slices of one: MIG slices and time-sliced ones have names of their own,
# and so have whole GPUs for virtual machines (nvidia.com/GH100_H100L_94GB) and other schedulers' shares.
_GPU = re.compile(
    r"nvidia\.com/((gpu|mig-|pgpu|vgpu)[\w.\-]*|[A-Z]{2}\d{3}\w*|(GRID|NVIDIA)_[\w\-]+)"
    r"|amd\.com/gpu[\w.\-]*|gpu\.intel\.com/[\w.\-]+|volcano\.sh/v?gpu-[\w\-]+|aliyun\.com/gpu-[\w\-]+"
)
# KAI Scheduler and Run:ai give a part of a GPU to a Pod that asks by annotation, and sets no resources.
_GPU_ANNOTATIONS = ("gpu-fraction", "gpu-memory")


@dataclass(frozen=True)
class Container:
    """One container of a Pod: `group` is the Pod field that lists it."""

    group: str
    name: str
    view: View


@dataclass(frozen=True)
class Workload:
    """One Pod template. `complete` is false where an object may override only a part of a Pod."""

    kind: str
    title: str
    namespace: View
    labels: tuple[View, ...]
    annotations: tuple[View, ...]
    owners: tuple[View, ...]
    spec: View
    claim_templates: View
    complete: bool

    def containers(self) -> Iterator[Container]:
        """All containers, init containers (sidecars too) and ephemeral ones; unknown ones are noted."""
        for group in ("initContainers", "containers", "ephemeralContainers"):
            for index, view in enumerate(self.spec[group].elements()):
                if view.unknown:
                    view.note()
                    continue
                yield Container(group, view["name"].peek_text() or f"#{index}", view)


def is_gpu(resource_name: str) -> bool:
    return _GPU.fullmatch(resource_name) is not None


def gpu_names(container: View) -> tuple[set[str], bool]:
    """The GPU resources that a container asks for, and whether an unknown value could hide more.

    An amount of 0 asks for nothing: templates write it for Pods without a GPU.
    """
    found: set[str] = set()
    hidden = False
    for section in ("limits", "requests"):
        amounts = container["resources"][section]
        hidden = hidden or amounts.unknown
        found.update(
            key for key in amounts.peek_keys() if is_gpu(key) and parse(amounts[key].peek()) != Decimal(0)
        )
    return found, hidden


def asks_for_gpu(workload: Workload) -> bool | None:
    """Whether any container of the Pod asks for a GPU; None when that is not known yet.

    A Pod with resource claims may get its GPU through dynamic resource allocation; it counts as asking.
    """
    hidden = False
    groups = [workload.spec[group] for group in ("containers", "initContainers")]
    if not workload.complete:
        # KServe's predictor has its model beside the containers of the same Pod.
        children = (workload.spec[key] for key in workload.spec.peek_keys())
        groups += [pod["containers"] for child in children for pod in _pods_in_short(child)]
    for containers in groups:
        hidden = hidden or containers.unknown
        for view in containers.peek_elements():
            names, unknown = gpu_names(view)
            if names:
                return True
            hidden = hidden or unknown or view.unknown
    claims = workload.spec["resourceClaims"]
    annotated = {key for annotations in workload.annotations for key in annotations.peek_keys()}
    if claims.peek_elements() or annotated.intersection(_GPU_ANNOTATIONS):
        return True
    hidden = hidden or any(annotations.unknown for annotations in workload.annotations)
    return None if hidden or claims.unknown else False


def is_ours(workload: Workload) -> bool | None:
    """Whether the object or its Pods are labelled as part of Holdfast; None when that is not known yet."""
    values = [labels[PART_OF_LABEL] for labels in workload.labels]
    if any(value.peek_text() == PART_OF_VALUE for value in values):
        return True
    return None if any(value.unknown for value in values) else False


def may_be_in_scope(workload: Workload) -> bool:
    """False when it is certain that the Pod neither asks for GPUs nor is ours; notes nothing."""
    return asks_for_gpu(workload) is not False or is_ours(workload) is not False


def in_scope(workload: Workload) -> bool:
    """Whether the Pod asks for GPUs or is ours. What is not known yet is noted, and not in scope so far."""
    asks, ours = asks_for_gpu(workload), is_ours(workload)
    if asks or ours:
        return True
    if asks is None:
        note_hidden_resources(workload)
    if ours is None:
        for labels in workload.labels:
            labels[PART_OF_LABEL].value()
    return False


def note_hidden_resources(workload: Workload) -> None:
    """Notes what of the Pod's amounts, claims and annotations is not known yet."""
    for group in ("containers", "initContainers"):
        for view in workload.spec[group].elements():
            for section in ("limits", "requests"):
                view["resources"][section].value()
    workload.spec["resourceClaims"].value()
    for each in workload.annotations:
        if each.unknown:
            each.note()


def note_if_gpu_is_hidden(workload: Workload) -> None:
    """Notes the values that keep `asks_for_gpu` from an answer."""
    if asks_for_gpu(workload) is None:
        note_hidden_resources(workload)


@cache
def may_have_pods(type_: str) -> bool:
    """Whether a resource of this type can describe Pods: the built-in kinds that do, and any custom
    resource but a policy.
    """
    if not type_.startswith("kubernetes:") or _POLICY_ENGINES.match(type_):
        return False
    kind = type_.rsplit(":", 1)[-1].removesuffix("Patch").removesuffix("List")
    return kind in _TEMPLATES or not _is_built_in(type_)


def _is_built_in(type_: str) -> bool:
    return type_.removeprefix("kubernetes:").split("/")[0].split(":")[0] in _BUILT_IN_GROUPS


def workloads(resource: Resource) -> list[Workload]:
    """Every Pod template of a resource: of the built-in kinds, of lists, and of any custom resource."""
    kind = resource.kind
    if not resource.type.startswith("kubernetes:") or _POLICY_ENGINES.match(resource.type):
        return []
    if kind.endswith("Patch") and kind.removesuffix("Patch") in _TEMPLATES:
        # Server-side apply of a part of an object: what it does not say is not missing.
        return _of_object(kind.removesuffix("Patch"), resource.props, resource.title, True, complete=False)
    built_in = _is_built_in(resource.type)
    if kind.endswith("List") and kind.removesuffix("List") in _TEMPLATES:
        return [
            found
            for item in resource.props["items"].elements()
            for found in _of_object(kind.removesuffix("List"), item, f"{resource.title} item", True)
        ]
    return _of_object(kind, resource.props, resource.title, built_in)


def _of_object(kind: str, root: View, title: str, built_in: bool, complete: bool = True) -> list[Workload]:
    if built_in:
        if kind not in _TEMPLATES:
            return []
        template = root
        for key in _TEMPLATES[kind]:
            template = template[key]
        spec = template["spec"]
        if not spec.is_mapping and not spec.unknown:
            return []
        return [workload_of(kind, title, root, [template["metadata"]], spec, complete)]
    return [
        workload_of(kind, title, root, metadata, spec, complete=False)
        for metadata, spec in _search(root, [], depth=0)
    ]


def workload_of(
    kind: str, title: str, root: View, templates: list[View], spec: View, complete: bool = True
) -> Workload:
    """The Pod `spec` of an object `root`; `templates` are the metadata between the two, outermost first."""
    metadata = [root["metadata"], *templates]
    return Workload(
        kind=kind,
        title=title,
        namespace=root["metadata"]["namespace"],
        labels=tuple(m["labels"] for m in metadata),
        annotations=tuple(m["annotations"] for m in metadata),
        owners=tuple(m["ownerReferences"] for m in metadata),
        spec=spec,
        claim_templates=root["spec"]["volumeClaimTemplates"],
        complete=complete,
    )


def _search(view: View, metadata: list[View], depth: int) -> Iterator[tuple[list[View], View]]:
    if depth > 16:
        return
    if view["containers"].is_list or view["containers"].unknown:
        yield metadata, view
        return
    yield from ((metadata, pod) for pod in _pods_in_short(view))
    inner = [*metadata, view["metadata"]] if depth and view["metadata"].is_mapping else metadata
    for key in view.peek_keys():
        child = view[key]
        if child.unknown:
            if key in _MAY_HIDE_PODS:
                child.note()
        elif child.is_mapping:
            yield from _search(child, inner, depth + 1)
        elif child.is_list:
            for element in child.peek_elements():
                if element.unknown:
                    if key in _MAY_HIDE_PODS:
                        element.note()
                    continue
                yield from _search(element, inner, depth + 1)


def _pods_in_short(view: View) -> Iterator[View]:
    """Pods that a custom resource describes by image and resources alone: TrainJob, KServe's models, Tekton's
    steps, Argo's templates.
    """
    for key in _IN_SHORT:
        resources = view[key]
        amounts = (resources["limits"], resources["requests"]) if resources.is_mapping else ()
        if any(each.is_mapping or each.unknown for each in amounts):
            image, security = view["image"], view["securityContext"]
            container = {"name": view.path.rsplit(".", 1)[-1], "resources": resources.peek()}
            if image.peek_text() is not None:
                container["image"] = image.peek()
            if security.is_mapping:
                container["securityContext"] = security.peek()
            for part in ("image", "securityContext"):
                if view[part].unknown:
                    container[part] = UNKNOWN
            yield view.over({"containers": [container]})
